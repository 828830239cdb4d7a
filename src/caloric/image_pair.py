"""Two images in one call: features, matches, geometry, the matched points and a picture."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import pipeline, viz
from caloric.descriptor.recipes import Descriptor
from caloric.detector import extrema
from caloric.detector.detection import FEATURES, Detector
from caloric.errors import InputError, known_options
from caloric.features import Features
from caloric.gpu import devices
from caloric.image.reading import read_image
from caloric.kernels import Kernel
from caloric.matching.geometry import Geometry, Model
from caloric.matching.neighbours import Matches
from caloric.theory.gaussians import FloatArray


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two images and what they have in common; false if that is nothing.

    Parameters
    ----------
    image_a, image_b : ndarray
        The images.
    features_a, features_b : Features
        Their features.
    matches : Matches
        All matches of the features.
    geometry : Geometry
        The geometry that most of the matches agree on, and which of them do.
    threshold : float
        The largest residual of an inlier, in pixels.
    """

    image_a: NDArray[np.generic]
    image_b: NDArray[np.generic]
    features_a: Features
    features_b: Features
    matches: Matches
    geometry: Geometry
    threshold: float

    def __len__(self) -> int:
        """Return the number of matched points: the inliers of the geometry."""
        return len(self.geometry)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        return f"ImagePair({self.summary})"

    @property
    def summary(self) -> str:
        """How many features, matches and inliers there are."""
        model = _MODELS[self.geometry.model]
        return (
            f"{len(self.features_a)} and {len(self.features_b)} features, "
            f"{len(self.matches)} matches, {len(self)} inliers of {model}"
        )

    @property
    def points_a(self) -> FloatArray:
        """The matched points (m, 2) in the first image: the inliers of the geometry."""
        return self.all_points()[0][self.geometry.inliers]

    @property
    def points_b(self) -> FloatArray:
        """The same points (m, 2) in the second image, refined if that was asked for."""
        return self.all_points()[1][self.geometry.inliers]

    def all_points(self) -> tuple[FloatArray, FloatArray]:
        """Return the points (n, 2) of all matches in both images, outliers too."""
        return viz.matched_points(self.features_a, self.features_b, self.matches)

    def picture(self, title: str = "", most: int = viz.MOST_LINES) -> viz.Picture:
        """Return a picture of both images and at most so many of the matched points."""
        return viz.draw_matches(
            self.image_a, self.image_b, self.features_a, self.features_b, self.matches,
            self.geometry, limit=self.threshold, title=title or self.summary, most=most,
        )  # fmt: skip

    def show(self) -> None:
        """Open the picture in the viewer of this computer."""
        self.picture().show()

    def save(self, path: str | Path) -> None:
        """Write the picture to a file, .png or .jpg."""
        self.picture().save(path)

    def _repr_png_(self) -> bytes:
        return self.picture()._repr_png_()


_MODELS: dict[Model, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


@known_options
def match_images(
    image_a: ArrayLike | str | Path,
    image_b: ArrayLike | str | Path,
    descriptor: str | Descriptor | Kernel = "caloric",
    *,
    max_features: int | None = FEATURES,
    model: Model = "homography",
    ratio: float | None = 0.9,
    threshold: float = 2.0,
    refine: bool = False,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    masks: Sequence[ArrayLike | None] = (None, None),
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float | None = None,
    edge: float = extrema.EDGE,
    seed: int = 0,
    device: str = "cpu",
) -> ImagePair:
    """Match two images: extract their features, match them, and verify the matches.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4), or the path of a file
        The images.
    descriptor : str, Descriptor or Kernel
        One of :func:`descriptors`, a recipe of your own, or a kernel.
    max_features, affine, upright, detector, contrast, edge
        See :func:`detect`.
    model, threshold, seed, intrinsics
        See :func:`verify`.
    ratio, refine
        See :func:`match`.
    masks : (mask_a, mask_b)
        Non-zero where features may be, (h, w) each, or None.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".

    Returns
    -------
    ImagePair
        ``points_a`` and ``points_b`` (m, 2), ``geometry``, ``matches``, ``features_a`` and
        ``features_b``; ``show()`` and ``save(path)`` draw it. It is false if no geometry was found.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> pair = caloric.match_images(image, image[5:, 7:])
    >>> np.abs(pair.points_a - pair.points_b - (7, 5)).max() < 0.5
    np.True_
    """
    if len(masks) != 2:
        raise InputError(f"masks: two images need two masks or None each, got {len(masks)}")
    devices.resolve(device)  # raises an error before images are read
    images = [_opened(image) for image in (image_a, image_b)]

    def extracted(image: Any, mask: Any, name: object, which: str) -> Features:
        try:
            found: Features = pipeline.extract(
                image, descriptor, max_features=max_features, mask=mask, affine=affine,
                upright=upright, detector=detector, contrast=contrast, edge=edge, device=device,
            )  # fmt: skip
        except InputError as error:
            name = name if _is_path(name) else f"the {which} image"
            raise InputError(f"{name}: {error}") from None
        return found

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(extracted, images, masks, (image_a, image_b), ("first", "second"))
    matches = pipeline.match(
        a, b, ratio=ratio, refine=refine, images=(images[0], images[1]) if refine else None,
        device=device,
    )  # fmt: skip
    geometry = pipeline.verify(
        a, b, matches, model=model, seed=seed, threshold=threshold, intrinsics=intrinsics
    )
    return ImagePair(images[0], images[1], a, b, matches, geometry, threshold)


def _is_path(image: object) -> bool:
    return isinstance(image, str | PathLike)


def _opened(image: Any) -> Any:
    return read_image(image) if _is_path(image) else image
