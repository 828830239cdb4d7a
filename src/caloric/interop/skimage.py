"""The interface of ``skimage.feature.SIFT``: detect, extract, detect_and_extract; (row, column)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.descriptor import recipes
from caloric.detector import extrema
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image.scalespace import SCALES, octave_and_layer


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a call: the attributes that scikit-image sets on its extractor."""

    frames: Frames
    descriptors: NDArray[Any]

    @property
    def keypoints(self) -> NDArray[np.float64]:
        """Return positions (n, 2) as (row, column), not rounded as those of scikit-image are."""
        return self.frames.xy[:, ::-1]

    @property
    def positions(self) -> NDArray[np.float64]:
        """Return the same positions as ``keypoints``."""
        return self.keypoints

    @property
    def sigmas(self) -> NDArray[np.float64]:
        """Return the scales σ (n,) in pixels."""
        return self.frames.sigma

    @property
    def octaves(self) -> NDArray[np.int64]:
        """Return the octave (n,) of each keypoint; octave 0 is the image at twice its size."""
        return octave_and_layer(self.sigmas)[0]

    @property
    def scales(self) -> NDArray[np.int64]:
        """Return the level (n,) of each keypoint within its octave, 1 to 3."""
        return octave_and_layer(self.sigmas)[1]

    @property
    def orientations(self) -> NDArray[np.float64]:
        """Return angles (n,) in [0, 2π), from the row axis towards the column axis."""
        return (np.pi / 2 - self.frames.angle) % (2 * np.pi)

    @property
    def responses(self) -> NDArray[np.float32]:
        """Return the strength (n,) of each keypoint."""
        return self.frames.scores


_PROPERTIES = {name for name, value in vars(Found).items() if isinstance(value, property)}


class SIFT:
    """A drop-in for ``skimage.feature.SIFT``: call it, then read ``keypoints`` and so on.

    The attributes are those of the last result. A call changes no option and keeps no image.
    ``c_dog`` and ``c_edge`` are the thresholds of scikit-image.
    """

    def __init__(
        self,
        *,
        descriptor: str = "caloric",
        max_features: int | None = None,
        c_dog: float = extrema.CONTRAST / SCALES,
        c_edge: float = extrema.EDGE,
        upright: bool = False,
        affine: bool = False,
    ) -> None:
        """Set the options; ``descriptor`` is one of ``caloric.descriptors()``."""
        recipes.descriptor(descriptor)
        self.descriptor = descriptor
        self.options: dict[str, Any] = {
            "max_features": max_features,
            "contrast": c_dog * SCALES,
            "edge": c_edge,
            "upright": upright,
            "affine": affine,
        }
        self.result: Found | None = None

    def detect(self, image: Any) -> None:
        """Detect the keypoints of an image."""
        frames = pipeline.detect(image, **self.options)
        self.result = Found(frames, np.zeros((0, 0), np.float32))

    def extract(self, image: Any) -> None:
        """Describe the keypoints of the last ``detect``."""
        if self.result is None:
            raise InputError("extract describes what detect found: call detect first")
        frames = self.result.frames
        self.result = Found(frames, pipeline.describe(image, frames, self.descriptor))

    def detect_and_extract(self, image: Any) -> None:
        """Detect and describe keypoints, computed from one scale space."""
        features = pipeline.extract(image, self.descriptor, **self.options)
        self.result = Found(features.frames, features.descriptors)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the last result."""
        if name == "descriptors" or name in _PROPERTIES:
            if self.__dict__.get("result") is None:
                raise AttributeError(f"{name}: nothing has been detected yet")
            return getattr(self.result, name)
        raise AttributeError(name)
