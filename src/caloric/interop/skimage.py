"""The shape of ``skimage.feature.SIFT``: detect, extract, detect_and_extract; (row, column)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import features
from caloric.frames import Frames


@dataclass(frozen=True, eq=False)
class Found:
    """What scikit-image keeps on the extractor, as a value."""

    frames: Frames
    descriptors: NDArray[Any]

    @property
    def keypoints(self) -> NDArray[np.float64]:
        """(n, 2) as (row, column), not rounded."""
        return self.frames.xy[:, ::-1]

    @property
    def scales(self) -> NDArray[np.float64]:
        """σ in pixels."""
        return self.frames.sigma

    @property
    def orientations(self) -> NDArray[np.float64]:
        """Radians from +x towards +y, which is down."""
        return self.frames.angle

    @property
    def responses(self) -> NDArray[np.float32]:
        """The strength of each keypoint."""
        return self.frames.scores


class SIFT:
    """Use it as scikit-image's: call, then read ``keypoints``, ``descriptors`` and the rest.

    The attributes show the last call's result, a value of its own; no option changes by itself, and
    no image is held.
    """

    def __init__(self, descriptor: str = "caloric", max_features: int | None = None) -> None:
        """``descriptor`` is one of ``caloric.descriptors()``."""
        self.descriptor, self.max_features = descriptor, max_features
        self.result = Found(Frames.empty(), np.zeros((0, 0), np.float32))

    def detect(self, image: Any) -> None:
        """Find keypoints."""
        frames = features.detect(image, max_features=self.max_features)
        self.result = Found(frames, np.zeros((0, 0), np.float32))

    def extract(self, image: Any) -> None:
        """Describe the keypoints found before."""
        frames = self.result.frames
        self.result = Found(frames, features.describe(image, frames, self.descriptor))

    def detect_and_extract(self, image: Any) -> None:
        """Both at once."""
        found = features.extract(image, self.descriptor, max_features=self.max_features)
        self.result = Found(found.frames, found.descriptors)

    def __getattr__(self, name: str) -> Any:
        """keypoints, scales, orientations, responses and descriptors of the last result."""
        if name in ("keypoints", "scales", "orientations", "responses", "descriptors"):
            return getattr(self.__dict__["result"], name)
        raise AttributeError(name)
