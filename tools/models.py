"""``python -m tools models``: compare COLMAP models from Caloric's and from COLMAP's features."""

import json
import re
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from caloric.bench.report import versions
from caloric.collection import (
    engines,
    exporting,
    extraction,
    mapping,
    matching,
    pairing,
    propagating,
    refining,
)
from caloric.errors import InputError
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.interop.colmap_model import Reconstruction
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import FloatArray, Log, Report
from tools.pages.markdown import table

BUDGETS = (4000, 8000)
PEERS: dict[str, dict[str, bool]] = {
    "COLMAP SIFT": {},
    "COLMAP DSP-SIFT": {"domain_size_pooling": True, "estimate_affine_shape": True},
}


def aligned(points: FloatArray, truth: FloatArray) -> FloatArray:
    """Return distances (n,) of points (n, 3) from the ground truth after a similarity alignment."""
    a, b = points - points.mean(0), truth - truth.mean(0)
    u, s, v = np.linalg.svd(b.T @ a)
    sign = np.array([1, 1, np.sign(np.linalg.det(u @ v))])
    scale = (s * sign).sum() / (a * a).sum()
    return np.asarray(np.linalg.norm(b - scale * a @ (u * sign @ v).T, axis=1))


def registered(directory: Path) -> tuple[dict[str, FloatArray], int]:
    """Return the camera centers (3,) of a model by image, and its number of observations."""
    centers, observations = {}, 0
    for image in colmap_model.registered(directory):
        w, x, y, z = image.rotation
        rotation = Rotation.from_quat([x, y, z, w]).as_matrix()
        centers[image.name] = -rotation.T @ np.array(image.translation)
        observations += int((image.points >= 0).sum())
    return centers, observations


def evaluated(model: Reconstruction, cameras: Report) -> Report:
    """Return the size of a reconstruction, and the errors of its cameras."""
    by_name, observations = registered(model.directory)
    names = sorted(by_name)
    centers = [by_name[name] for name in names]
    truth = np.array([cameras[name]["centre"] for name in names], float)
    all_centers = np.array([cameras[name]["centre"] for name in sorted(cameras)], float)
    baseline = float(np.median(np.linalg.norm(np.diff(all_centers, axis=0), axis=1)))
    errors = aligned(np.array(centers), truth)
    return {
        "images": len(names),
        "of": len(cameras),
        "points": model.points,
        "mean error, pixels": model.error,
        "mean track": observations / model.points,
        "median error of cameras, of the baseline": float(np.median(errors)) / baseline,
    }


def _colmap_model(
    images: Path, out: Path, max_features: int, options: dict[str, bool]
) -> tuple[Reconstruction, float]:
    """Return COLMAP's model with default options, and its mean number of features per image."""
    database = out / "database.db"
    if colmap.available():
        _by_library(images, database, max_features, options)
    else:
        by_executable(images, database, max_features, options)
    with closing(sqlite3.connect(database)) as opened:
        ((count,),) = opened.execute("SELECT AVG(rows) FROM keypoints")
    models = colmap.map_images(database, images, out)
    if not models:
        raise InputError(f"{images}: COLMAP found no model from COLMAP's features")
    return max(models, key=lambda model: len(model.images)), float(count)


def by_executable(
    images: Path, database: Path, max_features: int, options: dict[str, bool]
) -> None:
    """Write a database of COLMAP's features and matches, with its executable."""
    extra = [v for name, on in options.items() for v in (f"--SiftExtraction.{name}", str(int(on)))]
    colmap_command.call(
        "feature_extractor", "--database_path", database, "--image_path", images,
        "--SiftExtraction.max_num_features", str(max_features), *extra,
        *colmap_command.without_gpu("feature_extractor"),
    )  # fmt: skip
    colmap_command.call(
        "exhaustive_matcher", "--database_path", database,
        *colmap_command.without_gpu("exhaustive_matcher"),
    )  # fmt: skip


def _by_library(images: Path, database: Path, max_features: int, options: dict[str, bool]) -> None:
    library = colmap.pycolmap()
    extraction_options = library.FeatureExtractionOptions()
    extraction_options.use_gpu = False
    extraction_options.sift.max_num_features = max_features
    for name, value in options.items():
        setattr(extraction_options.sift, name, value)
    matching_options = library.FeatureMatchingOptions()
    matching_options.use_gpu = False
    cpu = library.Device.cpu
    library.extract_features(database, images, extraction_options=extraction_options, device=cpu)
    library.match_exhaustive(database, matching_options=matching_options, device=cpu)


def caloric_model(
    images: Path, out: Path, max_features: int, refine: bool = True
) -> tuple[Reconstruction, Report]:
    """Return the model of ``caloric collection run``, and the seconds of each step.

    Without ``refine``, tracks are neither propagated nor refined.
    """
    settings, options = ExtractOptions(max_features=max_features), matching.Matching()
    seconds: Report = {}
    started = time.perf_counter()

    def done(step: str) -> None:
        nonlocal started
        now = time.perf_counter()
        seconds[step], started = now - started, now

    with engines.Processes(threads.count()) as engine:
        extraction.extract(str(images), out, settings, engine)
        done("extract")
        pairs = pairing.pairs(out, pairing.Pairing(), engine)
        matching.match(out, pairs, options, engine)
        done("match")
        matching.verify(out, options, engine)
        done("verify")
        if refine:
            propagating.propagate(str(images), out, engine)
            done("propagate")
            refining.refine(str(images), out, engine)
            done("refine")
    exporting.export(out, "colmap", images)
    done("export")
    models = mapping.reconstruct(out, images).models
    done("COLMAP's mapper")
    if not models:
        raise InputError(f"{images}: COLMAP found no model from Caloric's features")
    return models[0], seconds


def run(scenes: list[Path], budgets: list[int], progress: Log) -> Report:
    """Return COLMAP's two models of each scene, and Caloric's with the same numbers of features."""
    report: Report = {"about": {"versions": versions(), "threads": threads.count()}}
    for budget, scene in product(budgets, scenes):
        cameras = json.loads((scene / "cameras.json").read_text())
        results: Report = {}
        for name, options in PEERS.items():
            progress(f"{scene.name}: {name}")
            directory = Path(tempfile.mkdtemp())
            try:
                started = time.perf_counter()
                model, count = _colmap_model(scene / "images", directory, budget, options)
                seconds = time.perf_counter() - started
                results[name] = evaluated(model, cameras) | {"features": count, "seconds": seconds}
                progress(f"{scene.name}: caloric, {count:.0f} features")
                started = time.perf_counter()
                model, steps = caloric_model(scene / "images", directory / "ours", round(count))
                seconds = time.perf_counter() - started
                results[f"caloric, as many as {name}"] = evaluated(model, cameras) | {
                    "features": count, "seconds": seconds, "steps": steps,
                }  # fmt: skip
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        report[f"{scene.name}, {budget:,} requested"] = results
    return report


def lines(report: Report) -> list[str]:
    """Return one Markdown table per scene, with the times of its steps."""
    text = []
    for scene, results in report.items():
        if scene == "about":
            continue
        # Keys of earlier results end with other words.
        title = re.sub(r"(?<=\d) \D*$", " requested", scene)
        head = [title, "features", "images", "points", "mean error", "camera error", "time"]
        rows = [
            [name, f"{v['features']:,.0f}", f"{v['images']} of {v['of']}", f"{v['points']:,}",
             f"{v['mean error, pixels']:.3f} px",
             f"{v['median error of cameras, of the baseline']:.2%}", f"{v['seconds']:.0f} s"]
            for name, v in results.items()
        ]  # fmt: skip
        text += [table(head, rows), ""]
        steps = next(v["steps"] for v in results.values() if "steps" in v)
        text += [f"Steps: {', '.join(f'{k} {v:.1f} s' for k, v in steps.items())}.", ""]
    return text
