"""Metrics of matches and homographies against the ground truth, with intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.bench.correspondence import project
from caloric.types import FloatArray

RESAMPLES = 10_000


def average_precision(distance: FloatArray, is_correct: NDArray[np.bool_], possible: int) -> float:
    """Return the average precision of matches ranked by distance.

    ``possible`` is the number of correct matches that exist.
    """
    hits = is_correct[np.argsort(distance, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].sum() / possible) if possible else 0.0


def correct_matches(nearest: NDArray[np.intp], truth: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return whether (i, nearest[i]) is among the true pairs (m, 2), for each i."""
    width = int(max(nearest.max(initial=0), truth[:, 1].max(initial=0))) + 1
    return np.isin(np.arange(len(nearest)) * width + nearest, truth[:, 0] * width + truth[:, 1])


def matching_accuracy(
    a: FloatArray, b: FloatArray, homography: FloatArray, thresholds: tuple[float, ...]
) -> list[float]:
    """Return the share of matches a[i], b[i] whose error is below each threshold in pixels."""
    if len(a) == 0:
        return [0.0] * len(thresholds)
    error = np.linalg.norm(project(homography, a) - b, axis=1)
    return [float((error < t).mean()) for t in thresholds]


def corner_error(estimate: FloatArray | None, truth: FloatArray, shape: tuple[int, ...]) -> float:
    """Return the mean corner error in pixels for an image (h, w); infinite for None."""
    if estimate is None:
        return float("inf")
    h, w = shape[:2]
    corners = np.array([[0.0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]])
    error = np.linalg.norm(project(estimate, corners) - project(truth, corners), axis=1).mean()
    return float(error) if np.isfinite(error) else float("inf")


@dataclass(frozen=True)
class Interval:
    """A mean over pairs and its 95% bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the text ``mean [low, high]``."""
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: FloatArray, scenes: list[str] | None = None, seed: int = 0) -> Interval:
    """Return the mean of values with its 95% bootstrap interval.

    With ``scenes`` (one name per value), whole scenes are resampled, because pairs of one scene
    share an image and are not independent. If there is only one scene, its pairs are resampled.
    """
    rng = np.random.default_rng(seed)
    names = sorted(set(scenes or []))
    if len(names) > 1:
        index = np.array([names.index(scene) for scene in scenes or []])
        sums = np.bincount(index, values)
        counts = np.bincount(index)
        draws = rng.integers(len(names), size=(RESAMPLES, len(names)))
        means = sums[draws].sum(1) / counts[draws].sum(1)
    else:
        draws = rng.integers(len(values), size=(RESAMPLES, len(values)))
        means = values[draws].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))
