"""Tests of the claims of the paper, on the pictures of scikit-image.

(a) The closed forms approximate DSP-SIFT by resampling. Their cost is measured here, side by side;
    the other benchmarks measure their accuracy.
(b) Heat tolerates affine changes better than SIFT and DSP-SIFT, the more so the stronger they are.
    Pictures are changed by I + s·N(0, 1) in each entry; frames follow by the similarity nearest to
    the change, so that the descriptor has to tolerate the rest. Support, dimension and
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
    """Return the descriptors, all on patches of half-width 7.5 σ with 4 x 4 x 8 root entries."""

    def describe_by(name: str, **options: Any) -> Describe:
        recipe = replace(recipes.descriptor(name), sampling=SquarePatch(32, reach=7.5))
        return lambda image, frames: pipeline.describe(image, frames, recipe, **options)

    names = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "similarity", "heat")
    return {name: describe_by(name) for name in names} | {
        "DSP-SIFT by resampling": describe_by("sift", domain_sizes=10)
    }


def follow(frames: Frames, matrix: FloatArray, center: FloatArray) -> Frames:
    """Return circular frames moved by an affine change about ``center``.

    Centers are mapped exactly; shapes are rotated by the polar decomposition and scaled by √det.
    """
    u, _, vt = np.linalg.svd(matrix)
    linear = np.sqrt(np.linalg.det(matrix)) * (u @ vt)
    shapes = linear @ frames.maps[:, :, :2]
    centers = (frames.xy - center) @ matrix.T + center
    return Frames(np.concatenate([shapes, centers[:, :, None]], -1), frames.scores)


@dataclass(frozen=True)
class Claims:
    """``accuracy[method][i]``: mAP and R@1 at STRENGTHS[i]; ``lead``: of heat in mAP.

    ``cost[method]``: seconds relative to ``sift``, as median, least and most.
    """

    accuracy: dict[str, list[dict[str, float]]]
    lead: dict[str, list[dict[str, float]]]
    cost: dict[str, dict[str, float]]


def _score(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float]:
    matches = neighbors(np.ascontiguousarray(a), np.ascontiguousarray(b), None, 0.0)
    right = matches.nearest == np.arange(len(a))
    return average_precision(matches.first.astype(np.float64), right, len(a)), float(right.mean())


def _moved(image: NDArray[np.uint8], matrix: FloatArray, center: FloatArray) -> NDArray[np.uint8]:
    affine = np.column_stack([matrix, center - matrix @ center])
    moved = synthetic.warp(image.astype(np.float32), affine, border=0)
    return np.asarray(np.clip(np.rint(moved), 0, 255), np.uint8)


def _inside(frames: Frames, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which frames have their largest support, 3 · 7.5 σ, inside the image (h, w)."""
    h, w = size
    margin = 3 * 7.5 * frames.sigma
    x, y = frames.xy.T
    return np.asarray((np.minimum(x, y) > margin) & (x < w - 1 - margin) & (y < h - 1 - margin))


@threads.single_threaded_blas
def run(progress: Callable[[str], None] = lambda message: None, pictures: int = 10) -> Claims:
    """Return the results for both claims."""
    chosen = methods()
    scores: dict[str, list[list[tuple[float, float]]]] = {
        n: [[] for _ in STRENGTHS] for n in chosen
    }
    images = [image for image in training.pictures() if min(image.shape) >= 300][:pictures]
    for number, image in enumerate(images):
        keyframes = Frames.from_opencv(opencv_keypoints(image, 3 * _FRAMES))
        h, w = image.shape
        center = np.array([(w - 1) / 2, (h - 1) / 2])
        described = {name: describe(image, keyframes) for name, describe in chosen.items()}
        for draw in range(DRAWS):
            # One direction of change at all strengths, and frames that are inside at all of them.
            change = synthetic.affine_map(np.random.default_rng([number, draw]), STRENGTHS[-1])
            step = (change - np.eye(2)) / STRENGTHS[-1]
            maps = [np.eye(2) + strength * step for strength in STRENGTHS]
            followed = [follow(keyframes, matrix, center) for matrix in maps]
            inside = np.logical_and.reduce([_inside(frames, (h, w)) for frames in followed])
            rows = np.flatnonzero(inside)[:_FRAMES]
            if len(rows) < 50:
                continue
            for i, matrix in enumerate(maps):
                moved = _moved(image, matrix, center)
                for name, describe in chosen.items():
                    values = describe(moved, followed[i][rows])
                    scores[name][i].append(_score(described[name][rows], values))
        progress(f"picture {number + 1} of {len(images)}")
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
    """Return the time of each method relative to sift: interleaved, with the scale space."""
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
