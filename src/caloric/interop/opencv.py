"""A drop-in replacement of ``cv2.SIFT_create()``: ``caloric.interop.opencv.SIFT_create()``.

Descriptors have the range that code for SIFT expects: non-negative float32 entries up to 255 and a
length of 512, so that RootSIFT, ``astype(np.uint8)``, distance thresholds, FLANN and BFMatcher work
unchanged. ``SIFT_create(descriptor="caloric")`` converts the default descriptor of the library to
this range; :func:`caloric.extract` returns its whitened form.

A ``cv2.KeyPoint`` is circular. With ``affine`` the descriptors of :meth:`Detector.detectAndCompute`
use the affine shape, but the keypoints have only its position, size and angle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.descriptor import recipes
from caloric.detector import extrema
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image import inputs, scalespace
from caloric.interop import conversion

DEFAULT = "caloric-unlearned"


def _pixels(image: Any, what: str = "image") -> Any:
    """Return an OpenCV image, an array or UMat in BGR order, as an array in RGB order.

    Images in other forms, such as paths and PIL images, have their own order.
    """
    if image is None:
        raise InputError(f"{what} is None: cv2.imread returns None for a file that it cannot read")
    if inputs.is_encoded(image):
        return inputs.read_image(image)
    array = np.asarray(image.get() if isinstance(image, cv2.UMat) else image)
    if array.ndim == 3 and array.shape[2] in (3, 4):
        return array[..., [2, 1, 0, *range(3, array.shape[2])]]
    return array


@dataclass
class Detector:
    """The methods of ``cv2.SIFT``, for images in BGR order. It stores options, but no image."""

    nfeatures: int = 0
    contrast_threshold: float = extrema.CONTRAST
    edge_threshold: float = extrema.EDGE
    descriptor_type: int = cv2.CV_32F
    descriptor: str = DEFAULT
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

    def _as_opencv(self, features: Features) -> NDArray[Any]:
        """Return descriptors in the range of SIFT."""
        if self.descriptor_type == cv2.CV_8U:
            return conversion.sift_bytes(features)
        return conversion.sift_floats(features)

    def detect(self, image: Any, mask: Any = None) -> tuple[Any, ...]:
        """Return the keypoints of an image, or of each image of a list."""
        if isinstance(image, list | tuple):
            masks = [None] * len(image) if mask is None else mask
            return tuple(self.detect(i, m) for i, m in zip(image, masks, strict=True))
        return pipeline.detect(_pixels(image), **self._detector_options(mask)).to_opencv()

    def compute(self, image: Any, keypoints: Sequence[Any]) -> tuple[Any, Any]:
        """Return the keypoints and their descriptors (n, d), or None if there are none.

        For a list of images, both are tuples with one entry per image. Unlike OpenCV, no keypoints
        are dropped.
        """
        if isinstance(image, list | tuple):
            results = [self.compute(i, k) for i, k in zip(image, keypoints, strict=True)]
            return tuple(k for k, _ in results), tuple(d for _, d in results)
        pixels, frames = _pixels(image), Frames.from_opencv(keypoints)
        if len(frames) == 0:
            return tuple(keypoints), None
        values = pipeline.describe(pixels, frames, self.descriptor)
        features = Features(frames, values, pixels.shape[:2], self.descriptor, "")
        return tuple(keypoints), self._as_opencv(features)

    def detectAndCompute(  # noqa: N802
        self,
        image: Any,
        mask: Any = None,
        descriptors: Any = None,
        useProvidedKeypoints: bool = False,
    ) -> tuple[tuple[Any, ...], NDArray[Any] | None]:
        """Return keypoints and descriptors, computed from one scale space."""
        if useProvidedKeypoints:
            raise InputError(
                "useProvidedKeypoints is not supported: call compute(image, keypoints) instead"
            )
        features = pipeline.extract(_pixels(image), self.descriptor, **self._detector_options(mask))
        return features.frames.to_opencv(), self._as_opencv(features) if len(features) else None

    def descriptorSize(self) -> int:  # noqa: N802
        """Return the dimension of the descriptors."""
        return conversion.sift_dimension(recipes.descriptor(self.descriptor))

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
        """Return the maximum number of features per image; 0 means all."""
        return self.nfeatures

    def setNFeatures(self, maxFeatures: int) -> None:  # noqa: N802
        """Set the maximum number of features per image."""
        self.nfeatures = maxFeatures

    def getContrastThreshold(self) -> float:  # noqa: N802
        """Return the contrast threshold, which OpenCV divides by the number of octave layers."""
        return self.contrast_threshold

    def setContrastThreshold(self, contrastThreshold: float) -> None:  # noqa: N802
        """Set the contrast threshold."""
        self.contrast_threshold = contrastThreshold

    def getEdgeThreshold(self) -> float:  # noqa: N802
        """Return the maximum ratio of principal curvatures."""
        return self.edge_threshold

    def setEdgeThreshold(self, edgeThreshold: float) -> None:  # noqa: N802
        """Set the maximum ratio of principal curvatures."""
        self.edge_threshold = edgeThreshold

    def getNOctaveLayers(self) -> int:  # noqa: N802
        """Return 3, the fixed number of layers per octave."""
        return scalespace.SCALES

    def getSigma(self) -> float:  # noqa: N802
        """Return 1.6, the fixed sigma of the first level."""
        return scalespace.FIRST

    def setNOctaveLayers(self, nOctaveLayers: int) -> None:  # noqa: N802
        """Accept only 3: the number of layers is fixed."""
        _check_fixed(nOctaveLayers, scalespace.FIRST)

    def setSigma(self, sigma: float) -> None:  # noqa: N802
        """Accept only 1.6: the first sigma is fixed."""
        _check_fixed(scalespace.SCALES, sigma)

    def clear(self) -> None:
        """Do nothing: no image is stored."""

    def write(self, target: Any, name: str | None = None) -> None:
        """Write the options to a ``cv2.FileStorage`` or a file."""
        storage = target
        if isinstance(target, str | Path):
            storage = cv2.FileStorage(str(target), cv2.FILE_STORAGE_WRITE)
        if name:
            storage.startWriteStruct(name, cv2.FileNode_MAP)
        for field in fields(self):
            value = getattr(self, field.name)
            storage.write(field.name, int(value) if isinstance(value, bool) else value)
        if name:
            storage.endWriteStruct()
        if storage is not target:
            storage.release()

    def save(self, filename: str | Path) -> None:
        """Write the options to a .yml or .xml file."""
        self.write(str(filename))

    def read(self, source: Any) -> None:
        """Read the options from a ``cv2.FileNode`` or a file."""
        node = source
        if isinstance(source, str | Path):
            storage = cv2.FileStorage(str(source), cv2.FILE_STORAGE_READ)
            if not storage.isOpened():
                raise InputError(f"{source}: cannot be read")
            node = storage.root()
        for field in fields(self):
            entry = node.getNode(field.name)
            if entry.empty():
                continue
            value = entry.string() if entry.isString() else entry.real()
            setattr(self, field.name, type(getattr(self, field.name))(value))


def _check_fixed(layers: int, sigma: float) -> None:
    if layers != scalespace.SCALES or sigma != scalespace.FIRST:
        raise InputError(
            f"nOctaveLayers is always {scalespace.SCALES} and sigma {scalespace.FIRST} in "
            f"Caloric, got {layers} and {sigma}"
        )


def SIFT_create(  # noqa: N802
    nfeatures: int = 0,
    nOctaveLayers: int = scalespace.SCALES,
    contrastThreshold: float = extrema.CONTRAST,
    edgeThreshold: float = extrema.EDGE,
    sigma: float = scalespace.FIRST,
    descriptorType: int = cv2.CV_32F,
    enable_precise_upscale: bool = True,
    *,
    descriptor: str = DEFAULT,
    affine: bool = False,
    upright: bool = False,
) -> Detector:
    """Return a detector: replace ``cv2.SIFT_create(2000)`` by ``opencv.SIFT_create(2000)``.

    The positional arguments are those of OpenCV; ``descriptor``, ``affine`` and ``upright`` are
    keywords. The number of layers and the first sigma are fixed; upscaling is always precise.
    """
    if isinstance(descriptorType, bool):
        # In OpenCV's other overload the sixth argument is enable_precise_upscale.
        descriptorType = cv2.CV_32F
    _check_fixed(nOctaveLayers, sigma)
    if descriptorType not in (cv2.CV_32F, cv2.CV_8U):
        raise InputError(f"descriptorType must be CV_32F or CV_8U, got {descriptorType}")
    recipes.descriptor(descriptor)
    return Detector(
        nfeatures, contrastThreshold, edgeThreshold, descriptorType, descriptor, affine, upright
    )


Detector.create = staticmethod(SIFT_create)  # type: ignore[attr-defined]
SIFT = Detector  # for code that calls cv2.SIFT.create()
