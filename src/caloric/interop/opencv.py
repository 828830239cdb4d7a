"""A drop-in for ``cv2.SIFT_create()``: ``sift = caloric.interop.opencv.SIFT_create()``.

A ``cv2.KeyPoint`` is round. With ``affine`` the descriptors of :meth:`Detector.detectAndCompute`
see the adapted shape, and the keypoints tell only where and how large it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.descriptor import recipes
from caloric.detector import extrema
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image import scalespace


def _pixels(image: Any, what: str = "image") -> Any:
    """An array in RGB order from whatever OpenCV code passes around."""
    if image is None:
        raise InputError(f"{what} is None: cv2.imread gives that for a file it cannot read")
    array = np.asarray(image.get() if isinstance(image, cv2.UMat) else image)
    if array.ndim == 3 and array.shape[2] in (3, 4):
        return array[..., [2, 1, 0, *range(3, array.shape[2])]]
    return array


@dataclass
class Detector:
    """The methods of ``cv2.SIFT``, for images in OpenCV's BGR order. It holds options, no image."""

    nfeatures: int = 0
    contrast_threshold: float = extrema.CONTRAST
    edge_threshold: float = extrema.EDGE
    descriptor_type: int = cv2.CV_32F
    descriptor: str = "caloric"
    affine: bool = False
    upright: bool = False

    def _detecting(self, mask: Any) -> dict[str, Any]:
        return {
            "max_features": self.nfeatures if self.nfeatures > 0 else None,
            "mask": None if mask is None else _pixels(mask, "mask"),
            "contrast": self.contrast_threshold,
            "edge": self.edge_threshold,
            "affine": self.affine,
            "upright": self.upright,
        }

    @property
    def _dtype(self) -> str:
        return "uint8" if self.descriptor_type == cv2.CV_8U else "float32"

    def detect(self, image: Any, mask: Any = None) -> tuple[Any, ...]:
        """Keypoints of an image, or of each of a list of images."""
        if isinstance(image, list | tuple):
            masks = [None] * len(image) if mask is None else mask
            return tuple(self.detect(i, m) for i, m in zip(image, masks, strict=True))
        return pipeline.detect(_pixels(image), **self._detecting(mask)).to_opencv()

    def compute(self, image: Any, keypoints: Sequence[Any]) -> tuple[Any, Any]:
        """The keypoints and their descriptors (n, d), None for none; of each of a list of images.

        OpenCV drops keypoints that it cannot describe; here there are none.
        """
        if isinstance(image, list | tuple):
            found = [self.compute(i, k) for i, k in zip(image, keypoints, strict=True)]
            return tuple(k for k, _ in found), tuple(d for _, d in found)
        pixels, frames = _pixels(image), Frames.from_opencv(keypoints)
        if len(frames) == 0:
            return tuple(keypoints), None
        values = pipeline.describe(pixels, frames, self.descriptor, dtype=self._dtype)
        return tuple(keypoints), values

    def detectAndCompute(  # noqa: N802
        self,
        image: Any,
        mask: Any = None,
        descriptors: Any = None,
        useProvidedKeypoints: bool = False,
    ) -> tuple[tuple[Any, ...], NDArray[Any] | None]:
        """Both at once, over one scale space."""
        if useProvidedKeypoints:
            raise InputError("useProvidedKeypoints: call compute(image, keypoints) instead")
        found = pipeline.extract(
            _pixels(image), self.descriptor, dtype=self._dtype, **self._detecting(mask)
        )
        return found.frames.to_opencv(), found.descriptors if len(found) else None

    def descriptorSize(self) -> int:  # noqa: N802
        """The number of columns."""
        return recipes.descriptor(self.descriptor).dimension

    def descriptorType(self) -> int:  # noqa: N802
        """``cv2.CV_32F``, or ``cv2.CV_8U`` if that was asked for."""
        return int(self.descriptor_type)

    def defaultNorm(self) -> int:  # noqa: N802
        """``cv2.NORM_L2``."""
        return int(cv2.NORM_L2)

    def empty(self) -> bool:
        """Never, as OpenCV's."""
        return False

    def getDefaultName(self) -> str:  # noqa: N802
        """A name for logs."""
        return f"Feature2D.Caloric.{self.descriptor}"

    def getNFeatures(self) -> int:  # noqa: N802
        """Features an image at most; 0 for all."""
        return self.nfeatures

    def setNFeatures(self, maxFeatures: int) -> None:  # noqa: N802
        """Change it."""
        self.nfeatures = maxFeatures

    def getContrastThreshold(self) -> float:  # noqa: N802
        """The least contrast, over the levels of an octave."""
        return self.contrast_threshold

    def setContrastThreshold(self, contrastThreshold: float) -> None:  # noqa: N802
        """Change it."""
        self.contrast_threshold = contrastThreshold

    def getEdgeThreshold(self) -> float:  # noqa: N802
        """The largest ratio of curvatures."""
        return self.edge_threshold

    def setEdgeThreshold(self, edgeThreshold: float) -> None:  # noqa: N802
        """Change it."""
        self.edge_threshold = edgeThreshold

    def getNOctaveLayers(self) -> int:  # noqa: N802
        """Always 3."""
        return scalespace.SCALES

    def getSigma(self) -> float:  # noqa: N802
        """Always 1.6."""
        return scalespace.FIRST


def SIFT_create(  # noqa: N802
    nfeatures: int = 0,
    nOctaveLayers: int = scalespace.SCALES,
    contrastThreshold: float = extrema.CONTRAST,
    edgeThreshold: float = extrema.EDGE,
    sigma: float = scalespace.FIRST,
    descriptorType: int = cv2.CV_32F,
    enable_precise_upscale: bool = True,
    *,
    descriptor: str = "caloric",
    affine: bool = False,
    upright: bool = False,
) -> Detector:
    """The line to change: ``cv2.SIFT_create(2000)`` becomes ``opencv.SIFT_create(2000)``.

    OpenCV's arguments in OpenCV's order, then ours by name. The number of layers and the first
    sigma are fixed here; positions are always the precise ones.
    """
    if isinstance(descriptorType, bool):
        descriptorType = cv2.CV_32F  # OpenCV's other signature: the sixth is the precise upscale
    if nOctaveLayers != scalespace.SCALES or sigma != scalespace.FIRST:
        raise InputError(
            f"nOctaveLayers is always {scalespace.SCALES} and sigma {scalespace.FIRST} here; "
            f"got {nOctaveLayers} and {sigma}"
        )
    if descriptorType not in (cv2.CV_32F, cv2.CV_8U):
        raise InputError(f"descriptorType must be CV_32F or CV_8U, got {descriptorType}")
    recipes.descriptor(descriptor)
    return Detector(
        nfeatures, contrastThreshold, edgeThreshold, descriptorType, descriptor, affine, upright
    )


class SIFT:
    """For code that says ``cv2.SIFT.create()``."""

    create = staticmethod(SIFT_create)
