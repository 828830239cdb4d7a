"""Evaluation of every method on every pair, with cached predictions.

For each pair, every frame of the first image is matched with its nearest neighbor in the second. A
match is correct if the two regions have an intersection over union above 0.5: regions of 3σ (the
protocol of our tables), or with the first region scaled to a radius of 30 pixels (Mikolajczyk's
protocol, which the DSP-SIFT paper uses). The metrics are:

* mAP: mean average precision; matches are ranked by descriptor distance, and the precision at each
  correct match is averaged over the frames that have a counterpart
* R@1: the share of those frames whose nearest neighbor is correct
* MMA: mean matching accuracy, the share of mutual nearest neighbors with an error below 1, 3 and 5
  pixels. There is no ratio test: a descriptor with more mutual neighbors may have a lower share
* right: the number of mutual nearest neighbors with an error below 3 pixels
* corners: the share of pairs whose estimated homography has a corner error below 1, 3 and 5 pixels,
  averaged over ratio thresholds from 0.6 to 1
* features: the number of frames of the first image
"""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.bench.correspondence import REGION, corresponding, one_to_one, project
from caloric.bench.datasets import Pair
from caloric.bench.methods import KEYPOINTS, Described, Method, opencv_keypoints
from caloric.bench.metrics import (
    average_precision,
    corner_error,
    correct_matches,
    matching_accuracy,
)
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image.inputs import read_image
from caloric.matching import geometry, neighbors
from caloric.runtime import threads
from caloric.runtime.files import replacing
from caloric.types import FloatArray

RATIOS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
PIXELS = (1.0, 3.0, 5.0)
SAME_POSITION = 10.0  # pixels; the second neighbor must be farther than this from the first
NORMALIZED = 30.0  # pixels; the region radius of Mikolajczyk's protocol


@dataclass(frozen=True, eq=False)
class Prediction:
    """The nearest neighbor and the two smallest distances of each frame of the first image.

    ``corners`` has the corner error of the homography at each of RATIOS, ``kept`` the number of
    matches.
    """

    nearest: NDArray[np.intp]
    first: NDArray[np.float32]
    second: NDArray[np.float32]
    mutual: NDArray[np.bool_]
    corners: FloatArray
    kept: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Result:
    """One method on all pairs: ``metrics[name]`` (pairs,) and corner errors (pairs, ratios)."""

    method: str
    detects: bool
    dimension: int
    metrics: dict[str, FloatArray]
    corners: FloatArray


class Cache:
    """A directory of .npz files, named by a hash of their key."""

    def __init__(self, directory: Path | None) -> None:
        """Open or create the directory; None disables the cache."""
        self.directory = directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def get(
        self, key: str, compute: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Return the arrays of ``key``; compute and store them if missing or unreadable."""
        if self.directory is None:
            return compute()
        path = self.directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except Exception:
            arrays = compute()
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        return arrays


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _protocol() -> str:
    """Return a hash of all that predictions depend on except the method: settings and code."""
    settings = (KEYPOINTS, REGION, NORMALIZED, RATIOS, SAME_POSITION, cv2.__version__)
    code = (_Images, _evaluate, _predict, _repeatability, corresponding, geometry, neighbors)
    sources = [inspect.getsource(part) for part in code]
    return hashlib.sha256(f"{settings} {sources}".encode()).hexdigest()


class _Images:
    """The images of a scene, each read and described once."""

    def __init__(self) -> None:
        self.pixels: dict[Path, NDArray[Any]] = {}
        self.results: dict[tuple[Path, str, bool], Described] = {}
        self.truths: dict[tuple[Path, str], dict[str, NDArray[Any]]] = {}

    def read(self, path: Path) -> NDArray[Any]:
        if path not in self.pixels:
            self.pixels[path] = read_image(path)
        return self.pixels[path]

    def run(self, path: Path, method: Method) -> Described:
        key = (path, method.name, method.detects)
        if key not in self.results:
            image = self.read(path)
            self.results[key] = method.run(image, opencv_keypoints(image))
        return self.results[key]

    def truth(self, pair: Pair, method: Method) -> dict[str, NDArray[Any]]:
        """Return the true correspondences; methods that use the given keypoints share them."""
        key = (pair.second, method.name if method.detects else "")
        if key not in self.truths:
            a, b = self.run(pair.first, method)[0], self.run(pair.second, method)[0]
            self.truths[key] = {
                name: corresponding(a, b, pair.homography, normalized=radius).indices
                for name, radius in (("truth", None), ("truth_normalized", NORMALIZED))
            }
        return self.truths[key]


def _predict(a: Described, b: Described, pair: Pair, shape: tuple[int, ...]) -> Prediction:
    (frames_a, values_a), (frames_b, values_b) = a, b
    if len(frames_a) == 0 or len(frames_b) == 0:
        zeros = np.zeros(len(frames_a), np.float32)
        failed = np.full(len(RATIOS), np.inf)
        unmatched = np.zeros(len(frames_a), np.intp)
        return Prediction(
            unmatched, zeros, zeros, zeros > 0, failed, np.zeros(len(RATIOS), np.intp)
        )
    matches = neighbors.neighbors(
        np.ascontiguousarray(values_a, np.float32),
        np.ascontiguousarray(values_b, np.float32),
        frames_b.xy,
        SAME_POSITION,
    )
    errors, kept = [], []
    for ratio in RATIOS:
        rows = np.flatnonzero(matches.mutual & (matches.first < ratio * matches.second))
        p, q = frames_a.xy[rows], frames_b.xy[matches.nearest[rows]]
        errors.append(corner_error(geometry.estimate(p, q).matrix, pair.homography, shape))
        kept.append(len(rows))
    return Prediction(
        matches.nearest,
        matches.first,
        matches.second,
        matches.mutual,
        np.array(errors),
        np.array(kept),
    )


def _unique(frames: Frames) -> Frames:
    """Return one frame per extremum, whatever its number of orientations."""
    key = np.round(np.column_stack([frames.xy, frames.sigma]), 3)
    return frames[np.sort(np.unique(key, axis=0, return_index=True)[1])]


def _visible(frames: Frames, homography: FloatArray, shape: tuple[int, ...]) -> Frames:
    projected = project(homography, frames.xy)
    h, w = shape[:2]
    return frames[((projected >= 0) & (projected <= [w - 1, h - 1])).all(1)]


def _repeatability(
    a: Frames, b: Frames, pair: Pair, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[float, float]:
    """Return the share and the number of frames with a counterpart, one to one."""
    inverse = np.asarray(np.linalg.inv(pair.homography), np.float64)
    visible_a = _visible(_unique(a), pair.homography, shapes[1])
    visible_b = _visible(_unique(b), inverse, shapes[0])
    common = one_to_one(corresponding(visible_a, visible_b, pair.homography))
    return common / max(1, min(len(visible_a), len(visible_b))), float(common)


def _evaluate(pair: Pair, method: Method, images: _Images) -> dict[str, NDArray[Any]]:
    """Return the predictions and ground truth of a method on a pair, as arrays to cache."""
    a, b = images.run(pair.first, method), images.run(pair.second, method)
    shapes = images.read(pair.first).shape, images.read(pair.second).shape
    prediction = _predict(a, b, pair, shapes[0])
    result = {**vars(prediction), "dimension": np.array(a[1].shape[1])}
    result |= {"xy_a": a[0].xy, "xy_b": b[0].xy}
    if method.detects:
        result["repeated"] = np.array(_repeatability(a[0], b[0], pair, shapes))
    return result | images.truth(pair, method)


def _metrics(pair: Pair, cached: dict[str, NDArray[Any]]) -> dict[str, float]:
    metrics = {}
    for label, truth in (("", cached["truth"]), (", normalized", cached["truth_normalized"])):
        is_correct = correct_matches(cached["nearest"], truth)
        possible = len(np.unique(truth[:, 0]))
        distance = cached["first"].astype(np.float64)
        metrics[f"mAP{label}"] = average_precision(distance, is_correct, possible)
        metrics[f"R@1{label}"] = float(is_correct.sum() / possible) if possible else 0.0
    rows = np.flatnonzero(cached["mutual"])
    p, q = cached["xy_a"][rows], cached["xy_b"][cached["nearest"][rows]]
    shares = matching_accuracy(p, q, pair.homography, PIXELS)
    metrics |= {f"MMA {t:g}": share for t, share in zip(PIXELS, shares, strict=True)}
    metrics["right"] = len(rows) * matching_accuracy(p, q, pair.homography, (3.0,))[0]
    metrics["features"] = float(len(cached["xy_a"]))
    if "repeated" in cached:
        metrics["repeatability"], metrics["correspondences"] = cached["repeated"].tolist()
    return metrics


@threads.single_threaded_blas
def evaluate(
    pairs: list[Pair],
    methods: list[Method],
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> list[Result]:
    """Return the result of every method on all pairs."""
    store = Cache(cache)
    rows: dict[int, list[dict[str, float]]] = {i: [] for i in range(len(methods))}
    corners: dict[int, list[FloatArray]] = {i: [] for i in range(len(methods))}
    dimensions = [0] * len(methods)
    images, scene = _Images(), None
    protocol = _protocol()
    for pair in pairs:
        if pair.first != scene:
            images, scene = _Images(), pair.first
        files = f"{_digest(pair.first)} {_digest(pair.second)} {pair.homography.tolist()}"
        for i, method in enumerate(methods):
            key = f"{protocol} {files} {method.name} {method.detects} {method.version}"
            cached = store.get(key, partial(_evaluate, pair, method, images))
            rows[i].append(_metrics(pair, cached))
            corners[i].append(cached["corners"])
            dimensions[i] = int(cached["dimension"])
        progress(pair.name)
    return [
        Result(
            method.name,
            method.detects,
            dimensions[i],
            {name: np.array([row[name] for row in rows[i]]) for name in rows[i][0]},
            np.array(corners[i]),
        )
        for i, method in enumerate(methods)
    ]
