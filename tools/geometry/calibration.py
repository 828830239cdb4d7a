"""The coefficients of the confidence, fitted to rendered and unrelated pairs."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from scipy.optimize import minimize

from caloric.matching import geometry, models, selection
from caloric.matching.confidence import CORRECT_ERROR, Evidence
from caloric.types import FloatArray, GeometryModel, Report
from tools.geometry.estimators import epipolar_error
from tools.geometry.scenes import SIZE, Case, Matched

MODELS: tuple[GeometryModel, ...] = ("homography", "fundamental", "essential")
BINS = 10
_DECAY = 1e-3
_MIN_SLOPE = -0.15  # of the logarithm of false alarms
_MIN_POINTS = 60  # true correspondences; pairs with a smaller overlap are left out
_AS_GOOD = 0.95  # share of the correct inliers of the better model


def _error(case: Case, model: GeometryModel, matrix: FloatArray, swapped: bool) -> float:
    """Return the mean error over the overlap, in pixels; infinite for unrelated images."""
    p, q = (case.points_b, case.points_a) if swapped else (case.points_a, case.points_b)
    if len(p) == 0:
        return np.inf
    if model == "homography":
        error = float(np.linalg.norm(models.mapped(p, matrix) - q, axis=1).mean())
        return error if np.isfinite(error) else np.inf
    if model == "essential":
        a, b = (np.linalg.inv(k) for k in case.calibrations[:: -1 if swapped else 1])
        matrix = b.T @ matrix @ a
    return epipolar_error(matrix, p, q)


def _estimate(
    case: Case, matched: Matched, model: GeometryModel, with_frames: bool, swapped: bool
) -> tuple[geometry.Geometry, Evidence] | None:
    """Return a geometry and its evidence, or None if there is none."""
    a, b = (matched.b, matched.a) if swapped else (matched.a, matched.b)
    calibrations = case.calibrations[::-1] if swapped else case.calibrations
    result, evidence = geometry.estimate_with_evidence(
        a[:, :, 2], b[:, :, 2], model=model, intrinsics=calibrations, size=SIZE, size_a=SIZE,
        covariances=matched.covariances if with_frames else None,
        frames=(a, b) if with_frames else None,
    )  # fmt: skip
    return None if evidence is None else (result, evidence)


def evidence(cases: Iterable[Case]) -> list[Report]:
    """Return one row per geometry: its evidence, and whether it is correct."""
    rows: list[Report] = []
    for case in cases:
        if case.kind != "unrelated" and len(case.points_a) < _MIN_POINTS:
            continue
        for level, matched in case.levels.items():
            for model in MODELS:
                for with_frames in (True, False):
                    for swapped in (False, True):
                        estimate = _estimate(case, matched, model, with_frames, swapped)
                        if estimate is None or estimate[1].power == np.inf:
                            continue
                        matrix = estimate[0].matrix
                        assert matrix is not None
                        error = _error(case, model, matrix, swapped)
                        rows.append({
                            "kind": case.kind, "scene": case.scene, "level": level, "model": model,
                            "frames": with_frames, "swapped": swapped,
                            "terms": list(estimate[1].terms), "factor": estimate[1].factor,
                            "error": error,
                            "correct": error < CORRECT_ERROR,
                        })  # fmt: skip
    return rows


def choices(cases: Iterable[Case]) -> list[Report]:
    """Return one row per related pair: the model that was chosen, and the correct inliers."""
    rows: list[Report] = []
    for case in cases:
        matched = case.levels[1]
        if case.kind == "unrelated" or len(matched.a) < 8 or len(case.points_a) < _MIN_POINTS:
            continue
        p, q = matched.a[:, :, 2], matched.b[:, :, 2]
        if case.cameras is None:
            correct = np.linalg.norm(models.mapped(p, case.homography) - q, axis=1) <= 3
        else:
            correct = models.residual(p, q, "fundamental", case.fundamental) <= 2
        both = [
            geometry.estimate(
                p, q, model=model, size=SIZE, size_a=SIZE, covariances=matched.covariances,
                frames=(matched.a, matched.b),
            )
            for model in MODELS[:2]
        ]  # fmt: skip
        chosen = selection.choose(both[0], both[1], q, SIZE)
        counts = [int((g.inliers & correct).sum()) for g in (chosen, *both)]
        rows.append({
            "kind": case.kind, "scene": case.scene, "model": chosen.model, "correct": counts,
            "as good": counts[0] >= _AS_GOOD * max(counts[1:]),
        })  # fmt: skip
    return rows


def _weights(rows: list[Report]) -> FloatArray:
    """Return weights (n,) with which each kind and level of views counts the same."""
    keys = [(row["kind"], row["level"]) for row in rows]
    counts = Counter(keys)
    return np.array([len(rows) / len(counts) / counts[key] for key in keys])


def fit(rows: list[Report]) -> FloatArray:
    """Return the coefficients of a logistic regression of correctness on the evidence."""
    terms, weights = np.array([row["terms"] for row in rows]), _weights(rows)
    correct = np.array([float(row["correct"]) for row in rows])

    def loss(coefficients: FloatArray) -> float:
        z = terms @ coefficients
        likelihood = (weights * (np.logaddexp(0, z) - correct * z)).sum()
        return float(likelihood + _DECAY * (coefficients[1:] ** 2).sum())

    # A larger number of false alarms or a larger error never raises the confidence. With further
    # evidence the number separates unrelated images so well that its coefficient is limited.
    free = (None, None)
    slope = (_MIN_SLOPE if terms.shape[1] > 2 else None, 0.0)
    signs = [free, slope, (None, 0.0), (None, 0.0), (0.0, None)]
    bounds = signs[: terms.shape[1]]
    return np.asarray(minimize(loss, np.zeros(terms.shape[1]), bounds=bounds).x)


def reliability(confidence: FloatArray, rows: list[Report]) -> Report:
    """Return the calibration error and the reliability diagram of confidences (n,)."""
    correct, weights = np.array([float(row["correct"]) for row in rows]), _weights(rows)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    total, diagram = 0.0, []
    for number in range(BINS):
        inside = bins == number
        if not inside.any():
            continue
        mean, share = (
            np.average(v[inside], weights=weights[inside]) for v in (confidence, correct)
        )
        total += float(weights[inside].sum() / weights.sum() * abs(mean - share))
        diagram.append([round(float(mean), 3), round(float(share), 3), int(inside.sum())])
    unrelated = np.array([row["kind"] == "unrelated" for row in rows])
    high = confidence > 0.9
    return {
        "error": round(total, 4), "diagram": diagram, "geometries": len(rows),
        "confidence above .9": int(high.sum()),
        "of these incorrect": int((high & (correct == 0)).sum()),
        "of these above 20 px": int((high & np.array([r["error"] > 20 for r in rows])).sum()),
        "unrelated": int(unrelated.sum()),
        "unrelated above .5": int((unrelated & (confidence > 0.5)).sum()),
    }  # fmt: skip


def calibrate(rows: list[Report]) -> Report:
    """Return the coefficients, and their reliability on scenes that they were not fitted to."""
    names = sorted({row["scene"] for row in rows})
    halves = {name: number % 2 for number, name in enumerate(names)}
    report: Report = {"scenes": names}
    for group, members in (("planar", MODELS[:1]), ("epipolar", MODELS[1:])):
        chosen = [row for row in rows if row["model"] in members]
        confidence = np.zeros(len(chosen))
        half = np.array([halves[row["scene"]] for row in chosen])
        for test in range(2):
            coefficients = fit([row for row, h in zip(chosen, half, strict=True) if h != test])
            terms, factors = (
                np.array([row[key] for row in chosen])[half == test] for key in ("terms", "factor")
            )
            confidence[half == test] = factors / (1 + np.exp(-terms @ coefficients))
        report[group] = {"coefficients": [round(float(c), 3) for c in fit(chosen)]}
        for model in members:
            for frames in (True, False):
                keep = [r["model"] == model and r["frames"] == frames for r in chosen]
                subset = [row for row, k in zip(chosen, keep, strict=True) if k]
                name = f"{model}, {'frames' if frames else 'points'}"
                report[group][name] = reliability(confidence[keep], subset)
    return report
