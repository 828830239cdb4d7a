"""Tests of the paper's claims on images of scikit-image.

(a) The closed forms approximate DSP-SIFT by resampling. Their cost is measured here; the other
    benchmarks measure their accuracy.
(b) Heat tolerates affine changes better than SIFT and DSP-SIFT, and its lead grows with their
    strength. Images are warped by I + s·N(0, 1) in each entry; frames are moved by the nearest
    similarity, so that the descriptor has to tolerate the rest. Support, dimension and
    normalization are equal; each kernel has the widths of its recipe, and the largest domain of
    resampling has three times the support.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import pipeline, synthetic
from caloric.bench.methods import opencv_keypoints
from caloric.bench.metrics import average_precision, bootstrap
from caloric.descriptor import recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.frames import Frames
from caloric.matching.neighbors import neighbors
from caloric.runtime import threads
from caloric.types import FloatArray
from tools import training

STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
DRAWS = 3
_FRAMES = 400
_REPEATS = 5
Describe = Callable[[NDArray[Any], Frames], NDArray[Any]]


def methods() -> dict[str, Describe]:
    """Return descriptors on patches of half-width 7.5σ, 4 x 4 x 8 entries, root-normalized."""

    def describe_by(name: str, **options: Any) -> Describe:
        recipe = replace(recipes.descriptor(name), sampling=SquarePatch(32, reach=7.5))
        return lambda image, frames: pipeline.describe(image, frames, recipe, **options)

    names = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "similarity", "heat")
    return {name: describe_by(name) for name in names} | {
        "DSP-SIFT by resampling": describe_by("sift", domain_sizes=10)
    }


def move_by_similarity(frames: Frames, matrix: FloatArray, center: FloatArray) -> Frames:
    """Return circular frames moved by the similarity nearest to an affine map about ``center``.

    Centers are mapped exactly; shapes are rotated (polar decomposition) and scaled by √det.
    """
    u, _, vt = np.linalg.svd(matrix)
    linear = np.sqrt(np.linalg.det(matrix)) * (u @ vt)
    shapes = linear @ frames.maps[:, :, :2]
    centers = (frames.xy - center) @ matrix.T + center
    return Frames(np.concatenate([shapes, centers[:, :, None]], -1), frames.scores)


@dataclass(frozen=True)
class Claims:
    """``accuracy[method][i]``: mAP and R@1 at STRENGTHS[i]; ``lead``: that of heat in mAP.

    ``cost[method]``: the time relative to ``sift``: median, minimum and maximum.
    """

    accuracy: dict[str, list[dict[str, float]]]
    lead: dict[str, list[dict[str, float]]]
    cost: dict[str, dict[str, float]]


def _score(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float]:
    matches = neighbors(np.ascontiguousarray(a), np.ascontiguousarray(b), None, 0.0)
    is_correct = matches.nearest == np.arange(len(a))
    precision = average_precision(matches.first.astype(np.float64), is_correct, len(a))
    return precision, float(is_correct.mean())


def _warped(image: NDArray[np.uint8], matrix: FloatArray, center: FloatArray) -> NDArray[np.uint8]:
    affine = np.column_stack([matrix, center - matrix @ center])
    warped = synthetic.warp(image.astype(np.float32), affine, border=0)
    return np.asarray(np.clip(np.rint(warped), 0, 255), np.uint8)


def _inside(frames: Frames, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which frames have the largest domain, 3 · 7.5σ, inside an image (h, w)."""
    h, w = size
    margin = 3 * 7.5 * frames.sigma
    x, y = frames.xy.T
    return np.asarray((np.minimum(x, y) > margin) & (x < w - 1 - margin) & (y < h - 1 - margin))


@threads.single_threaded_blas
def run(progress: Callable[[str], None] = lambda message: None, max_images: int = 10) -> Claims:
    """Return the results for both claims."""
    chosen = methods()
    scores: dict[str, list[list[tuple[float, float]]]] = {
        n: [[] for _ in STRENGTHS] for n in chosen
    }
    images = [image for image in training.sample_images() if min(image.shape) >= 300]
    images = images[:max_images]
    for number, image in enumerate(images):
        keyframes = Frames.from_opencv(opencv_keypoints(image, 3 * _FRAMES))
        h, w = image.shape
        center = np.array([(w - 1) / 2, (h - 1) / 2])
        described = {name: describe(image, keyframes) for name, describe in chosen.items()}
        for draw in range(DRAWS):
            # The same direction of change and the same frames at all strengths.
            change = synthetic.affine_map(np.random.default_rng([number, draw]), STRENGTHS[-1])
            step = (change - np.eye(2)) / STRENGTHS[-1]
            maps = [np.eye(2) + strength * step for strength in STRENGTHS]
            moved = [move_by_similarity(keyframes, matrix, center) for matrix in maps]
            inside = np.logical_and.reduce([_inside(frames, (h, w)) for frames in moved])
            rows = np.flatnonzero(inside)[:_FRAMES]
            if len(rows) < 50:
                continue
            for i, matrix in enumerate(maps):
                warped = _warped(image, matrix, center)
                for name, describe in chosen.items():
                    values = describe(warped, moved[i][rows])
                    scores[name][i].append(_score(described[name][rows], values))
        progress(f"image {number + 1} of {len(images)}")
    lead: dict[str, list[dict[str, float]]] = {}
    for name in chosen:
        if name != "heat":
            pairs = zip(scores["heat"], scores[name], strict=True)
            lead[name] = [
                vars(bootstrap(np.array(heat)[:, 0] - np.array(other)[:, 0]))
                for heat, other in pairs
            ]
    accuracy = {
        name: [dict(zip(("mAP", "R@1"), np.mean(r, 0).tolist(), strict=True)) for r in rows]
        for name, rows in scores.items()
    }
    return Claims(accuracy, lead, _cost(images[0], chosen))


def _cost(image: NDArray[np.uint8], chosen: dict[str, Describe]) -> dict[str, dict[str, float]]:
    """Return the time of each method relative to sift, including the scale space."""
    frames = Frames.from_opencv(opencv_keypoints(image, 1000))
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(_REPEATS):
        for name, describe in chosen.items():
            start = time.perf_counter()
            describe(image, frames)
            seconds[name].append(time.perf_counter() - start)
    base = np.array(seconds["sift"])
    return {
        name: {
            "median": float(np.median(ratio)),
            "least": float(ratio.min()),
            "most": float(ratio.max()),
        }
        for name, ratio in ((n, np.array(s) / base) for n, s in seconds.items())
    }
