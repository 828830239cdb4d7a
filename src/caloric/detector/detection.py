"""Selection of the strongest extrema over all tiles, and their frames."""

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.detector import affine_shape, extrema, orientation
from caloric.detector.extrema import Extrema
from caloric.image.scalespace import Ladder
from caloric.types import FloatArray, Pixels


def by_opencv(gray: Pixels, contrast: float | None, edge: float) -> Extrema:
    """Return the extrema of OpenCV's SIFT detector, without duplicates, strongest first."""
    if min(gray.shape) < 2:
        return extrema.joined([])
    sift = cv2.SIFT_create(  # type: ignore[attr-defined]
        contrastThreshold=extrema.CONTRAST if contrast is None else contrast,
        edgeThreshold=edge,
        enable_precise_upscale=True,
    )
    keypoints = sift.detect(np.rint(255 * np.clip(gray, 0, 1)).astype(np.uint8), None)
    rows = np.array([(*k.pt, k.size / 2, k.response) for k in keypoints]).reshape(-1, 4)
    rows = np.unique(rows, axis=0)
    result = Extrema(rows[:, :2], rows[:, 2], rows[:, 3])
    return result[result.order()]


class Strongest:
    """A running selection of extrema that may be among the ``limit`` strongest of an image."""

    def __init__(self, limit: int | None) -> None:
        """Keep ``limit`` extrema, or all if it is None."""
        self.limit = limit
        self.responses = np.zeros(0)

    def select(self, peaks: Extrema) -> Extrema:
        """Return the extrema of a tile that may be selected, strongest first."""
        if self.limit is not None and 0 < self.limit < len(peaks):
            # Sorting all extrema would take as long as detecting them.
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


def frames(
    ladder: Ladder, peaks: Extrema, affine: bool, upright: bool, limit: int | None
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return at most ``limit`` frames (m, 2, 3), and the index (m,) of the extremum of each.

    Every extremum has a frame in its dominant orientation, in the same order. Frames in further
    orientations follow: among the same number of frames, another position gives more correct
    matches than another orientation.
    """
    rows = np.arange(len(peaks))
    maps = np.zeros((len(peaks), 2, 3))
    maps[:, 0, 0] = maps[:, 1, 1] = peaks.sigma
    maps[:, :, 2] = peaks.xy
    if len(maps) and affine:
        maps = affine_shape.adapt(ladder, maps)[0]
    if upright or len(maps) == 0:
        return maps, rows
    rows, angles = orientation.dominant(orientation.histograms(ladder, maps))
    rows, angles = rows[:limit], angles[:limit]
    return orientation.rotated(maps[rows], angles), rows
