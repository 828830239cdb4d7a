"""``python -m tools refined-models``: models before and after ``caloric refine``, and snapped.

The models are those of COLMAP's SIFT with known intrinsics. They imitate those of coarse matchers
after their observations are disturbed. Snapping moves each observation to the nearest keypoint of
COLMAP's SIFT. All three are adjusted in the same way.
"""

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from caloric.bench.report import versions
from caloric.collection import adjusting, aligning, model_refining, scenes
from caloric.collection.aligning import Mask
from caloric.collection.scenes import Scene
from caloric.interop import colmap, colmap_model, colmap_tables
from caloric.interop.colmap_model import Camera
from caloric.types import FloatArray, Log, Report
from tools.models import aligned as alignment_errors
from tools.models import by_executable
from tools.pages.markdown import table

_FEATURES = 3000
_RADIUS = 6.0  # pixels; the corners of a cell of 8 pixels are 5.7 from its center
_STEPS = 5  # of triangulation
_TO_GAUSSIAN = 1.4826  # standard deviation by the median of the absolute value
_FIXED = {"refine_focal_length": False, "refine_extra_params": False}
_CASES: dict[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
    "COLMAP SIFT": lambda xy, random: xy,
    "noise of 1.5 px": lambda xy, random: xy + random.normal(0, 1.5, xy.shape),
    "grid of 8 px": lambda xy, random: 8 * np.floor(xy / 8) + 4,
}


def _evaluated(scene: Scene, xy: FloatArray, cameras: Report) -> Report:
    errors = scenes.residuals(scene, xy, scene.points.xyz)
    centers = np.stack([image.center for image in scene.images])
    truth = np.array([cameras[image.name]["centre"] for image in scene.images])
    baseline = float(np.median(np.linalg.norm(np.diff(truth, axis=0), axis=1)))
    deviations = alignment_errors(centers, truth) / baseline
    return {
        "mean error, pixels": float(scenes.means(scene, errors).mean()),
        "median error, pixels": float(np.median(errors)),
        "mean error of cameras, of the baseline": float(deviations.mean()),
        "maximum error of cameras, of the baseline": float(deviations.max()),
    }


def _ratios(scene: Scene, covariances: FloatArray, used: Mask) -> list[float]:
    """Return the predicted standard deviation by the measured one, in x and y.

    A residual is smaller than the error, because the point is fitted to the observations: with the
    weights Σ⁻¹ and the derivatives J by the point, its covariance is Σ − J (Σ Jᵀ Σ⁻¹ J)⁻¹ Jᵀ. The
    measured deviation is the median residual, divided by its predicted deviation, of points with at
    least three observations, scaled to that of a Gaussian.
    """
    count = len(scene.points.ids)
    used = used & (np.bincount(scene.point, used, minlength=count) >= 3)[scene.point]
    part, point = covariances[used], scene.point[used]
    xyz = scene.points.xyz.copy()
    for _ in range(_STEPS):
        at = scenes.project(scene, xyz)
        slopes, errors = at.slopes[used], (scene.xy - at.xy)[used]
        weighted = slopes.transpose(0, 2, 1) @ np.linalg.inv(part)
        normal, right = np.zeros((count, 3, 3)), np.zeros((count, 3))
        np.add.at(normal, point, weighted @ slopes)
        np.add.at(right, point, np.einsum("mij,mj->mi", weighted, errors))
        normal[np.bincount(point, minlength=count) == 0] = np.eye(3)
        inverse = np.linalg.inv(normal)
        xyz = xyz + np.einsum("pij,pj->pi", inverse, right)
    expected = part - slopes @ inverse[point] @ slopes.transpose(0, 2, 1)
    deviations = np.sqrt(np.maximum(np.diagonal(expected, axis1=1, axis2=2), 1e-12))
    measured = _TO_GAUSSIAN * np.median(np.abs(errors) / deviations, 0)
    return [float(1 / value) for value in measured]


def _adjusted(scene: Scene, xy: FloatArray, good: Mask) -> Scene:
    aligned = replace(aligning.unrefined(xy), refined=good)
    points = scenes.triangulate(scene, xy, good)
    scene = replace(scene, points=replace(scene.points, xyz=points))
    return adjusting.adjust(scene, aligned, _FIXED, weighted=False).scene


def _snapped(scene: Scene, keypoints: dict[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return positions snapped to the nearest keypoint, and the distances; inf if there is none."""
    xy, distances = scene.xy.copy(), np.empty(len(scene.xy))
    for number, image in enumerate(scene.images):
        rows, positions = scene.rows(number), keypoints[image.name]
        distances[rows], nearest = cKDTree(positions).query(xy[rows], distance_upper_bound=_RADIUS)
        near = np.isfinite(distances[rows])
        xy[rows] = np.where(near[:, None], positions[np.where(near, nearest, 0)], xy[rows])
    return xy, distances


def _written(scene: Scene, xy: FloatArray, directory: Path) -> Path:
    directory.mkdir()
    new = adjusting.changed(scene, xy, scene.points.xyz, np.ones(len(xy), bool))
    colmap_model.write(directory, new.cameras, new.images, new.points)
    return directory


def _base(images: Path, cameras: Report, work: Path) -> Scene:
    """Return COLMAP's model of its SIFT features, adjusted with the known intrinsics."""
    by_executable(images, work / "database.db", _FEATURES, {})
    (work / "sparse").mkdir()
    models = colmap.map_images(work / "database.db", images, work / "sparse")
    scene = scenes.read(max(models, key=lambda model: len(model.images)).directory)
    known = {}
    for image in scene.images:
        camera, matrix = scene.cameras[image.camera], cameras[image.name]["K"]
        center = matrix[0][2] + 0.5, matrix[1][2] + 0.5
        parameters = (matrix[0][0], matrix[1][1], *center)
        known[image.camera] = Camera("PINHOLE", camera.width, camera.height, parameters)
    return _adjusted(replace(scene, cameras=known), scene.xy, np.ones(len(scene.xy), bool))


def _refined(
    directory: Path, outcome: model_refining.ModelRefinement, cameras: Report, seconds: float
) -> Report:
    """Return the errors of a refined model, and how well its covariances predict them."""
    scene = scenes.read(directory)
    with np.load(directory / model_refining.COVARIANCES) as arrays:
        xx, xy, yy = arrays["covariances"].astype(np.float64).T
        covariances = np.stack([xx, xy, xy, yy], 1).reshape(-1, 2, 2)
        ratios = _ratios(scene, covariances, arrays["refined"])
    return _evaluated(scene, scene.xy, cameras) | {
        "share refined": (outcome.refined - outcome.added) / outcome.observations,
        "added observations": outcome.added,
        "weighted": outcome.weighted,
        "predicted by measured deviation, x and y": ratios,
        "seconds": seconds,
    }


def _scene(directory: Path, work: Path, progress: Log) -> Report:
    cameras, images = json.loads((directory / "cameras.json").read_text()), directory / "images"
    base = _base(images, cameras, work)
    keypoints = {
        name: rows[:, :2].astype(np.float64)
        for name, rows in colmap_tables.keypoints(work / "database.db").items()
    }
    results: Report = {}
    for number, (case, disturb) in enumerate(_CASES.items()):
        progress(f"{directory.name}: {case}")
        xy = disturb(base.xy, np.random.default_rng(0))
        start = _adjusted(replace(base, xy=xy), xy, np.ones(len(xy), bool))
        rows = {"unrefined": _evaluated(start, xy, cameras)}
        snapped, distances = _snapped(start, keypoints)
        good = np.isfinite(distances)
        if case != "COLMAP SIFT":  # its observations are keypoints
            result = _adjusted(start, snapped, good)
            rows["snapped"] = _evaluated(result, snapped, cameras)
        model = _written(start, xy, work / f"model {number}")
        started = time.perf_counter()
        outcome = model_refining.refine_model(
            model, images, work / f"refined {number}", intrinsics=False
        )
        seconds = time.perf_counter() - started
        rows["refined"] = _refined(work / f"refined {number}", outcome, cameras, seconds)
        results[case] = rows | {"points": len(base.points.ids), "observations": len(xy)}
    return results


def run(directories: list[Path], progress: Log) -> Report:
    """Return the errors of each scene's models, by how their observations were disturbed."""
    report: Report = {"about": {"versions": versions(), "features": _FEATURES}}
    for directory in directories:
        with tempfile.TemporaryDirectory() as work:
            report[directory.name] = _scene(directory, Path(work), progress)
    return report


def lines(report: Report) -> list[str]:
    """Return a Markdown table with one row per model."""
    head = ["scene, observations", "model", "mean error", "median error", "camera centers, mean",
            "maximum"]  # fmt: skip
    rows = [
        [
            f"{scene}, {case}", name, f"{values['mean error, pixels']:.3f} px",
            f"{values['median error, pixels']:.3f} px",
            f"{values['mean error of cameras, of the baseline']:.3%}",
            f"{values['maximum error of cameras, of the baseline']:.3%}",
        ]
        for scene, cases in report.items()
        if scene != "about"
        for case, models in cases.items()
        for name, values in models.items()
        if isinstance(values, dict)
    ]  # fmt: skip
    return [table(head, rows)]
