"""What each part of :func:`caloric.match_images` adds: agreement and propagation, on and off."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from caloric.bench.metrics import corner_error
from caloric.bench.pair_data import Pair, distances
from caloric.bench.pairs import ANGLES, CORNERS, CORRECT, angular_error, auc, one_per_position
from caloric.image_pair import match_images
from caloric.types import Report

PARTS: dict[str, dict[str, Any]] = {
    "ratio test": {"agreement": False, "propagate": False},
    "agreement": {"agreement": True, "propagate": False},
    "propagation": {"agreement": False, "propagate": True},
    "both": {"agreement": True, "propagate": True},
}
# For scenes with known cameras: without their calibration.
_UNCALIBRATED: dict[str, dict[str, Any]] = {
    f"{name}, fundamental matrix": PARTS[name] | {"model": "fundamental"}
    for name in ("ratio test", "both")
}
_PRECISE = 0.5  # pixels: the largest error of a precise inlier
_ERROR = "error of the geometry"


def measure(pair: Pair, switches: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the metrics of one pair with some parts on and others off.

    No views are simulated. A homography is estimated if the truth is one, else an essential matrix,
    or a fundamental matrix if ``switches`` say so. Correct inliers are counted once per position.
    """
    a, b = pair.first(), pair.second()
    if isinstance(pair.truth, tuple):
        calibrations = tuple(camera.calibration for camera in pair.truth)
        model: dict[str, Any] = {"model": "essential", "intrinsics": calibrations}
        if switches.get("model") == "fundamental":
            model = {}
    else:
        model = {"model": "homography"}
    started = time.process_time()
    result = match_images(a, b, max_features=count, views=None, **(model | switches))
    seconds = time.process_time() - started
    p, q = result.points_a, result.points_b
    errors = distances(pair, p, q)
    matrix = result.geometry.matrix
    if matrix is None:
        error = float("inf")
    elif isinstance(pair.truth, tuple):
        inliers = result.geometry.inliers
        if result.geometry.model == "fundamental":
            matrix = calibrations[1].T @ matrix @ calibrations[0]
        error = angular_error(matrix, pair.truth, result.all_points(), inliers)
    else:
        error = corner_error(matrix, np.asarray(pair.truth), a.shape)
    return {
        "correct inliers": len(one_per_position(p[errors <= CORRECT])),
        f"inliers within {_PRECISE} px": len(one_per_position(p[errors <= _PRECISE])),
        "share of inliers that is correct": float((errors <= CORRECT).mean()) if len(p) else 0.0,
        _ERROR: error,
        "CPU seconds": seconds,
    }


def contenders(pairs: list[Pair]) -> dict[str, dict[str, Any]]:
    """Return the options that are compared on pairs."""
    return PARTS | _UNCALIBRATED if isinstance(pairs[0].truth, tuple) else PARTS


def run(
    pairs: list[Pair], count: int, progress: Callable[[str], None]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of each choice of parts with its metrics for each pair."""
    for name, switches in contenders(pairs).items():
        rows = []
        for pair in pairs:
            rows.append(measure(pair, switches, count))
            progress(f"{name}: {pair.name}")
        yield name, rows


def summarize(pairs: list[Pair], results: dict[str, list[dict[str, Any]]]) -> Report:
    """Return the means over all pairs, and the AUC of the geometries."""
    limits, unit = (ANGLES, "degrees") if isinstance(pairs[0].truth, tuple) else (CORNERS, "px")
    report: Report = {"pairs": len(pairs), "contenders": {}}
    for name, rows in results.items():
        values = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        errors = values.pop(_ERROR)
        means = {key: {"mean": float(v.mean())} for key, v in values.items()}
        curves = {f"AUC {x:g} {unit}": {"mean": auc(errors, x)} for x in limits}
        report["contenders"][name] = means | curves
    return report
