"""``python -m tools align``: benchmark of alignment, template search and refined matches."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline, verify
from caloric.alignment import align, templates
from caloric.alignment.align import Alignment
from caloric.alignment.schedule import SCHEDULE
from caloric.bench.pair_data import Camera, fundamental
from caloric.bench.report import versions
from caloric.image.inputs import read_image
from caloric.matching.models import residual
from caloric.types import FloatArray, Log, Report
from tools.alignment import confidence as align_confidence
from tools.alignment import peers
from tools.alignment.cases import (
    HARD,
    KINDS,
    MAX_ERROR,
    STRENGTHS,
    TEMPLATE,
    Case,
    Photographs,
    make,
    photographs,
    points,
)

START, SEARCH = "caloric from the identity", "caloric"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The error and the time of one method on one case."""

    error: float
    seconds: float
    alignment: Alignment | None = None


def _peer(run: peers.Aligner, case: Case) -> Outcome:
    started = time.perf_counter()
    transform = run(case)
    seconds = time.perf_counter() - started
    return Outcome(np.inf if transform is None else case.error(transform), seconds)


def _caloric(case: Case, **options: Any) -> Outcome:
    started = time.perf_counter()
    if options.pop("from_identity", False):
        options["initial"] = case.centered
    alignment = align.align(case.template, case.image, **options)
    return Outcome(case.error(alignment.transform), time.perf_counter() - started, alignment)


PEERS: dict[str, peers.Aligner] = {
    "ECC": peers.ecc,
    "ECC on a pyramid": peers.ecc_pyramid,
    "pyramidal Lucas-Kanade": peers.lucas_kanade,
    "SIFT + RANSAC": peers.sift_ransac,
}
Runner = Callable[[Case], Outcome]


def _contenders(**options: Any) -> dict[str, Runner]:
    """Return the other methods, and Caloric with and without the search."""
    runners: dict[str, Runner] = {name: partial(_peer, run) for name, run in PEERS.items()}
    runners[START] = partial(_caloric, from_identity=True, **options)
    runners[SEARCH] = partial(_caloric, **options)
    return runners


def _run(cases: Iterator[Case], runners: dict[str, Runner]) -> dict[str, list[Outcome]]:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in runners}
    for case in cases:
        for name, run in runners.items():
            outcomes[name].append(run(case))
    return outcomes


def _share(outcomes: Sequence[Outcome]) -> float:
    return float(np.mean([o.error < MAX_ERROR for o in outcomes]))


def _summary(outcomes: Sequence[Outcome]) -> Report:
    errors = [o.error for o in outcomes if o.error < MAX_ERROR]
    return {
        "share": _share(outcomes),
        "median error": float(np.median(errors)) if errors else None,
        "mean seconds": float(np.mean([o.seconds for o in outcomes])),
        "cases": len(outcomes),
    }


def honesty(outcomes: Sequence[Outcome]) -> Report:
    """Return the shares of failures and of successes that are reported as failures."""
    alignments = [(o, o.alignment) for o in outcomes if o.alignment is not None]
    failed = [a for o, a in alignments if o.error >= MAX_ERROR]
    succeeded = [a for o, a in alignments if o.error < MAX_ERROR]
    return {
        "failures": len(failed),
        "failures, reported": float(np.mean([not a.converged for a in failed])) if failed else None,
        "false alarms": float(np.mean([not a.converged for a in succeeded])) if succeeded else None,
        "highest confidence of a failure": max((a.confidence for a in failed), default=None),
        "lowest confidence of a success": min((a.confidence for a in succeeded), default=None),
    }


def predicted(alignment: Alignment) -> float:
    """Return the root-mean-square error in pixels that the covariance predicts."""
    C = alignment.covariance
    at = points(np.empty((TEMPLATE, TEMPLATE), np.uint8))
    variances = np.einsum("ni,ij,nj->n", at, C[:3, :3] + C[3:, 3:], at)
    return float(np.sqrt(variances.mean()))


def cells(photos: Photographs, count: int, seed: int, progress: Log) -> Report:
    """Return the share of correct alignments for every kind and strength of motion."""
    table: Report = {}
    all_outcomes: dict[str, list[Outcome]] = {}
    for kind in KINDS:
        for strength in STRENGTHS:
            progress(f"{kind} {strength:g}")
            cases = (make(photos.pixels, kind, strength, seed + i) for i in range(count))
            for name, outcomes in _run(cases, _contenders()).items():
                table.setdefault(name, {}).setdefault(kind, {})[f"{strength:g}"] = _share(outcomes)
                all_outcomes.setdefault(name, []).extend(outcomes)
    caloric = all_outcomes[START] + all_outcomes[SEARCH]
    correct = [o for o in caloric if o.error < MAX_ERROR and o.alignment is not None]
    return {
        "cases a cell": count,
        "share": table,
        "overall": {name: _summary(outcomes) for name, outcomes in all_outcomes.items()},
        "honesty": honesty(caloric),
        "error relative to the predicted error": float(
            np.median([o.error / predicted(o.alignment) for o in correct if o.alignment])
        ),
    }


def hard(photos: Photographs, count: int, seed: int, progress: Log) -> Report:
    """Return the results for covered, blurred and inverted images, and for absent templates."""
    report: Report = {}
    caloric: list[Outcome] = []
    for name, conditions in HARD.items():
        progress(name)
        options = {"inverted": True} if conditions.get("inverted") else {}
        cases = (make(photos.pixels, "all", 0.5, seed + i, **conditions) for i in range(count))
        outcomes = _run(cases, _contenders(**options))
        report[name] = {
            method: _summary(method_outcomes) for method, method_outcomes in outcomes.items()
        }
        caloric += outcomes[START] + outcomes[SEARCH]
    progress("absent templates")
    absent = [_absent(photos, seed + i) for i in range(count)]
    return {
        "conditions": report,
        "honesty": honesty(caloric),
        "absent": {
            "cases": count,
            "reported": float(np.mean([not a.converged for a in absent])),
            "highest confidence": max(a.confidence for a in absent),
        },
    }


def _absent(photos: Photographs, seed: int) -> Alignment:
    """Return the alignment of a template with an image of another scene."""
    case = make(photos.pixels, "all", 0.5, seed)
    other_scenes = photos.other_scenes(case.photograph)
    return align.align(case.template, make(other_scenes, "all", 0.5, seed).image)


# The three columns of the paper, and settings other than the default.
SETTINGS: dict[str, dict[str, Any]] = {
    "full continuation": {},
    "one sigma, a detector's candidates": {"method": "single"},
    "descriptors of a detector's candidates": {"method": "descriptor"},
    "from the identity": {"from_identity": True},
    "from the identity, all parameters diffused": {"from_identity": True, "diffusion": "all"},
    "distribution fields": {"feature": "distribution-field"},
    "distribution fields, affine-diffused": {"feature": "distribution-field-heat"},
}


def settings(photos: Photographs, count: int, seed: int, progress: Log) -> Report:
    """Return the results of the three columns of the paper and of other settings, on two cells."""
    report: Report = {}
    runners: dict[str, Runner] = {name: partial(_caloric, **o) for name, o in SETTINGS.items()}
    for kind, strength in (("rotation", 0.5), ("all", 0.5)):
        progress(f"settings: {kind} {strength:g}")
        cases = (make(photos.pixels, kind, strength, seed + i) for i in range(count))
        for name, outcomes in _run(cases, runners).items():
            errors = [o.error for o in outcomes]
            report.setdefault(name, {})[f"{kind} {strength:g}"] = {
                **_summary(outcomes),
                "within 10 px": float(np.mean([e < 10 for e in errors])),
            }
    return report


def template_problem(photos: Photographs, seed: int) -> tuple[Case, list[NDArray[np.uint8]], int]:
    """Return a case, 50 templates, and the index of the correct one.

    20 of the others are copies of the correct one with a quarter to a half replaced.
    """
    rng = np.random.default_rng([seed, 50])
    # A fixed strength would make all rotations equally far from those that are searched.
    case = make(photos.pixels, "all", float(rng.uniform(0.1, 0.6)), seed)
    other_scenes = photos.other_scenes(case.photograph)
    others = [make(other_scenes, "translation", 0.25, 100 * seed + i).template for i in range(49)]
    candidates = others[:29]
    for other in others[29:]:
        side = round(float(np.sqrt(rng.uniform(0.25, 0.5))) * TEMPLATE)
        y, x = rng.integers(0, TEMPLATE - side + 1, 2)
        similar = case.template.copy()
        similar[y : y + side, x : x + side] = other[y : y + side, x : x + side]
        candidates.append(similar)
    index = int(rng.integers(len(candidates) + 1))
    candidates.insert(index, case.template)
    return case, candidates, index


def _correlated(
    image: NDArray[np.uint8],
    candidates: list[NDArray[np.uint8]],
    shrink: int,
    searched: Sequence[tuple[float, int, Sequence[int]]],
) -> list[tuple[float, int, float, int, FloatArray]]:
    """Return the best normalized cross-correlation per scale, rotation and template, best first.

    The image is rotated and scaled, not the template; ``shrink`` reduces the size of both. Each
    entry is the score, the template, the scale, the rotation, and the center in the image.
    """
    size = (TEMPLATE // shrink, TEMPLATE // shrink)
    small_templates = [cv2.resize(v, size, interpolation=cv2.INTER_AREA) for v in candidates]
    h, w = (n // shrink for n in image.shape)
    small = cv2.resize(image, (w, h), interpolation=cv2.INTER_AREA)
    results = []
    for scale, rotation, indices in searched:
        side = max(int(np.ceil(np.hypot(h, w) / scale)), *size)
        degrees, pivot = 360 * rotation / SCHEDULE.rotations, ((w - 1) / 2, (h - 1) / 2)
        transform = np.array(cv2.getRotationMatrix2D(pivot, degrees, 1 / scale), np.float64)
        transform[:, 2] += (side - 1) / 2 - np.array([w - 1, h - 1]) / 2
        rotated = cv2.warpAffine(small, transform, (side, side), borderValue=float(small.mean()))
        for k in indices:
            scores = cv2.matchTemplate(rotated, small_templates[k], cv2.TM_CCOEFF_NORMED)
            _, score, _, corner = cv2.minMaxLoc(scores)
            position = np.array(corner) + (np.array(size) - 1) / 2
            center = np.asarray(
                np.linalg.solve(transform[:, :2], position - transform[:, 2]), np.float64
            )
            results.append((float(score), k, scale, rotation, shrink * center + (shrink - 1) / 2))
    return sorted(results, key=lambda result: -result[0])


def correlation(
    image: NDArray[np.uint8], candidates: list[NDArray[np.uint8]]
) -> tuple[int, FloatArray]:
    """Return the best template and its center by normalized cross-correlation.

    All rotations and scales of the search are tried at a quarter of the size, the best thirty again
    at full size.
    """
    indices = range(len(candidates))
    rotations = range(SCHEDULE.rotations)
    coarse = _correlated(
        image,
        candidates,
        4,
        [(scale, rotation, indices) for scale in SCHEDULE.scales for rotation in rotations],
    )
    best = [(scale, rotation, [k]) for _, k, scale, rotation, _ in coarse[:30]]
    _, index, _, _, center = _correlated(image, candidates, 1, best)[0]
    return index, center


def finding(photos: Photographs, count: int, seed: int, progress: Log) -> Report:
    """Return how often the correct one of 50 templates is found, within 5 pixels."""
    middle = np.full(2, (TEMPLATE - 1) / 2)
    correct: dict[str, list[bool]] = {"caloric": [], "normalized cross-correlation": []}
    seconds: dict[str, list[float]] = {name: [] for name in correct}
    for i in range(count):
        progress(f"templates {i + 1}/{count}")
        case, candidates, expected = template_problem(photos, seed + i)
        truth = case.truth[:, :2] @ middle + case.truth[:, 2]
        started = time.perf_counter()
        match = templates.find_template(case.image, candidates, model="affine")
        seconds["caloric"].append(time.perf_counter() - started)
        position = match.alignment.transform[:, :2] @ middle + match.alignment.transform[:, 2]
        correct["caloric"].append(
            match.template == expected and bool(np.hypot(*(position - truth)) < 5)
        )
        started = time.perf_counter()
        index, center = correlation(case.image, candidates)
        seconds["normalized cross-correlation"].append(time.perf_counter() - started)
        near = bool(np.hypot(*(center - truth)) < 5)
        correct["normalized cross-correlation"].append(index == expected and near)
    return {
        name: {"share": float(np.mean(correct[name])),
               "mean seconds": float(np.mean(seconds[name])), "cases": count}
        for name in correct
    }  # fmt: skip


_CAMERA = ("K", "R_world_to_cam", "centre")


def _fundamental(first: Report, second: Report) -> FloatArray:
    """Return the fundamental matrix (3, 3) of two cameras."""
    a, b = (Camera(*(np.array(camera[name]) for name in _CAMERA)) for camera in (first, second))
    return fundamental(a, b)


def refining(directory: Path, progress: Log, max_features: int = 4000) -> Report:
    """Return the epipolar errors of verified matches before and after refinement."""
    cameras = json.loads((directory / "cameras.json").read_text())
    names = sorted(cameras)
    progress(f"features of {directory.name}")
    images = {name: read_image(directory / "images" / name) for name in names}
    features = {name: pipeline.extract(images[name], max_features=max_features) for name in names}
    before, after, moved, seconds, farthest = [], [], [], 0.0, 0.0
    for i, first in enumerate(names):
        for second in names[i + 1 : i + 3]:
            progress(f"{directory.name}: {first} {second}")
            a, b = features[first], features[second]
            plain = pipeline.match(a, b)
            started = time.perf_counter()
            refined = pipeline.match(a, b, refine=True, images=(images[first], images[second]))
            seconds += time.perf_counter() - started
            good = verify(a, b, plain, model="fundamental").inliers
            assert refined.refined is not None
            F = _fundamental(cameras[first], cameras[second])
            p = a.frames.xy[plain.indices[good, 0]]
            frames = b.frames[plain.indices[good, 1]]
            q = refined.refined[good, :, 2]
            before.append(residual(p, frames.xy, "fundamental", F))
            after.append(residual(p, q, "fundamental", F))
            shift = np.linalg.norm(q - frames.xy, axis=1)
            moved.append(shift > 0)
            farthest = max(farthest, float((shift / frames.sigma).max()))
    errors_before, errors_after = np.concatenate(before), np.concatenate(after)
    return {
        "matches": len(errors_before),
        "median error before": float(np.median(errors_before)),
        "median error after": float(np.median(errors_after)),
        "lower by": 1 - float(np.median(errors_after) / np.median(errors_before)),
        "moved": float(np.concatenate(moved).mean()),
        "farthest move in sigmas": farthest,
        "milliseconds a match, with matching": 1000 * seconds / len(errors_before),
    }


SECTIONS = ("cells", "hard", "confidence", "settings", "templates", "refine")


def run(
    data: Path, strecha: list[Path], count: int, seed: int, only: Sequence[str], progress: Log
) -> Report:
    """Return the report of the requested sections, with versions and data."""
    report: Report = {}
    photos = photographs(data) if set(only) - {"refine"} else Photographs([], [])
    about = {"versions": versions(), "photographs": len(photos.pixels), "seed": seed}
    sections = {"cells": cells, "hard": hard, "confidence": align_confidence.measured,
                "settings": settings, "templates": finding}  # fmt: skip
    for name, section in sections.items():
        if name in only:
            report[name] = {"about": about, **section(photos, count, seed, progress)}
    if "refine" in only:
        report["refine"] = {"about": about} | {f.name: refining(f, progress) for f in strecha}
    return report
