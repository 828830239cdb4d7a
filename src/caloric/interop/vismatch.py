"""A matcher with the interface of vismatch (image-matching-models)."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from caloric import image_pair
from caloric.descriptor.recipes import DescriptorLike
from caloric.interop.conversion import unit_descriptors
from caloric.options import ExtractOptions


class Caloric:
    """A matcher that is called with two images and returns a dictionary, like those of vismatch.

    Parameters
    ----------
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if available) or "torch:cpu".
    max_num_keypoints : int
        The largest number of keypoints per image, without those of simulated views.
    descriptor : str, caloric.Descriptor or caloric.kernels.Kernel
        Name of a descriptor, a recipe, or a kernel.
    views : "auto", 2, 4, 8 or None
        Simulated oblique views: see :func:`caloric.match_images`.
    ransac_reproj_thresh : float
        Largest residual of an inlier, in pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from caloric.interop.vismatch import Caloric
    >>> image = np.random.default_rng(0).random((3, 120, 160))
    >>> matcher = Caloric(device="cpu", max_num_keypoints=100)
    >>> result = matcher(image, image)
    >>> result["H"].round(3)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        max_num_keypoints: int = 2048,
        descriptor: DescriptorLike = "caloric",
        views: Literal["auto"] | int | None = None,
        ransac_reproj_thresh: float = 3.0,
    ) -> None:
        """Check the options."""
        first = None if views == "auto" else views
        ExtractOptions(descriptor=descriptor, max_features=max_num_keypoints, views=first)
        self.device = device
        self.max_num_keypoints = max_num_keypoints
        self.descriptor: DescriptorLike = descriptor
        self.views: Literal["auto"] | int | None = views
        self.ransac_reproj_thresh = ransac_reproj_thresh

    @property
    def name(self) -> str:
        """The name of the matcher."""
        return type(self).__name__

    def __call__(self, img0: Any, img1: Any) -> dict[str, Any]:
        """Match two images.

        Parameters
        ----------
        img0, img1 : tensor or array (3, h, w) in [0, 1], array (h, w) or (h, w, 3), or path
            The images.

        Returns
        -------
        dict
            ``num_inliers``; ``H`` (3, 3), the homography from the first image to the second, or
            None if there is no reliable one, in which case there are no inliers; and, for 0 and 1:
            ``all_kpts`` (n, 2), ``all_desc`` (n, d), ``matched_kpts`` (m, 2) and ``inlier_kpts``
            (k, 2).
        """
        pair = image_pair.match_images(
            _pixels(img0), _pixels(img1), self.descriptor, model="homography", views=self.views,
            device=self.device, threshold=self.ransac_reproj_thresh,
            max_features=self.max_num_keypoints,
        )  # fmt: skip
        inliers = pair.geometry.inliers if pair else np.zeros(len(pair.matches), bool)
        result: dict[str, Any] = {
            "num_inliers": int(inliers.sum()),
            "H": pair.geometry.matrix if pair else None,
        }
        sides = zip((pair.features_a, pair.features_b), pair.all_points(), strict=True)
        for number, (features, points) in enumerate(sides):
            result[f"all_kpts{number}"] = features.frames.xy
            result[f"all_desc{number}"] = unit_descriptors(features)
            result[f"matched_kpts{number}"] = points
            result[f"inlier_kpts{number}"] = points[inliers]
        return result


def _pixels(image: Any) -> Any:
    """Return an image with channels first as an array with channels last; others unchanged."""
    if hasattr(image, "detach"):  # a tensor
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] in (3, 4):
        return image
    if image.shape[0] == 1:
        return image[0]
    array: NDArray[Any] = np.moveaxis(image, 0, -1) if image.shape[0] in (3, 4) else image
    return array
