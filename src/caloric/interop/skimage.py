"""The shape of ``skimage.feature.SIFT``: detect, extract, detect_and_extract; (row, column)."""

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
    """What scikit-image keeps on the extractor, as a value."""

    frames: Frames
    descriptors: NDArray[Any]

    @property
    def keypoints(self) -> NDArray[np.float64]:
        """(n, 2) as (row, column). Not rounded, where scikit-image's are: ransac is glad of it."""
        return self.frames.xy[:, ::-1]

    @property
    def positions(self) -> NDArray[np.float64]:
        """The same."""
        return self.keypoints

    @property
    def sigmas(self) -> NDArray[np.float64]:
        """σ in pixels."""
        return self.frames.sigma

    @property
    def octaves(self) -> NDArray[np.int64]:
        """Which octave each is from; 0 is the image at twice its size."""
        return octave_and_layer(self.sigmas)[0]

    @property
    def scales(self) -> NDArray[np.int64]:
        """Which level of its octave, 1 to 3."""
        return octave_and_layer(self.sigmas)[1]

    @property
    def orientations(self) -> NDArray[np.float64]:
        """Radians in [0, 2π), from the axis of rows towards that of columns."""
        return (np.pi / 2 - self.frames.angle) % (2 * np.pi)

    @property
    def responses(self) -> NDArray[np.float32]:
        """The strength of each keypoint."""
        return self.frames.scores


_SHOWN = {name for name, value in vars(Found).items() if isinstance(value, property)}


class SIFT:
    """Use it as scikit-image's: call, then read ``keypoints``, ``descriptors`` and the rest.

    The attributes show the last call's result, a value of its own; no option changes by itself, and
    no image is held. ``c_dog`` and ``c_edge`` are scikit-image's.
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
        """``descriptor`` is one of ``caloric.descriptors()``."""
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
        """Find keypoints."""
        frames = pipeline.detect(image, **self.options)
        self.result = Found(frames, np.zeros((0, 0), np.float32))

    def extract(self, image: Any) -> None:
        """Describe the keypoints found before."""
        if self.result is None:
            raise InputError("extract describes what detect found: call detect first")
        frames = self.result.frames
        self.result = Found(frames, pipeline.describe(image, frames, self.descriptor))

    def detect_and_extract(self, image: Any) -> None:
        """Both at once."""
        found = pipeline.extract(image, self.descriptor, **self.options)
        self.result = Found(found.frames, found.descriptors)

    def __getattr__(self, name: str) -> Any:
        """What :class:`Found` has, of the last result."""
        if name == "descriptors" or name in _SHOWN:
            if self.__dict__.get("result") is None:
                raise AttributeError(f"{name}: nothing has been detected yet")
            return getattr(self.result, name)
        raise AttributeError(name)
