"""Calibration of the confidence on templates of all sizes, present and absent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from caloric.alignment import align, confidence, scenes
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.image.pixels import to_gray
from caloric.types import FloatArray
from tools.alignment.cases import HARD, MAX_ERROR, TEMPLATE, Photographs, make

SIZES = (24, 32, 48, 64, 96, TEMPLATE)
_FITTED, _TESTED = 1_000_000, 2_000_000  # offsets of the seeds
_DECAY = 1e-3  # weight decay of the regression


@dataclass(frozen=True)
class Trial:
    """One alignment; ``group`` is a size or condition, ``present`` whether the image shows it."""

    group: str
    present: bool
    correct: bool
    converged: bool
    evidence: tuple[float, float]


def _trial(
    photos: Photographs, seed: int, group: str, side: int, present: bool, **conditions: Any
) -> Trial:
    case = make(photos.pixels, "all", 0.5, seed, **conditions)
    image = case.image
    if not present:
        others = photos.other_scenes(case.photograph)
        image = make(others, "all", 0.5, seed, **conditions).image
    case = case.cropped(side)
    inverted = bool(conditions.get("inverted"))
    alignment = align.align(case.template, image, inverted=inverted)
    kind = fields.feature("unsigned-orientation" if inverted else "orientation")
    evidence = (0.0, 1e-6)
    if alignment.path:
        scene = scenes.fine_scene(to_gray(case.template), to_gray(image), kind)
        evidence = confidence.evidence(scene, alignment.transform)
    correct = present and case.error(alignment.transform) < MAX_ERROR
    return Trial(group, present, correct, alignment.converged, evidence)


def trials(
    photos: Photographs, count: int, seed: int, progress: Callable[[str], None]
) -> Iterator[Trial]:
    """Yield trials of random squares of each size, and of textured ones under each condition."""
    for side in SIZES:
        progress(f"confidence: {side} px")
        for i in range(count):
            for present in (True, False):
                yield _trial(photos, seed + i, f"{side} px", side, present, textured=False)
    for name, conditions in HARD.items():
        progress(f"confidence: {name}")
        for i in range(count):
            for present in (True, False):
                yield _trial(photos, seed + i, name, TEMPLATE, present, **conditions)


def fit(trials: list[Trial]) -> FloatArray:
    """Return the coefficients (3,) of c, log s and 1 in a logistic regression of success."""
    c, s = np.array([t.evidence for t in trials]).T
    X = np.column_stack([c, np.log(s), np.ones(len(c))])
    y = np.array([t.correct for t in trials], float)
    w = np.zeros(3)
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(X @ w, -30, 30)))
        hessian = (X * (p * (1 - p))[:, None]).T @ X + _DECAY * np.eye(3)
        w = w + np.linalg.solve(hessian, X.T @ (y - p) - _DECAY * w)
    return np.asarray(w)


def _summary(trials: list[Trial]) -> dict[str, Any]:
    def share(selected: list[Trial], converged: bool) -> float | None:
        return float(np.mean([t.converged == converged for t in selected])) if selected else None

    present = [t for t in trials if t.present]
    incorrect = [t for t in present if not t.correct]
    return {
        "cases": len(present),
        "correct": float(np.mean([t.correct for t in present])),
        "incorrect": len(incorrect),
        "incorrect, reported": share(incorrect, converged=False),
        "false alarms": share([t for t in present if t.correct], converged=False),
        "absent": len(trials) - len(present),
        "absent, reported": share([t for t in trials if not t.present], converged=False),
    }


def measured(
    photos: Photographs, count: int, seed: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Return coefficients fitted to some trials, and the results of those in use on others."""
    fitted = fit(list(trials(photos, count, seed + _FITTED, progress)))
    tested = list(trials(photos, count, seed + _TESTED, progress))
    groups = dict.fromkeys(t.group for t in tested)
    return {
        "fitted": fitted.tolist(),
        "used": [SCHEDULE.agreement, SCHEDULE.sharpness, SCHEDULE.offset],
        "groups": {g: _summary([t for t in tested if t.group == g]) for g in groups},
        "all": _summary(tested),
    }
