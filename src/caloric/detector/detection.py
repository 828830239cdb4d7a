"""Detection options, frames from extrema, and the selection of the strongest over all tiles."""

import numbers
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.detector import affine_shape, extrema, orientation
from caloric.detector.extrema import Extrema
from caloric.errors import InputError, unknown
from caloric.image.scalespace import Ladder
from caloric.types import Detector, FloatArray

# Features per image unless another number is asked for, in Python and in all commands. More of them
# give better geometries: on photographs with synthetic changes the homographies within a pixel are
# .49, .58 and .61 of all with 2,000, 4,000 and 8,000.
FEATURES = 8000
VERSION = 2  # raised when other frames are found, so that stored features are made again


@dataclass(frozen=True)
class Options:
    """The options of detection, checked."""

    max_features: int | None = None
    affine: bool = False
    upright: bool = False
    detector: Detector = "dog"
    contrast: float | None = None
    edge: float = extrema.EDGE

    def __post_init__(self) -> None:
        """Check every option."""
        limit = self.max_features
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
                raise InputError(f"max_features must be a whole number or None, got {limit!r}")
            if limit < 0:
                raise InputError(f"max_features must be 0 or more, got {limit}")
        if self.detector not in ("dog", "opencv"):
            raise unknown("detector", self.detector, ("dog", "opencv"))
        contrast = extrema.CONTRAST if self.contrast is None else self.contrast
        if not (isinstance(contrast, numbers.Real) and 0 <= contrast < np.inf):
            raise InputError(f"contrast must be a finite number, 0 or more, got {self.contrast!r}")
        if not (isinstance(self.edge, numbers.Real) and 1 <= self.edge < np.inf):
            raise InputError(f"edge must be a finite number, 1 or more, got {self.edge!r}")

    @property
    def lowest(self) -> float:
        """The contrast to detect at.

        A number of features is reached by faint extrema where there are not enough others; where no
        number is asked for they are not let in.
        """
        if self.contrast is not None:
            return float(self.contrast)
        return extrema.CONTRAST if self.max_features is None else extrema.FAINTEST

    @property
    def farthest(self) -> float:
        """The largest distance at which pixels around a frame are read: see Sampling.farthest."""
        shape = affine_shape.SAMPLING.farthest() if self.affine else 0.0
        return self.stretch * max(orientation.SAMPLING.farthest(), shape)

    @property
    def stretch(self) -> float:
        """The largest ratio of a frame's longer axis to its σ."""
        return affine_shape.LONGEST**0.5 if self.affine else 1.0


def by_opencv(grey: NDArray[np.float32], options: Options) -> Extrema:
    """Return the extrema of OpenCV's SIFT detector, without duplicates, strongest first."""
    if min(grey.shape) < 2:
        return extrema.joined([])
    sift = cv2.SIFT_create(  # type: ignore[attr-defined]
        contrastThreshold=extrema.CONTRAST if options.contrast is None else options.contrast,
        edgeThreshold=options.edge,
        enable_precise_upscale=True,
    )
    keypoints = sift.detect(np.rint(255 * np.clip(grey, 0, 1)).astype(np.uint8), None)
    rows = np.array([(*k.pt, k.size / 2, k.response) for k in keypoints]).reshape(-1, 4)
    rows = np.unique(rows, axis=0)
    result = Extrema(rows[:, :2], rows[:, 2], rows[:, 3])
    return result[result.order()]


class Strongest:
    """A running selection of the extrema that can be among the ``limit`` strongest of an image."""

    def __init__(self, limit: int | None) -> None:
        """Keep ``limit`` extrema, or all if it is None."""
        self.limit = limit
        self.responses = np.zeros(0)

    def select(self, peaks: Extrema) -> Extrema:
        """Return the extrema of a tile that can be in the selection, strongest first."""
        if self.limit is not None and 0 < self.limit < len(peaks):
            # Sorting thousands of faint ones would take as long as finding them.
            first = len(peaks) - self.limit
            weakest = np.partition(peaks.response, first)[first]
            peaks = peaks[peaks.response >= weakest]
        peaks = peaks[peaks.order()]
        if self.limit is None:
            return peaks
        peaks = peaks[: self.limit]
        if len(self.responses) == self.limit and self.limit:
            peaks = peaks[peaks.response >= self.responses[-1]]
        self.responses = np.sort(np.append(self.responses, peaks.response))[::-1][: self.limit]
        return peaks


def frames(ladder: Ladder, peaks: Extrema, options: Options) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return frames (m, 2, 3), one per dominant direction, and the index (m,) of their extremum."""
    rows = np.arange(len(peaks))
    maps = np.zeros((len(peaks), 2, 3))
    maps[:, 0, 0] = maps[:, 1, 1] = peaks.sigma
    maps[:, :, 2] = peaks.xy
    if len(maps) and options.affine:
        maps = affine_shape.adapt(ladder, maps)[0]
    if options.upright or len(maps) == 0:
        return maps, rows
    rows, angles = orientation.dominant(orientation.histograms(ladder, maps))
    return orientation.turned(maps[rows], angles), rows
