"""``python -m tools refined-models``: models before and after ``caloric refine``, and snapped.

The models are those of COLMAP's SIFT, and of Caloric without refinement, with known intrinsics.
Those of SIFT imitate coarse matchers after their observations are disturbed. Snapping moves each
observation to the nearest keypoint of COLMAP's SIFT. All models are adjusted in the same way.
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
from caloric.collection import adjusting, aligning, model_refining, scenes, variances
from caloric.collection.aligning import Mask
from caloric.collection.scenes import Scene
from caloric.interop import colmap, colmap_model, colmap_tables
from caloric.interop.colmap_model import Camera
from caloric.types import FloatArray, Log, Report
from tools.models import aligned as alignment_errors
from tools.models import by_executable, caloric_model
from tools.pages.markdown import table

_FEATURES = 3000
_RADIUS = 6.0  # pixels; the corners of a cell of 8 pixels are 5.7 from its center
_FIXED = {"refine_focal_length": False, "refine_extra_params": False}
_SIFT, _CALORIC = "COLMAP SIFT", "Caloric, unrefined"
_DISTURBED: dict[str, Callable[[FloatArray, np.random.Generator], FloatArray]] = {
    "noise of 1.5 px": lambda xy, random: xy + random.normal(0, 1.5, xy.shape),
    "grid of 8 px": lambda xy, random: 8 * np.floor(xy / 8) + 4,
}


def _evaluated(scene: Scene, xy: FloatArray, good: Mask, cameras: Report) -> Report:
    errors = scenes.residuals(scene, xy, scene.points.xyz)
    truth = np.array([cameras[image.name]["centre"] for image in scene.images])
    deviations = alignment_errors(_centers(scene), truth) / _baseline(truth)
    # Errors of the given poses are not part of the difference of two models.
    one, other = (
        _centers(_adjusted(scene, xy, good & (scene.point % 2 == half))) for half in (0, 1)
    )
    return {
        "mean error, pixels": float(scenes.means(scene, errors).mean()),
        "median error, pixels": float(np.median(errors)),
        "mean error of cameras, of the baseline": float(deviations.mean()),
        "maximum error of cameras, of the baseline": float(deviations.max()),
        "difference of halves, of the baseline": float(
            alignment_errors(one, other).mean() / _baseline(other)
        ),
    }


def _centers(scene: Scene) -> FloatArray:
    return np.stack([image.center for image in scene.images])


def _baseline(centers: FloatArray) -> float:
    return float(np.median(np.linalg.norm(np.diff(centers, axis=0), axis=1)))


def _ratios(scene: Scene, covariances: FloatArray, refined: Mask) -> list[float]:
    """Return the predicted standard deviation by the measured one, in x and y.

    The measured one is that of the median residual of points with three or more observations.
    """
    rows = np.flatnonzero(variances.redundant(scene, refined))
    part = scenes.part(scene, rows)
    values = variances.deviations(*variances.residuals(part, covariances[rows]))
    return [float(1 / value) for value in variances.measured(values)]


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


def _sift_model(images: Path, work: Path) -> Path:
    by_executable(images, work / "database.db", _FEATURES, {})
    (work / "sparse").mkdir()
    models = colmap.map_images(work / "database.db", images, work / "sparse")
    return max(models, key=lambda model: len(model.images)).directory


def _calibrated(directory: Path, cameras: Report) -> Scene:
    """Return a model that is adjusted with the known intrinsics."""
    scene = scenes.read(directory)
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
        refined, components = arrays["refined"], arrays["components"].tolist()
    return _evaluated(scene, scene.xy, refined, cameras) | {
        "share refined": (outcome.refined - outcome.added) / outcome.observations,
        "added observations": outcome.added,
        "weighted": outcome.weighted,
        "predicted by measured deviation, x and y": _ratios(scene, covariances, refined),
        "variances: alignment, relief, common": components,
        "seconds": seconds,
    }


def _scene(directory: Path, work: Path, progress: Log) -> Report:
    cameras, images = json.loads((directory / "cameras.json").read_text()), directory / "images"
    progress(f"{directory.name}: models")
    sift = _calibrated(_sift_model(images, work), cameras)
    unrefined, _ = caloric_model(images, work / "ours", _FEATURES, refine=False)
    bases = {_SIFT: sift, _CALORIC: _calibrated(unrefined.directory, cameras)}
    for case, disturb in _DISTURBED.items():
        bases[case] = replace(sift, xy=disturb(sift.xy, np.random.default_rng(0)))
    keypoints = {
        name: rows[:, :2].astype(np.float64)
        for name, rows in colmap_tables.keypoints(work / "database.db").items()
    }
    results: Report = {}
    for number, (case, base) in enumerate(bases.items()):
        progress(f"{directory.name}: {case}")
        xy, everything = base.xy, np.ones(len(base.xy), bool)
        start = _adjusted(base, xy, everything)
        rows = {"unrefined": _evaluated(start, xy, everything, cameras)}
        if case in _DISTURBED:  # the other observations are keypoints
            snapped, distances = _snapped(start, keypoints)
            good = np.isfinite(distances)
            result = _adjusted(start, snapped, good)
            rows["snapped"] = _evaluated(result, snapped, good, cameras)
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
    """Return Markdown tables with one row per model, and of the covariances of refined models."""
    cases = {
        f"{scene}, {case}": {name: v for name, v in models.items() if isinstance(v, dict)}
        for scene, cases in report.items()
        if scene != "about"
        for case, models in cases.items()
    }
    head = ["scene, observations", "model", "mean error", "median error", "camera centers, mean",
            "maximum", "halves"]  # fmt: skip
    rows = [
        [
            case, name, f"{values['mean error, pixels']:.3f} px",
            f"{values['median error, pixels']:.3f} px",
            f"{values['mean error of cameras, of the baseline']:.3%}",
            f"{values['maximum error of cameras, of the baseline']:.3%}",
            f"{values['difference of halves, of the baseline']:.3%}",
        ]
        for case, models in cases.items()
        for name, values in models.items()
    ]  # fmt: skip
    predicted = []
    for case, models in cases.items():
        x, y = models["refined"]["predicted by measured deviation, x and y"]
        alignment, relief, common = models["refined"]["variances: alignment, relief, common"]
        predicted.append(
            [case, f"{x:.2f}", f"{y:.2f}", f"{alignment:.2f}", f"{relief**0.5:.3f} px",
             f"{common**0.5:.3f} px"]
        )  # fmt: skip
    titles = ["scene, observations", "x", "y", "a", "√b", "√c"]
    return [table(head, rows), "", table(titles, predicted)]
