"""A drop-in for ``cv2.SIFT_create()``: ``sift = caloric.interop.opencv.SIFT_create()``.

A ``cv2.KeyPoint`` is circular. With ``affine`` the descriptors of :meth:`Detector.detectAndCompute`
use the adapted shape, and the keypoints hold only its position, size and angle.
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
    """Return an image of OpenCV, in BGR order or a UMat, as an array in RGB order."""
    if image is None:
        raise InputError(f"{what} is None: cv2.imread returns None for a file that it cannot read")
    array = np.asarray(image.get() if isinstance(image, cv2.UMat) else image)
    if array.ndim == 3 and array.shape[2] in (3, 4):
        return array[..., [2, 1, 0, *range(3, array.shape[2])]]
    return array


@dataclass
class Detector:
    """The methods of ``cv2.SIFT``, for images in BGR order. It holds options, but no image."""

    nfeatures: int = 0
    contrast_threshold: float = extrema.CONTRAST
    edge_threshold: float = extrema.EDGE
    descriptor_type: int = cv2.CV_32F
    descriptor: str = "caloric"
    affine: bool = False
    upright: bool = False

    def _detector_options(self, mask: Any) -> dict[str, Any]:
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
        """Return the keypoints of an image, or of each image of a list."""
        if isinstance(image, list | tuple):
            masks = [None] * len(image) if mask is None else mask
            return tuple(self.detect(i, m) for i, m in zip(image, masks, strict=True))
        return pipeline.detect(_pixels(image), **self._detector_options(mask)).to_opencv()

    def compute(self, image: Any, keypoints: Sequence[Any]) -> tuple[Any, Any]:
        """Return the keypoints and their descriptors (n, d), or None if there are none.

        For a list of images both are tuples with one entry per image. Unlike OpenCV, it drops no
        keypoints.
        """
        if isinstance(image, list | tuple):
            results = [self.compute(i, k) for i, k in zip(image, keypoints, strict=True)]
            return tuple(k for k, _ in results), tuple(d for _, d in results)
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
        """Return keypoints and descriptors, computed from one scale space."""
        if useProvidedKeypoints:
            raise InputError("useProvidedKeypoints: call compute(image, keypoints) instead")
        features = pipeline.extract(
            _pixels(image), self.descriptor, dtype=self._dtype, **self._detector_options(mask)
        )
        return features.frames.to_opencv(), features.descriptors if len(features) else None

    def descriptorSize(self) -> int:  # noqa: N802
        """Return the dimension of the descriptors."""
        return recipes.descriptor(self.descriptor).dimension

    def descriptorType(self) -> int:  # noqa: N802
        """Return ``cv2.CV_32F`` or ``cv2.CV_8U``."""
        return int(self.descriptor_type)

    def defaultNorm(self) -> int:  # noqa: N802
        """Return ``cv2.NORM_L2``."""
        return int(cv2.NORM_L2)

    def empty(self) -> bool:
        """Return False, as OpenCV does."""
        return False

    def getDefaultName(self) -> str:  # noqa: N802
        """Return a name for logs."""
        return f"Feature2D.Caloric.{self.descriptor}"

    def getNFeatures(self) -> int:  # noqa: N802
        """Return the largest number of features per image; 0 means all."""
        return self.nfeatures

    def setNFeatures(self, maxFeatures: int) -> None:  # noqa: N802
        """Set the largest number of features per image."""
        self.nfeatures = maxFeatures

    def getContrastThreshold(self) -> float:  # noqa: N802
        """Return the contrast threshold, which OpenCV divides by the number of octave layers."""
        return self.contrast_threshold

    def setContrastThreshold(self, contrastThreshold: float) -> None:  # noqa: N802
        """Set the contrast threshold."""
        self.contrast_threshold = contrastThreshold

    def getEdgeThreshold(self) -> float:  # noqa: N802
        """Return the largest ratio of principal curvatures."""
        return self.edge_threshold

    def setEdgeThreshold(self, edgeThreshold: float) -> None:  # noqa: N802
        """Set the largest ratio of principal curvatures."""
        self.edge_threshold = edgeThreshold

    def getNOctaveLayers(self) -> int:  # noqa: N802
        """Return 3, the fixed number of layers per octave."""
        return scalespace.SCALES

    def getSigma(self) -> float:  # noqa: N802
        """Return 1.6, the fixed sigma of the first level."""
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
    """Return a detector: replace ``cv2.SIFT_create(2000)`` by ``opencv.SIFT_create(2000)``.

    The arguments are those of OpenCV in its order, then Caloric's own by name. The number of layers
    and the first sigma are fixed; positions are always upscaled precisely.
    """
    if isinstance(descriptorType, bool):
        # The sixth argument of OpenCV's other overload is enable_precise_upscale.
        descriptorType = cv2.CV_32F
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
    """A namespace for code that calls ``cv2.SIFT.create()``."""

    create = staticmethod(SIFT_create)
