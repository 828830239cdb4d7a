"""Verification, matching and retrieval on the patches of HPatches, at three levels of noise.

``<sequence>/ref.png`` and ``e1..e5, h1..h5, t1..t5.png`` are columns of 65 x 65 patches; patch i of
each file shows the same point. The official lists of pairs are not part of the data, so pairs are
drawn by a seeded generator. All scores are mean average precisions:

* verification: whether two patches correspond, with five negative pairs for each positive one, half
  of them from the same sequence
* matching: nearest neighbors of the patches of ref in each other file, as in the other benchmarks
* retrieval: the five counterparts of a patch of ref among many distractors
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench.metrics import Interval, average_precision, bootstrap
from caloric.descriptor import engine, normalize
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image.inputs import read_image
from caloric.matching.neighbors import match_descriptors
from caloric.types import FloatArray

SIZE = 65
NOISE = {"easy": "e", "hard": "h", "tough": "t"}
_DISTRACTORS = 5000
Patches = NDArray[np.uint8]
Describe = Callable[[Patches], NDArray[Any]]


def load(directory: Path, max_patches: int) -> dict[str, dict[str, Patches]]:
    """Return the patches (n, 65, 65) by sequence and file, at most ``max_patches`` per file."""
    if max_patches < 2:
        raise InputError(f"--max-patches must be at least 2, got {max_patches}")
    names = ["ref", *(f"{letter}{k}" for letter in NOISE.values() for k in range(1, 6))]
    sequences = {}
    for scene in sorted(p.parent for p in directory.glob("*/ref.png")):
        stacks = {}
        for name in names:
            column = read_image(scene / f"{name}.png")
            if column.ndim != 2 or column.shape[1] != SIZE or column.shape[0] % SIZE:
                raise InputError(f"{scene / name}.png: not a column of 65 x 65 patches")
            stacks[name] = np.asarray(column, np.uint8).reshape(-1, SIZE, SIZE)[:max_patches]
        if len({len(stack) for stack in stacks.values()}) > 1:
            raise InputError(f"{scene}: files have different numbers of patches")
        sequences[scene.name] = stacks
    if len(sequences) == 1:
        raise InputError(f"{directory}: contains one sequence; at least two are needed")
    if not sequences:
        raise InputError(
            f"{directory}: contains no <sequence>/ref.png; are these the patches of HPatches?"
        )
    return sequences


def opencv_sift(patches: Patches) -> NDArray[Any]:
    """Return RootSIFT of patches, with a keypoint whose 4 x 4 cells cover the patch."""
    sift = cv2.SIFT_create()  # type: ignore[attr-defined]
    center = cv2.KeyPoint((SIZE - 1) / 2, (SIZE - 1) / 2, SIZE / 6, 0, 1, 0)
    values = np.concatenate([sift.compute(patch, [center])[1] for patch in patches])
    return np.asarray(normalize.root(values))


def methods() -> dict[str, Describe]:
    """Return the descriptors: the default, OpenCV's, and Caloric's kernels."""

    def by_kernel(name: str) -> Describe:
        return lambda patches: engine.describe_patches(patches, name)

    # The half-width of a patch is five times the scale of its keypoint.
    frame = Frames.from_xysa((SIZE - 1) / 2, (SIZE - 1) / 2, SIZE / 2 / 5)

    def default(patches: Patches) -> NDArray[Any]:
        return np.concatenate([pipeline.describe(patch, frame) for patch in patches])

    kernels = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity")
    result = {"caloric": default, "OpenCV SIFT, root": opencv_sift}
    return result | {name: by_kernel(name) for name in kernels}


@dataclass(frozen=True)
class Line:
    """The scores of a method by task and noise level, and the leads of the default."""

    method: str
    scores: dict[str, Interval]
    leads: dict[str, Interval]


def _distance(a: NDArray[Any], b: NDArray[Any]) -> FloatArray:
    return np.asarray(np.linalg.norm(a.astype(np.float64) - b, axis=1))


def _verification(
    ref: NDArray[Any], others: list[NDArray[Any]], pool: NDArray[Any], rng: np.random.Generator
) -> float:
    positive = np.concatenate([_distance(ref, other) for other in others])
    negative = []
    for other in others:
        for _ in range(5):
            shift = 1 + rng.integers(max(1, len(ref) - 1))
            same_sequence = np.roll(other, shift, 0)
            other_sequence = pool[rng.integers(len(pool), size=len(ref))]
            is_same = (rng.random(len(ref)) < 0.5)[:, None]
            negative.append(_distance(ref, np.where(is_same, same_sequence, other_sequence)))
    # Negative pairs come first, so that they win ties: the sort is stable.
    distance = np.concatenate([*negative, positive])
    is_positive = np.arange(len(distance)) >= len(distance) - len(positive)
    return average_precision(distance, is_positive, len(positive))


def _matching(ref: NDArray[Any], others: list[NDArray[Any]]) -> float:
    scores = []
    for other in others:
        matches = match_descriptors(ref, other, mutual=False, ratio=None)
        is_correct = matches.indices[:, 0] == matches.indices[:, 1]
        distances = matches.distances.astype(np.float64)
        scores.append(average_precision(distances, is_correct, len(ref)))
    return float(np.mean(scores))


def _retrieval(ref: NDArray[Any], others: list[NDArray[Any]], pool: NDArray[Any]) -> float:
    negative = np.linalg.norm(ref[:, None].astype(np.float32) - pool[None], axis=2)
    positive = np.stack([_distance(ref, other) for other in others], 1)
    distances = np.concatenate([negative, positive], 1)
    is_positive = np.arange(distances.shape[1]) >= negative.shape[1]
    return float(
        np.mean([average_precision(row, is_positive, positive.shape[1]) for row in distances])
    )


def run(
    directory: Path, max_patches: int, progress: Callable[[str], None] = lambda message: None
) -> list[Line]:
    """Return the scores of every method, with intervals over sequences."""
    scenes = load(directory, max_patches)
    lines = []
    base: dict[str, list[float]] = {}
    for method, describe in methods().items():
        values = {
            scene: {name: describe(stack) for name, stack in stacks.items()}
            for scene, stacks in scenes.items()
        }
        rng = np.random.default_rng(0)
        scores: dict[str, list[float]] = {}
        for scene, sequence in values.items():
            pool = np.concatenate([v["ref"] for other, v in values.items() if other != scene])
            pool = pool[rng.permutation(len(pool))[:_DISTRACTORS]]
            first = slice(0, 100)
            for noise, letter in NOISE.items():
                others = [sequence[f"{letter}{k}"] for k in range(1, 6)]
                tasks = {
                    "verification": _verification(sequence["ref"], others, pool, rng),
                    "matching": _matching(sequence["ref"], others),
                    "retrieval": _retrieval(
                        sequence["ref"][first], [o[first] for o in others], pool
                    ),
                }
                for task, value in tasks.items():
                    scores.setdefault(f"{task} {noise}", []).append(value)
        progress(method)
        base = base or scores
        intervals = {k: bootstrap(np.array(v)) for k, v in scores.items()}
        leads = {k: bootstrap(np.array(base[k]) - np.array(v)) for k, v in scores.items()}
        lines.append(Line(method, intervals, leads))
    return lines
