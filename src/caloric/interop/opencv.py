"""A drop-in for ``cv2.SIFT_create()``: ``sift = caloric.interop.opencv.SIFT_create()``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import features, recipes
from caloric.frames import Frames


@dataclass(frozen=True)
class Detector:
    """The methods of ``cv2.Feature2D``, for images in OpenCV's BGR order. It holds no image."""

    nfeatures: int = 0
    descriptor: str = "caloric"
    affine: bool = False
    upright: bool = False

    @staticmethod
    def _rgb(image: Any) -> Any:
        image = np.asarray(image)
        if image.ndim == 3 and image.shape[2] in (3, 4):
            return image[..., [2, 1, 0, *range(3, image.shape[2])]]
        return image

    def detect(self, image: Any, mask: Any = None) -> tuple[Any, ...]:
        """Keypoints of an image, or of each of a list of images."""
        if isinstance(image, list | tuple):
            masks = [None] * len(image) if mask is None else mask
            return tuple(self.detect(i, m) for i, m in zip(image, masks, strict=True))
        frames = features.detect(
            self._rgb(image),
            max_features=self.nfeatures or None,
            mask=mask,
            affine=self.affine,
            upright=self.upright,
        )
        return frames.to_opencv()

    def compute(self, image: Any, keypoints: Sequence[Any]) -> tuple[Any, NDArray[Any] | None]:
        """The keypoints and their descriptors (n, d) float32, None for none, as OpenCV has it."""
        frames = Frames.from_opencv(keypoints)
        if len(frames) == 0:
            return tuple(keypoints), None
        return tuple(keypoints), features.describe(self._rgb(image), frames, self.descriptor)

    def detectAndCompute(  # noqa: N802
        self, image: Any, mask: Any, descriptors: Any = None, useProvidedKeypoints: bool = False
    ) -> tuple[tuple[Any, ...], NDArray[Any] | None]:
        """Both at once, over one scale space."""
        found = features.extract(
            self._rgb(image),
            self.descriptor,
            max_features=self.nfeatures or None,
            mask=mask,
            affine=self.affine,
            upright=self.upright,
        )
        return found.frames.to_opencv(), found.descriptors if len(found) else None

    def descriptorSize(self) -> int:  # noqa: N802
        """The number of columns."""
        return recipes.descriptor(self.descriptor).layout.dimension

    def descriptorType(self) -> int:  # noqa: N802
        """``cv2.CV_32F``."""
        return int(cv2.CV_32F)

    def defaultNorm(self) -> int:  # noqa: N802
        """``cv2.NORM_L2``."""
        return int(cv2.NORM_L2)

    def empty(self) -> bool:
        """Never, as OpenCV's."""
        return False

    def getDefaultName(self) -> str:  # noqa: N802
        """A name for logs."""
        return f"Feature2D.Caloric.{self.descriptor}"


def SIFT_create(nfeatures: int = 0, descriptor: str = "caloric", **options: bool) -> Detector:  # noqa: N802
    """The line to change: ``cv2.SIFT_create(2000)`` becomes ``opencv.SIFT_create(2000)``."""
    return Detector(nfeatures, descriptor, **options)
