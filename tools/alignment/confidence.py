"""What ``confidence`` is worth: templates of all sizes, textured or not, there or not there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from caloric.alignment import align, confidence, registration
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.image.pixels import to_grey
from caloric.theory.gaussians import FloatArray
from tools.alignment.cases import HARD, RIGHT, TEMPLATE, Photographs, make

SIZES = (24, 32, 48, 64, 96, TEMPLATE)
_FITTED, _TESTED = 1_000_000, 2_000_000  # seeds begin there
_DECAY = 1e-3


@dataclass(frozen=True)
class Trial:
    """One alignment: ``group`` is a size or a condition, ``there`` whether it could be found."""

    group: str
    there: bool
    right: bool
    converged: bool
    evidence: tuple[float, float]


def _trial(photos: Photographs, seed: int, group: str, side: int, there: bool, **how: Any) -> Trial:
    case = make(photos.pixels, "all", 0.5, seed, **how)
    image = case.image
    if not there:
        image = make(photos.elsewhere(case.photograph), "all", 0.5, seed, **how).image
    case = case.middle(side)
    inverted = bool(how.get("inverted"))
    found = align.align(case.template, image, inverted=inverted)
    kind = fields.feature("unsigned-orientation" if inverted else "orientation")
    evidence = (0.0, 1e-6)
    if found.path:
        of = registration.scene_fine(to_grey(case.template), to_grey(image), kind)
        evidence = confidence.evidence(of, found.transform)
    right = there and case.error(found.transform) < RIGHT
    return Trial(group, there, right, found.converged, evidence)


def trials(
    photos: Photographs, count: int, seed: int, told: Callable[[str], None]
) -> Iterator[Trial]:
    """Random squares of every size and textured ones under every condition."""
    for side in SIZES:
        told(f"confidence: {side} px")
        for i in range(count):
            for there in (True, False):
                yield _trial(photos, seed + i, f"{side} px", side, there, textured=False)
    for name, how in HARD.items():
        told(f"confidence: {name}")
        for i in range(count):
            for there in (True, False):
                yield _trial(photos, seed + i, name, TEMPLATE, there, **how)


def fit(found: list[Trial]) -> FloatArray:
    """The coefficients of c, log s and 1 in the log-odds of being right: logistic regression."""
    c, s = np.array([t.evidence for t in found]).T
    X = np.column_stack([c, np.log(s), np.ones(len(c))])
    y = np.array([t.right for t in found], float)
    w = np.zeros(3)
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(X @ w, -30, 30)))
        hessian = (X * (p * (1 - p))[:, None]).T @ X + _DECAY * np.eye(3)
        w = w + np.linalg.solve(hessian, X.T @ (y - p) - _DECAY * w)
    return np.asarray(w)


def _summary(found: list[Trial]) -> dict[str, Any]:
    def share(which: list[Trial], converged: bool) -> float | None:
        return float(np.mean([t.converged == converged for t in which])) if which else None

    there = [t for t in found if t.there]
    wrong = [t for t in there if not t.right]
    return {
        "cases": len(there),
        "right": float(np.mean([t.right for t in there])),
        "wrong": len(wrong),
        "wrong that say so": share(wrong, converged=False),
        "false alarms": share([t for t in there if t.right], converged=False),
        "not there": len(found) - len(there),
        "not there that say so": share([t for t in found if not t.there], converged=False),
    }


def measured(
    photos: Photographs, count: int, seed: int, told: Callable[[str], None]
) -> dict[str, Any]:
    """The coefficients that some trials give, and how the ones in use fare on others."""
    fitted = fit(list(trials(photos, count, seed + _FITTED, told)))
    tested = list(trials(photos, count, seed + _TESTED, told))
    groups = dict.fromkeys(t.group for t in tested)
    return {
        "fitted": fitted.tolist(),
        "used": [SCHEDULE.agreement, SCHEDULE.sharpness, SCHEDULE.offset],
        "groups": {g: _summary([t for t in tested if t.group == g]) for g in groups},
        "all": _summary(tested),
    }
