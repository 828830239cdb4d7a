"""``caloric bench pairs``: end-to-end two-view geometry, each method with its own detector.

The metrics of a pair are:

* repeatability: the share of frames in the common field of view that have a counterpart within 1, 2
  and 3 pixels. Each contender is represented by its strongest frames, one per position, as many as
  the contender with the fewest frames has
* right: the number of correct mutual nearest neighbors (error up to 3 pixels), without and with the
  contender's usual filter; for cameras the error is the distance to the epipolar line
* error: the median error of the correct matches after the filter, in pixels
* AUC: the area under the curve of recall against the error of the geometry. For homographies this
  is the mean corner error, up to 1, 3 and 5 pixels; for cameras the larger of the rotation and
  translation errors, up to 1, 5 and 10 degrees. All contenders use the same robust estimator, each
  at the threshold that is best for it
* seconds: per image for extraction, per pair for matching
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric import pipeline
from caloric.bench.contenders import Contender, Extracted
from caloric.bench.correspondence import project
from caloric.bench.metrics import bootstrap, corner_error
from caloric.bench.pair_data import Camera, Gray, Pair, distances, relative_pose
from caloric.features import Features
from caloric.matching import geometry
from caloric.matching.neighbors import match_descriptors
from caloric.types import FloatArray, Report

_POSITIONS = "positions"
PIXELS = (1.0, 2.0, 3.0)
CORNERS = (1.0, 3.0, 5.0)  # pixels
ANGLES = (1.0, 5.0, 10.0)  # degrees
THRESHOLDS = (0.5, 1.0, 2.0, 3.0)  # pixels, of the robust estimator
CORRECT = 3.0  # pixels; the maximum error of a correct match
ERRORS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)  # pixels, of the curve
_SHARES = "share of the filtered matches within these pixels"
_LABELS = {  # in the printed table
    "right": "correct matches",
    "right, filtered": "correct matches, filtered",
    "error": "median error",
    "seconds an image": "seconds per image",
    "seconds a pair": "seconds per pair",
}


def one_per_position(xy: FloatArray) -> FloatArray:
    """Return the distinct positions (m, 2), strongest first; orientations are ignored."""
    _, first = np.unique(np.round(xy, 2), axis=0, return_index=True)
    return xy[np.sort(first)]


@dataclass(frozen=True, eq=False)
class Positions:
    """The distinct positions (n, 2) and (m, 2) of frames in two images, and the image shapes."""

    first: FloatArray
    second: FloatArray
    shapes: tuple[Any, Any]


def _add_repeatability(pairs: list[Pair], results: dict[str, list[dict[str, Any]]]) -> None:
    """Replace the positions in the results by repeatabilities, at equal numbers of positions."""
    for number, pair in enumerate(pairs):
        rows = [metrics[number] for metrics in results.values()]
        if _POSITIONS not in rows[0]:
            continue
        positions: list[Positions] = [row.pop(_POSITIONS) for row in rows]
        counts = min(len(p.first) for p in positions), min(len(p.second) for p in positions)
        for row, p in zip(rows, positions, strict=True):
            first, second = p.first[: counts[0]], p.second[: counts[1]]
            shares = repeatability(first, second, np.asarray(pair.truth), p.shapes)
            row["positions compared"] = sum(counts) / 2
            for limit, share in zip(PIXELS, shares, strict=True):
                row[f"repeatability {limit:g} px"] = share


def _inside(xy: FloatArray, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    h, w = shape[:2]
    return np.asarray((xy >= 0).all(1) & (xy[:, 0] <= w - 1) & (xy[:, 1] <= h - 1))


def repeatability(
    a: FloatArray, b: FloatArray, matrix: FloatArray, shapes: tuple[Any, Any]
) -> list[float]:
    """Return the share of frames with a counterpart within 1, 2 and 3 pixels, one to one."""
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    projected, b_in_a = project(matrix, a), project(inverse, b)
    a_in_b, b = projected[_inside(projected, shapes[1])], b[_inside(b_in_a, shapes[0])]
    if min(len(a_in_b), len(b)) == 0:
        return [0.0] * len(PIXELS)
    to_b, nearest_b = cKDTree(b).query(a_in_b)
    _, nearest_a = cKDTree(a_in_b).query(b)
    mutual = nearest_a[nearest_b] == np.arange(len(a_in_b))
    return [float((mutual & (to_b <= t)).sum()) / min(len(a_in_b), len(b)) for t in PIXELS]


def _angle(cosine: float) -> float:
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def pose_error(
    pair: Pair,
    p: FloatArray,
    q: FloatArray,
    threshold: float,
    covariances: FloatArray | None = None,
) -> float:
    """Return the larger of the rotation and translation errors in degrees; infinite on failure."""
    assert isinstance(pair.truth, tuple)
    cameras = [camera.calibration for camera in pair.truth]
    estimate = geometry.estimate(
        p, q, model="essential", threshold=threshold, intrinsics=(cameras[0], cameras[1]),
        covariances=covariances,
    )  # fmt: skip
    if estimate.matrix is None:
        return float("inf")
    return angular_error(estimate.matrix, pair.truth, (p, q), estimate.inliers)


def angular_error(
    matrix: FloatArray,
    cameras: tuple[Camera, Camera],
    points: tuple[FloatArray, FloatArray],
    inliers: NDArray[np.bool_],
) -> float:
    """Return the larger of the rotation and translation errors of an essential matrix, in degrees.

    The inliers (m,) of matched points (m, 2) decide between the poses that the matrix allows.
    """
    unit = [
        cv2.undistortPoints(v[:, None], camera.calibration, None)[:, 0]
        for v, camera in zip(points, cameras, strict=True)
    ]
    mask = inliers.astype(np.uint8)[:, None].copy()
    _, rotation, translation, _ = cv2.recoverPose(matrix, unit[0], unit[1], np.eye(3), mask=mask)
    truth, direction = relative_pose(*cameras)
    rotation_error = _angle((np.trace(rotation @ truth.T) - 1) / 2)
    cosine = float(translation[:, 0] @ direction / np.linalg.norm(direction))
    return max(rotation_error, _angle(cosine))


def auc_shares(errors: FloatArray, limit: float) -> FloatArray:
    """Return the contribution of each error (n,) to the area under the recall curve."""
    return np.asarray(np.clip(1 - errors / limit, 0, None))


def auc(errors: FloatArray, limit: float) -> float:
    """Return the normalized area under the curve of recall against error, up to a limit."""
    return float(auc_shares(errors, limit).mean())


def _matched(
    contender: Contender, a: Extracted, b: Extracted, images: tuple[Gray, Gray], filtered: bool
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return the matched points (m, 2) of both images, and their covariances if refined."""
    if contender.caloric and filtered:
        both = [
            Features(v.frames, v.descriptors, (image.shape[0], image.shape[1]), "caloric", "")
            for v, image in zip((a, b), images, strict=True)
        ]
        matches = pipeline.match(*both)
    else:
        ratio = contender.ratio if filtered else None
        matches = match_descriptors(a.descriptors, b.descriptors, mutual=True, ratio=ratio)
    first, second = (v.frames[rows] for v, rows in zip((a, b), matches.indices.T, strict=True))
    if not (contender.refine and filtered):
        return first.xy, second.xy, None
    refined = pipeline.refine(*images, first, second)
    return first.xy, refined.xy, refined.covariances


def measure(contender: Contender, pair: Pair, a: Extracted, b: Extracted) -> dict[str, Any]:
    """Return all metrics of one contender on one pair."""
    images = (pair.first(), pair.second())
    metrics: dict[str, Any] = {"features": (len(a.frames) + len(b.frames)) / 2}
    metrics["seconds an image"] = (a.seconds + b.seconds) / 2
    planar = not isinstance(pair.truth, tuple)
    if planar:
        # summarize() compares them: it knows the number of frames of every contender.
        metrics[_POSITIONS] = Positions(
            one_per_position(a.frames.xy), one_per_position(b.frames.xy),
            (images[0].shape, images[1].shape),
        )  # fmt: skip
    p, q, _ = _matched(contender, a, b, images, filtered=False)
    metrics["right"] = int((distances(pair, p, q) <= CORRECT).sum())
    started = time.perf_counter()
    p, q, covariances = _matched(contender, a, b, images, filtered=True)
    metrics["seconds a pair"] = time.perf_counter() - started
    errors = distances(pair, p, q)
    metrics["right, filtered"] = int((errors <= CORRECT).sum())
    metrics["matches, filtered"] = len(p)
    correct = errors[errors <= CORRECT]
    metrics[_SHARES] = [float((errors <= x).mean()) if len(errors) else 0.0 for x in ERRORS]
    metrics["error"] = float(np.median(correct)) if len(correct) else float("nan")
    for threshold in THRESHOLDS:
        if planar:
            matrix = geometry.estimate(p, q, threshold=threshold, covariances=covariances).matrix
            error = corner_error(matrix, np.asarray(pair.truth), images[0].shape)
        else:
            error = pose_error(pair, p, q, threshold, covariances)
        metrics[f"geometry error at {threshold:g} px"] = error
    return metrics


def run(
    pairs: list[Pair], contenders: list[Contender], progress: Callable[[str], None]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name of each contender with its metrics for each pair."""
    for contender in contenders:
        cache: dict[str, Extracted] = {}

        def features(
            read_image: Callable[[], Gray],
            key: str,
            contender: Contender = contender,
            cache: dict[str, Extracted] = cache,
        ) -> Extracted:
            if key not in cache:
                image = read_image()
                started = time.perf_counter()
                extracted = contender.extract(image, key)
                seconds = time.perf_counter() - started
                cache[key] = replace(extracted, seconds=seconds)
            return cache[key]

        rows = []
        for pair in pairs:
            a, b = features(pair.first, pair.keys[0]), features(pair.second, pair.keys[1])
            rows.append(measure(contender, pair, a, b))
            progress(f"{contender.name}: {pair.name}")
        yield contender.name, rows


def summarize(pairs: list[Pair], results: dict[str, list[dict[str, Any]]]) -> Report:
    """Return the mean of every metric with its bootstrap interval over scenes."""
    scenes = [pair.scene for pair in pairs]
    _add_repeatability(pairs, results)
    planar = not isinstance(pairs[0].truth, tuple)
    limits, unit = (CORNERS, "px") if planar else (ANGLES, "degrees")
    report: Report = {"pairs": len(pairs), "scenes": len(set(scenes)), "contenders": {}}
    for name, rows in results.items():
        metrics: Report = {}
        for key in rows[0]:
            if key.startswith("geometry"):
                continue
            if key == _SHARES:
                metrics[key] = [list(ERRORS), np.mean([row[key] for row in rows], 0).tolist()]
                continue
            values = np.array([row[key] for row in rows], np.float64)
            finite = np.isfinite(values)
            if finite.any():
                kept = [s for s, ok in zip(scenes, finite, strict=True) if ok]
                metrics[key] = vars(bootstrap(values[finite], kept))
        errors = {
            t: np.array([row[f"geometry error at {t:g} px"] for row in rows]) for t in THRESHOLDS
        }
        best = max(THRESHOLDS, key=lambda t: sum(auc(errors[t], x) for x in limits))
        metrics["threshold"] = best
        metrics["errors of the geometry, sorted"] = (
            np.sort(np.minimum(errors[best], 1e6)).round(4).tolist()
        )
        for x in limits:
            metrics[f"AUC {x:g} {unit}"] = vars(bootstrap(auc_shares(errors[best], x), scenes))
        report["contenders"][name] = metrics
    return report


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table that is printed."""
    first = next(iter(report["contenders"].values()))
    columns = [key for key in first if isinstance(first[key], dict)]
    rows = []
    for name, metrics in report["contenders"].items():
        cells = [name]
        for key in columns:
            mean = metrics[key]["mean"] if key in metrics else float("nan")
            cells.append(f"{mean:,.0f}" if mean >= 20 else f"{mean:.3f}")
        rows.append(cells)
    return ["", *(_LABELS.get(key, key) for key in columns)], rows
