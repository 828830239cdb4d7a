"""``python -m tools models``: COLMAP models from Caloric's and COLMAP's features, in one run."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from caloric.bench.report import versions
from caloric.collection import engines, exporting, extraction, matching, pairing
from caloric.errors import InputError
from caloric.interop import colmap
from caloric.runtime import threads
from caloric.theory.gaussians import FloatArray
from tools.pages.markdown import table

Report = dict[str, Any]
Progress = Callable[[str], None]
PEERS: dict[str, dict[str, bool]] = {
    "COLMAP SIFT": {},
    "COLMAP DSP-SIFT": {"domain_size_pooling": True, "estimate_affine_shape": True},
}


def aligned(points: FloatArray, truth: FloatArray) -> FloatArray:
    """Return distances (n,) of points (n, 3) from the truth after the best similarity."""
    a, b = points - points.mean(0), truth - truth.mean(0)
    u, s, v = np.linalg.svd(b.T @ a)
    sign = np.array([1, 1, np.sign(np.linalg.det(u @ v))])
    scale = (s * sign).sum() / (a * a).sum()
    return np.asarray(np.linalg.norm(b - scale * a @ (u * sign @ v).T, axis=1))


def judged(model: Any, cameras: Report) -> Report:
    """Return the size of a reconstruction, and the errors of its cameras."""
    names = sorted(image.name for image in model.images.values() if image.has_pose)
    centres = [model.find_image_with_name(name).projection_center() for name in names]
    truth = np.array([cameras[name]["centre"] for name in names], float)
    all_centres = np.array([cameras[name]["centre"] for name in sorted(cameras)], float)
    baseline = float(np.median(np.linalg.norm(np.diff(all_centres, axis=0), axis=1)))
    errors = aligned(np.array(centres), truth)
    return {
        "images": len(names),
        "of": len(cameras),
        "points": model.num_points3D(),
        "mean error, pixels": float(model.compute_mean_reprojection_error()),
        "mean track": float(model.compute_mean_track_length()),
        "median error of cameras, of the baseline": float(np.median(errors)) / baseline,
    }


def _colmap_model(
    images: Path, out: Path, most: int, options: dict[str, bool]
) -> tuple[Any, float]:
    """Return COLMAP's model with its defaults, and its mean number of features per image."""
    library = colmap.pycolmap()
    extraction_options = library.FeatureExtractionOptions()
    extraction_options.use_gpu = False
    extraction_options.sift.max_num_features = most
    for name, value in options.items():
        setattr(extraction_options.sift, name, value)
    matching_options = library.FeatureMatchingOptions()
    matching_options.use_gpu = False
    database, cpu = out / "database.db", library.Device.cpu
    library.extract_features(database, images, extraction_options=extraction_options, device=cpu)
    library.match_exhaustive(database, matching_options=matching_options, device=cpu)
    opened = library.Database.open(str(database))
    count = opened.num_keypoints() / opened.num_images()
    opened.close()
    models = library.incremental_mapping(str(database), str(images), str(out))
    if not models:
        raise InputError(f"{images}: COLMAP made no model of its own features")
    return max(models.values(), key=lambda model: model.num_reg_images()), float(count)


def _caloric_model(images: Path, out: Path, most: int) -> Any:
    engine = engines.Processes(threads.count())
    settings, options = extraction.Settings(max_features=most), matching.Matching()
    extraction.extract(str(images), out, settings, engine)
    pairs = pairing.pairs(out, pairing.Pairing(), engine)
    matching.match(out, pairs, options, engine)
    matching.verify(out, options, engine)
    exporting.export_colmap(out, images)
    model = exporting.reconstruct(out, images)
    return colmap.pycolmap().Reconstruction(str(model.folder))


def run(scenes: list[Path], most: int, progress: Progress) -> Report:
    """Return COLMAP's two models of each scene, and Caloric's with as many features as each."""
    report: Report = {"about": {"versions": versions(), "asked for": most}}
    for scene in scenes:
        cameras = json.loads((scene / "cameras.json").read_text())
        results: Report = {}
        for name, options in PEERS.items():
            progress(f"{scene.name}: {name}")
            folder = Path(tempfile.mkdtemp())
            try:
                started = time.perf_counter()
                model, count = _colmap_model(scene / "images", folder, most, options)
                seconds = time.perf_counter() - started
                results[name] = judged(model, cameras) | {"features": count, "seconds": seconds}
                progress(f"{scene.name}: caloric, {count:.0f} features")
                started = time.perf_counter()
                model = _caloric_model(scene / "images", folder / "ours", round(count))
                seconds = time.perf_counter() - started
                results[f"caloric, as many as {name}"] = judged(model, cameras) | {
                    "features": count, "seconds": seconds,
                }  # fmt: skip
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        report[scene.name] = results
    return report


def lines(report: Report) -> list[str]:
    """Return one Markdown table per scene, as lines."""
    text = []
    for scene, results in report.items():
        if scene == "about":
            continue
        head = [scene, "features", "images", "points", "mean error", "cameras off by", "time"]
        rows = [
            [name, f"{v['features']:,.0f}", f"{v['images']} of {v['of']}", f"{v['points']:,}",
             f"{v['mean error, pixels']:.3f} px",
             f"{v['median error of cameras, of the baseline']:.2%}", f"{v['seconds']:.0f} s"]
            for name, v in results.items()
        ]  # fmt: skip
        text += table(head, rows)
    return text
