"""``python -m tools reader-pairs``: exported descriptors in the matchers of other libraries.

Each matcher has the default settings of its library. A match counts as an inlier if it
agrees with a fundamental matrix (OpenCV's MAGSAC).
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.bench.report import versions
from caloric.types import Log, Report
from tools import readers
from tools.pages.markdown import table
from tools.readers import Image, Rule, hloc

THRESHOLD = 1.5  # pixels
Vectors = NDArray[np.float32]


def ratio_test(
    search: Callable[[Vectors, Vectors], tuple[NDArray[np.int64], Vectors]],
    ratio: float,
    *,
    symmetric: bool = False,
) -> Rule:
    """Return a matcher with Lowe's ratio test; ``symmetric`` applies it in both directions.

    ``search`` returns the indices (n, 2) and the distances (n, 2) of the two nearest neighbors.
    """

    def directed(a: Vectors, b: Vectors) -> NDArray[np.int64]:
        indices, distances = search(a, b)
        return np.where(distances[:, 0] < ratio * distances[:, 1], indices[:, 0], -1)

    def match(a: Vectors, b: Vectors) -> NDArray[np.int64]:
        forth = directed(a, b)
        keep = forth >= 0
        if symmetric:
            keep &= directed(b, a)[forth] == np.arange(len(a))
        rows = np.flatnonzero(keep)
        return np.stack([rows, forth[rows]], 1)

    return match


def _opencv(
    matcher: Callable[[], cv2.DescriptorMatcher],
) -> Callable[..., tuple[NDArray[np.int64], Vectors]]:
    """Return the search of a matcher of OpenCV."""

    def search(a: Vectors, b: Vectors) -> tuple[NDArray[np.int64], Vectors]:
        neighbors = matcher().knnMatch(a, b, k=2)
        indices = np.array([[m.trainIdx for m in row] for row in neighbors], np.int64)
        return indices, np.array([[m.distance for m in row] for row in neighbors], np.float32)

    return search


_brute_force = _opencv(lambda: cv2.BFMatcher(cv2.NORM_L2))
# Randomized k-d trees, as in OpenCV's tutorials.
_trees = _opencv(lambda: cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50}))
# A tree of k-means clusters, as in OpenSfM's default configuration.
_clusters = _opencv(
    lambda: cv2.FlannBasedMatcher(
        {"algorithm": 2, "branching": 8, "iterations": 10}, {"checks": 20}
    )
)


def _skimage(max_ratio: float) -> Rule:
    """Return scikit-image's ``match_descriptors``; its default ratio is 1."""

    def match(a: Vectors, b: Vectors) -> NDArray[np.int64]:
        from skimage.feature import match_descriptors

        matches = match_descriptors(a, b, max_ratio=max_ratio)  # type: ignore[no-untyped-call]
        return np.asarray(matches)

    return match


def _kornia(ratio: float) -> Rule:
    """Return kornia's ``match_smnn``; its default ratio is 0.95."""

    def match(a: Vectors, b: Vectors) -> NDArray[np.int64]:
        import torch
        from kornia.feature import match_smnn

        return np.asarray(match_smnn(torch.from_numpy(a), torch.from_numpy(b), ratio)[1])

    return match


RULES: dict[str, Rule] = {
    "OpenCV BFMatcher, 0.7": ratio_test(_brute_force, 0.7),
    "OpenCV BFMatcher, 0.75": ratio_test(_brute_force, 0.75),
    "OpenCV FLANN, 0.7": ratio_test(_trees, 0.7),
    "OpenCV FLANN, 0.75": ratio_test(_trees, 0.75),
    "scikit-image, default": _skimage(1.0),
    "scikit-image, max_ratio 0.8": _skimage(0.8),
    "kornia match_smnn, 0.95 (default)": _kornia(0.95),
    "kornia match_smnn, 0.8": _kornia(0.8),
    "hloc NN-ratio": hloc(ratio=0.8),
    "hloc NN-mutual": hloc(),
    "hloc NN-superpoint": hloc(distance=0.7),
    "OpenSfM (FLANN, 0.8, symmetric)": ratio_test(_clusters, 0.8, symmetric=True),
    "openMVG (0.8, one direction)": ratio_test(_brute_force, 0.8),
}


def inliers(a: Image, b: Image, indices: NDArray[np.int64]) -> int:
    """Return the number of matches (k, 2) that agree with a fundamental matrix."""
    if len(indices) < 8:
        return 0
    first, second = a.features.frames.xy[indices[:, 0]], b.features.frames.xy[indices[:, 1]]
    _, mask = cv2.findFundamentalMat(first, second, cv2.USAC_MAGSAC, THRESHOLD, 0.9999, 10_000)
    return 0 if mask is None else int(np.count_nonzero(mask))


def run(sources: list[Path], count: int, pairs: int, progress: Log) -> Report:
    """Match pairs of consecutive images, spread over each directory, by each rule and method."""
    report: Report = {
        "about": {"versions": versions(), "cores": os.cpu_count(), "max_features": count}
    }
    for source in sources:
        with tempfile.TemporaryDirectory() as name:
            paths = list(readers.resized(source, Path(name), None))
            starts = np.unique(np.linspace(0, len(paths) - 2, pairs).round().astype(int)).tolist()
            results: Report = {rule: {} for rule in RULES}
            for method, extract in readers.METHODS.items():
                images = [extract([paths[i], paths[i + 1]], count) for i in starts]
                for rule, match in RULES.items():
                    matched = [(a, b, match(a.descriptors, b.descriptors)) for a, b in images]
                    correct = sum(inliers(*one) for one in matched)
                    results[rule][method] = [correct, sum(len(m) for _, _, m in matched)]
                progress(f"{source.name}, {len(starts)} pairs: {method}")
            report[f"{source.name}, {len(starts)} pairs"] = results
    return report


def lines(report: Report) -> list[str]:
    """Return a Markdown table: inliers of all matches, for each matcher and directory."""
    sources = [name for name in report if name != "about"]
    methods = list(readers.METHODS)
    rows = []
    for rule in RULES:
        for method in methods:
            cells = [report[source][rule][method] for source in sources]
            rows.append([rule, method, *(f"{a:,} of {b:,}" for a, b in cells)])
    return [table(["matcher", "features", *sources], rows)]
