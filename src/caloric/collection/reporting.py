"""The report of a run: ``report.json`` with all numbers, and ``report.html`` to look at."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caloric.collection import (
    duplicates,
    metadata,
    plausibility,
    positions,
    recorded,
    report_page,
    results,
)
from caloric.collection.extraction import ExtractionResult
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.results import CollectionResult
from caloric.collection.summaries import PairSummary
from caloric.interop import colmap_model
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.files import replacing
from caloric.types import Report
from caloric.viz import model_figure

_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 11, 16, 32, 10**9)  # bounds of the histogram of images of points
_ERRORS = (*np.arange(0, 2.01, 0.2).round(1).tolist(), 10**9)  # pixels


def histogram(values: ArrayLike, bounds: Sequence[float]) -> list[Report]:
    """Return the number of values in each range, from a bound up to but excluding the next."""
    counts, _ = np.histogram(np.asarray(values, np.float64), np.array(bounds, np.float64))
    ranges = zip(bounds[:-1], bounds[1:], counts.tolist(), strict=True)
    return [
        {"from": low, "to": None if high == 10**9 else high, "count": count}
        for low, high, count in ranges
    ]


def _model(model: Reconstruction) -> Report:
    points = colmap_model.points(model.directory)
    cameras = colmap_model.cameras(model.directory)
    used: dict[int, int] = {}
    observed = []  # each point once for each image, which may have several observations of it
    for image in colmap_model.registered(model.directory):
        used[image.camera] = used.get(image.camera, 0) + 1
        observed.append(np.unique(image.points[image.points >= 0]))
    images_of_points = np.unique(np.concatenate(observed), return_counts=True)[1]
    return {
        "directory": str(model.directory.absolute()),
        "images": len(model.images),
        "georeference": positions.georeference(model.directory),
        "points": model.points,
        "mean track length": model.track_length,
        "mean reprojection error, pixels": model.error,
        "images of points": histogram(images_of_points, _LENGTHS),
        "reprojection errors, pixels": histogram(points.errors, _ERRORS),
        "cameras": [
            {"id": number, "images": used.get(number, 0)} | asdict(cameras[number])
            for number in sorted(cameras)
        ],
    }


def _images(
    result: CollectionResult, outcomes: dict[str, int | str], pairs: list[PairSummary]
) -> list[Report]:
    """Return a row for each image, sorted by name."""
    observed: dict[str, dict[str, Any]] = {}
    for number, model in enumerate(result.models):
        for image in colmap_model.registered(model.directory):
            if image.name not in observed:  # in the largest model, if it is in several
                points = int((image.points >= 0).sum())
                observed[image.name] = {"model": number, "camera": image.camera, "points": points}
    matched: dict[str, int] = {}
    for pair in pairs:
        for name in (pair.name_a, pair.name_b):
            matched[name] = matched.get(name, 0) + pair.is_verified
    unregistered = {"model": None, "camera": None, "points": 0}
    return [
        {
            "name": name,
            "features": outcome if isinstance(outcome, int) else 0,
            "verified pairs": matched.get(name, 0),
            **observed.get(name, unregistered),
            "reason": result.missing.get(name),
        }
        for name, outcome in sorted(outcomes.items())
    ]


def content(
    result: CollectionResult,
    outcomes: dict[str, int | str],
    pairs: list[PairSummary],
    directory: str,
    state: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Return the content of ``report.json``: see :func:`write`."""
    return {
        "directory": directory,
        "summary": result.summary,
        "failure": result.failure,
        "warnings": list(result.warnings),
        "numbers": result.numbers,
        "seconds": result.seconds,
        "models": [_model(model) for model in result.models],
        "images": _images(result, outcomes, pairs),
        "pairs": [asdict(pair) for pair in pairs if pair.matches],
        "state": dict(state),
    }


def write(
    result: CollectionResult,
    outcomes: dict[str, int | str],
    pairs: list[PairSummary],
    directory: str,
    state: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write ``report.json`` and ``report.html`` next to each other.

    Parameters
    ----------
    result : CollectionResult
        The result of the run, with the path of the page.
    outcomes : dict
        The number of features of each image, or the reason why it was skipped.
    pairs : list of PairSummary
        The matched pairs.
    directory : str
        The image directory.
    state : mapping
        Hashes of the inputs and outputs of the run, with which the next run detects changes.
    """
    report = content(result, outcomes, pairs, directory, state)
    renderings = [figure(model.directory) for model in result.models]
    page = report_page.page(report, renderings, Path(directory).name)
    for path, text in (
        (result.report.with_suffix(".json"), json.dumps(report, indent=1)),
        (result.report, page),
    ):
        with replacing(path) as file:
            file.write(f"{text}\n".encode())


def finish(
    directory: str,
    store: Path,
    seconds: dict[str, float],
    extracted: ExtractionResult,
    pairs: list[PairSummary],
    models: ReconstructionResult,
    counts: Mapping[str, float] = MappingProxyType({}),
    skipped: Mapping[str, str] = MappingProxyType({}),
    inputs: str = "",
) -> CollectionResult:
    """Write the report of a run to the store, and return the result.

    Parameters
    ----------
    directory : str
        The image directory.
    store : Path
        The store.
    seconds : dict
        The duration of each step.
    extracted : ExtractionResult
        The features of each image.
    pairs : list of PairSummary
        The matched pairs.
    models : ReconstructionResult
        The models, or why there are none.
    counts : mapping
        The numbers of the steps between extraction and reconstruction.
    skipped : mapping
        Images skipped by these steps, with the reasons.
    inputs : str
        The hash of the inputs of the models (:func:`caloric.collection.recorded.inputs`).
    """
    registered = {image for model in models.models for image in model.images}
    numbers: dict[str, float] = {
        "images": len(extracted.found), "features": extracted.features, **counts,
        "registered": len(registered), "models": len(models.models),
    }  # fmt: skip
    if models.models:
        best = models.models[0]
        numbers |= {
            "cameras": best.cameras, "points": best.points, "track length": best.track_length,
            "error": best.error,
        }  # fmt: skip
    result = CollectionResult(
        registered=tuple(sorted(registered)),
        missing=results.missing(extracted.found, pairs, registered),
        models=models.models,
        numbers=numbers,
        skipped={**extracted.skipped, **skipped},
        failure=models.failure,
        seconds=seconds,
        report=store / "report.html",
        warnings=(
            *duplicates.warnings(store),
            *plausibility.warnings(models.models, metadata.read(store)),
        ),
    )
    state = {"inputs": inputs, "outputs": recorded.outputs(store) if inputs else ""}
    write(result, extracted.found, pairs, directory, state)
    return result


def figure(directory: Path) -> bytes:
    """Return a PNG of a model."""
    import cv2

    points, images = colmap_model.points(directory), list(colmap_model.registered(directory))
    rotations = np.stack([image.matrix for image in images])
    centers = np.stack([image.center for image in images])
    pixels = model_figure.draw(points.xyz, points.colors, rotations, centers)
    _, data = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGRA))
    return bytes(data.tobytes())
