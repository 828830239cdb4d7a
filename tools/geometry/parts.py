"""Parts of photographs: what is accepted without a common part, and what is found with a small one.

The left and the right, or the upper and the lower part of a photograph are 2 % of its size apart,
or have an overlap of 3, 5 or 10 %. Repeated windows and symmetric buildings match each other.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import caloric
from caloric.bench.report import versions
from caloric.runtime import threads
from caloric.types import FloatArray, Log, ModelChoice, Report

OVERLAPS = (-0.02, 0.03, 0.05, 0.1)  # shares of the width or height
MODELS: tuple[ModelChoice, ...] = ("fundamental", "essential", "auto")
_FOCAL = 1.2  # focal length, in widths of the photograph
_MAX_SIZE = 2000  # pixels
_CORRECT = 3.0  # pixels


@dataclass(frozen=True, eq=False)
class Parts:
    """Two parts of a photograph; points of the second are at ``offset`` (x, y) in the first."""

    overlap: float
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]]
    offset: tuple[int, int]
    calibrations: tuple[FloatArray, FloatArray]


def parts(photograph: NDArray[np.uint8]) -> Iterator[Parts]:
    """Yield all parts of a photograph (h, w)."""
    for axis in (1, 0):
        for overlap in OVERLAPS:
            length = photograph.shape[axis]
            end, start = round(length * (0.5 + overlap / 2)), round(length * (0.5 - overlap / 2))
            first, second = (
                np.split(photograph, [end], axis)[0],
                np.split(photograph, [start], axis)[1],
            )
            offset = (start, 0) if axis == 1 else (0, start)
            h, w = photograph.shape
            focal = _FOCAL * max(h, w)
            a = np.array([[focal, 0, w / 2 - 0.5], [0, focal, h / 2 - 0.5], [0, 0, 1]])
            b = a.copy()
            b[:2, 2] -= offset
            images = np.ascontiguousarray(first), np.ascontiguousarray(second)
            yield Parts(overlap, images, offset, (a, b))


def _trial(path: Path) -> list[Report]:
    cv2.setNumThreads(1)
    image = np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), np.uint8)
    factor = min(1.0, _MAX_SIZE / max(image.shape))
    if factor < 1:
        size = round(factor * image.shape[1]), round(factor * image.shape[0])
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    rows: list[Report] = []
    for pair in parts(image):
        features = caloric.extract(list(pair.images))
        matches = caloric.match(
            features[0], features[1], agreement=True, refine=True, images=pair.images
        )
        for model in MODELS:
            result = caloric.verify(
                features[0], features[1], matches, model=model,
                intrinsics=pair.calibrations if model == "essential" else None,
            )  # fmt: skip
            p, q = matches.points(features[0].frames.xy, features[1].frames.xy)
            errors = np.linalg.norm(q + pair.offset - p, axis=1)[result.inliers]
            rows.append({
                "photograph": path.name, "overlap": pair.overlap, "model": model,
                "chosen": result.model, "confidence": round(result.confidence, 3),
                "inliers": len(result), "correct": int((errors < _CORRECT).sum()),
            })  # fmt: skip
    return rows


def run(paths: list[Path], processes: int, log: Log) -> Report:
    """Return what is accepted of all parts of photographs."""
    os.environ[threads.SETTING] = "1"
    rows: list[Report] = []
    with ProcessPoolExecutor(processes) as pool:
        for of_photograph in pool.map(_trial, paths):
            rows.extend(of_photograph)
            log(f"{len(rows)} geometries")
    return {"versions": versions(), "photographs": len(paths), "summary": summary(rows)}


def summary(rows: list[Report]) -> list[Report]:
    """Return the numbers of accepted pairs, and the mean share of their correct inliers."""
    lines: list[Report] = []
    for overlap in OVERLAPS:
        for model in MODELS:
            of_kind = [r for r in rows if r["overlap"] == overlap and r["model"] == model]
            accepted = [row for row in of_kind if row["confidence"] > 0.5]
            shares = [row["correct"] / row["inliers"] for row in accepted]
            lines.append({
                "overlap": overlap, "model": model, "pairs": len(of_kind),
                "accepted": len(accepted),
                "without a common part": [r["photograph"] for r in accepted if overlap < 0],
                "correct inliers": round(float(np.mean(shares)), 3) if shares else None,
            })  # fmt: skip
    return lines
