"""Frames of an image: extrema, their shapes and directions; the strongest of all its tiles."""

import numbers
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.detector import affine_shape, extrema, orientation
from caloric.detector.extrema import Extrema
from caloric.errors import InputError, unknown
from caloric.image.scalespace import Ladder
from caloric.theory.gaussians import FloatArray

Detector = Literal["dog", "opencv"]


@dataclass(frozen=True)
class Options:
    """How frames are found, checked."""

    max_features: int | None = None
    affine: bool = False
    upright: bool = False
    detector: Detector = "dog"
    contrast: float = extrema.CONTRAST
    edge: float = extrema.EDGE

    def __post_init__(self) -> None:
        """Say which is wrong, and how."""
        most = self.max_features
        if most is not None:
            if isinstance(most, bool) or not isinstance(most, int | np.integer):
                raise InputError(f"max_features must be a whole number or None, got {most!r}")
            if most < 0:
                raise InputError(f"max_features must be 0 or more, got {most}")
        if self.detector not in ("dog", "opencv"):
            raise unknown("detector", self.detector, ("dog", "opencv"))
        if not (isinstance(self.contrast, numbers.Real) and 0 <= self.contrast < np.inf):
            raise InputError(f"contrast must be a number from 0, got {self.contrast!r}")
        if not (isinstance(self.edge, numbers.Real) and 1 <= self.edge < np.inf):
            raise InputError(f"edge must be a number from 1, got {self.edge!r}")

    @property
    def farthest(self) -> float:
        """How far from a frame it is looked, in the smoothing there: see Sampling.farthest."""
        shape = affine_shape.SAMPLING.farthest() if self.affine else 0.0
        return self.stretch * max(orientation.SAMPLING.farthest(), shape)

    @property
    def stretch(self) -> float:
        """How much longer than its σ a frame can be."""
        return affine_shape.LONGEST**0.5 if self.affine else 1.0


def by_opencv(grey: NDArray[np.float32], options: Options) -> Extrema:
    """OpenCV's own SIFT detector, one extremum a place, strongest first."""
    if min(grey.shape) < 2:
        return extrema.joined([])
    sift = cv2.SIFT_create(  # type: ignore[attr-defined]
        contrastThreshold=options.contrast, edgeThreshold=options.edge, enable_precise_upscale=True
    )
    found = sift.detect(np.rint(255 * np.clip(grey, 0, 1)).astype(np.uint8), None)
    rows = np.array([(*k.pt, k.size / 2, k.response) for k in found]).reshape(-1, 4)
    rows = np.unique(rows, axis=0)
    result = Extrema(rows[:, :2], rows[:, 2], rows[:, 3])
    return result[result.order()]


class Strongest:
    """Which extrema of a tile can still be among the ``most`` strongest of the image."""

    def __init__(self, most: int | None) -> None:
        """None keeps all."""
        self.most = most
        self.kept = np.zeros(0)

    def of(self, found: Extrema) -> Extrema:
        """The first ones of a tile's, which come strongest first."""
        if self.most is None:
            return found
        found = found[: self.most]
        if len(self.kept) == self.most and self.most:
            found = found[found.response >= self.kept[-1]]
        self.kept = np.sort(np.append(self.kept, found.response))[::-1][: self.most]
        return found


def frames(ladder: Ladder, found: Extrema, options: Options) -> tuple[FloatArray, NDArray[np.intp]]:
    """Frames (m, 2, 3) at extrema, one for each dominant direction, and which extremum's it is."""
    rows = np.arange(len(found))
    maps = np.zeros((len(found), 2, 3))
    maps[:, 0, 0] = maps[:, 1, 1] = found.sigma
    maps[:, :, 2] = found.xy
    if len(maps) and options.affine:
        maps = affine_shape.adapt(ladder, maps)[0]
    if options.upright or len(maps) == 0:
        return maps, rows
    rows, angles = orientation.dominant(orientation.histograms(ladder, maps))
    return orientation.turned(maps[rows], angles), rows
