"""Estimators on the same matches: Caloric's, OpenCV's MAGSAC++ and PoseLib (if installed).

The error of a homography is the mean distance of mapped corners from the homography that fits the
true correspondences best; that of a fundamental matrix the mean distance of true correspondences
from their epipolar lines, in pixels; that of an essential matrix the larger of the errors of the
rotation and of the direction of the translation, in degrees.
"""

import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import cv2
import numpy as np

from caloric.bench.metrics import corner_error
from caloric.bench.pairs import angular_error, auc
from caloric.interop import poselib as library
from caloric.matching import geometry
from caloric.matching.estimation import Correspondences
from caloric.matching.models import homogeneous
from caloric.types import FloatArray, GeometryModel, Report
from tools.geometry.scenes import NEARLY_PLANAR, SIZE, Case, Matched

THRESHOLDS = (0.5, 1.0, 2.0, 3.0, 5.0)  # pixels
LIMITS: dict[GeometryModel, tuple[float, ...]] = {
    "homography": (1.0, 3.0, 5.0), "fundamental": (1.0, 3.0, 5.0), "essential": (1.0, 5.0, 10.0)
}  # fmt: skip
Estimator = Callable[[Matched, GeometryModel, tuple[FloatArray, FloatArray]], FloatArray | None]


def caloric(
    matched: Matched, model: GeometryModel, calibrations: tuple[FloatArray, FloatArray]
) -> FloatArray | None:
    """Return the model estimated by Caloric from refined frames, at its default threshold."""
    result = geometry.estimate(
        matched.a[:, :, 2], matched.b[:, :, 2], model=model, intrinsics=calibrations, size=SIZE,
        size_a=SIZE, covariances=matched.covariances, frames=(matched.a, matched.b),
    )  # fmt: skip
    return result.matrix


def caloric_points(
    matched: Matched, model: GeometryModel, calibrations: tuple[FloatArray, FloatArray]
) -> FloatArray | None:
    """Return the model estimated by Caloric from points alone, at its default threshold."""
    p, q = matched.a[:, :, 2], matched.b[:, :, 2]
    return geometry.estimate(p, q, model=model, intrinsics=calibrations).matrix


def magsac(threshold: float) -> Estimator:
    """Return OpenCV's MAGSAC++."""

    def estimate(
        matched: Matched, model: GeometryModel, calibrations: tuple[FloatArray, FloatArray]
    ) -> FloatArray | None:
        p, q = matched.a[:, :, 2], matched.b[:, :, 2]
        method = cv2.USAC_MAGSAC
        try:
            if model == "homography":
                matrix = cv2.findHomography(p, q, method, threshold, None, 10_000, 0.9999)[0]
            elif model == "fundamental":
                matrix = cv2.findFundamentalMat(p, q, method, threshold, 0.9999, 10_000)[0]
            else:
                unit = [
                    cv2.undistortPoints(v[:, None], k, None)[:, 0]
                    for v, k in zip((p, q), calibrations, strict=True)
                ]
                focal = float(np.mean([k[[0, 1], [0, 1]] for k in calibrations]))
                matrix = cv2.findEssentialMat(
                    unit[0], unit[1], np.eye(3), method, 0.9999, threshold / focal, 10_000
                )[0]  # fmt: skip
        except cv2.error:
            return None
        return None if matrix is None else np.asarray(matrix[:3], np.float64)

    return estimate


def poselib(threshold: float) -> Estimator:
    """Return PoseLib's LO-RANSAC."""

    def estimate(
        matched: Matched, model: GeometryModel, calibrations: tuple[FloatArray, FloatArray]
    ) -> FloatArray | None:
        cameras = list(calibrations) if model == "essential" else None
        matches = Correspondences(matched.a[:, :, 2], matched.b[:, :, 2], model, SIZE, cameras)
        return library.estimate(matches, threshold, 0)

    return estimate


def estimators() -> dict[str, Estimator]:
    """Return the estimators by name."""
    result: dict[str, Estimator] = {"Caloric": caloric, "Caloric, points": caloric_points}
    result |= {f"MAGSAC++ {t:g} px": magsac(t) for t in THRESHOLDS}
    if find_spec("poselib") is not None:
        result |= {f"PoseLib {t:g} px": poselib(t) for t in THRESHOLDS}
    return result


def epipolar_error(matrix: FloatArray, p: FloatArray, q: FloatArray) -> float:
    """Return the mean distance of points q from the epipolar lines of p, in pixels."""
    lines = homogeneous(p) @ matrix.T
    products = np.abs((homogeneous(q) * lines).sum(1))
    return float((products / np.maximum(np.linalg.norm(lines[:, :2], axis=1), 1e-12)).mean())


def error(case: Case, model: GeometryModel, matrix: FloatArray | None, level: int = 1) -> float:
    """Return the error of an estimate: see the module."""
    if matrix is None or not np.isfinite(matrix).all():
        return np.inf
    if model == "homography":
        return corner_error(matrix, case.homography, SIZE)
    if model == "fundamental":
        return epipolar_error(matrix, case.points_a, case.points_b)
    assert case.cameras is not None
    matched = case.levels[level]
    points = matched.a[:, :, 2], matched.b[:, :, 2]
    return angular_error(matrix, case.cameras, points, np.ones(len(matched.a), bool))


def compare(cases: Iterable[Case]) -> list[Report]:
    """Return one row per case, model and estimator: the error and the time in seconds."""
    rows: list[Report] = []
    for case in cases:
        matched = case.levels[1]
        if case.kind == "unrelated" or len(matched.a) < 8 or len(case.points_a) < 60:
            continue
        kinds: tuple[GeometryModel, ...] = ("fundamental", "essential")
        if case.kind in NEARLY_PLANAR or case.kind == "rotation":
            kinds = ("homography",)
        for model in kinds:
            for name, estimator in estimators().items():
                start = time.perf_counter()
                matrix = estimator(matched, model, case.calibrations)
                seconds = time.perf_counter() - start
                rows.append({
                    "kind": case.kind, "scene": case.scene, "model": model, "estimator": name,
                    "matches": len(matched.a), "error": error(case, model, matrix),
                    "seconds": seconds,
                })  # fmt: skip
    return rows


def summary(rows: list[Report]) -> Report:
    """Return AUCs and median times per model and estimator."""
    result: dict[str, Any] = {}
    for model, limits in LIMITS.items():
        chosen = [row for row in rows if row["model"] == model]
        result[model] = {}
        for name in dict.fromkeys(row["estimator"] for row in chosen):
            of_name = [row for row in chosen if row["estimator"] == name]
            errors = np.array([row["error"] for row in of_name])
            result[model][name] = {
                "AUC": [round(auc(errors, limit), 3) for limit in limits],
                "milliseconds": round(1e3 * float(np.median([r["seconds"] for r in of_name])), 2),
                "pairs": len(of_name),
            }
    return result
