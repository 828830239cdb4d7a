"""Oxford Affine: 8 sequences of 6 images, 40 pairs. An exam: nothing is ever chosen by it.

Descriptors are compared at the same keypoints: OpenCV's 1,500 strongest. For each pair every
keypoint of the first image takes its nearest neighbour in the second. A match is right when the two
regions overlap by more than half.

* mAP: matches ranked by distance; the precision at each right one, averaged over the keypoints that
  have a counterpart at all
* R@1: the share of those keypoints whose nearest neighbour is right

Detectors and whole pipelines are compared by repeatability, correspondences, and the homography
that comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import features
from caloric.benchmarks.correspondence import corresponding, one_to_one, project
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.matching import match_descriptors
from caloric.reading import read_image
from caloric.theory.gaussians import FloatArray

SEQUENCES = ("bark", "bikes", "boat", "graf", "leuven", "trees", "ubc", "wall")
KEYPOINTS = 1500
Describe = Callable[[NDArray[Any], tuple[Any, ...]], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Sequence:
    """Six images and the homographies from the first to each of the others."""

    name: str
    images: tuple[NDArray[Any], ...]
    homographies: tuple[FloatArray, ...]


def load(folder: Path, name: str) -> Sequence:
    """One sequence from ``folder/name/img1.png .. img6.png, H1to2p .. H1to6p``."""
    if not (folder / name).is_dir():
        raise InputError(
            f"{folder / name}: no such folder; name the copy of Oxford Affine by --data"
        )
    images = tuple(read_image(folder / name / f"img{k}.png") for k in range(1, 7))
    maps = tuple(np.loadtxt(folder / name / f"H1to{k}p") for k in range(2, 7))
    return Sequence(name, images, maps)


def _grey(image: NDArray[Any]) -> NDArray[Any]:
    """As OpenCV's own users would make it."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)) if image.ndim == 3 else image


def opencv_keypoints(image: NDArray[Any]) -> tuple[Any, ...]:
    """The strongest 1,500 of OpenCV's SIFT detector."""
    found = cv2.SIFT_create().detect(_grey(image), None)  # type: ignore[attr-defined]
    order = sorted(found, key=lambda k: (-k.response, k.pt, k.size, k.angle))
    return tuple(order[:KEYPOINTS])


def opencv_sift(root: bool) -> Describe:
    """OpenCV's own descriptor, by Euclidean length or by roots."""

    def describe(image: NDArray[Any], keypoints: tuple[Any, ...]) -> NDArray[Any]:
        values = cv2.SIFT_create().compute(_grey(image), keypoints)[1]  # type: ignore[attr-defined]
        values = values.astype(np.float32)
        if root:
            return np.asarray(np.sqrt(values / np.maximum(values.sum(1, keepdims=True), 1e-9)))
        return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1)[:, None], 1e-9))

    return describe


def caloric_descriptor(name: str, **options: Any) -> Describe:
    """One of ours at the same keypoints."""

    def describe(image: NDArray[Any], keypoints: tuple[Any, ...]) -> NDArray[Any]:
        return features.describe(image, Frames.from_opencv(keypoints), name, **options)

    return describe


PEERS: dict[str, Describe] = {
    "OpenCV SIFT, L2": opencv_sift(root=False),
    "OpenCV SIFT, root": opencv_sift(root=True),
    "DSP-SIFT by resampling, root": caloric_descriptor("sift", domain_sizes=10),
}
OURS = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity", "caloric")


def average_precision(distance: FloatArray, right: NDArray[np.bool_], possible: int) -> float:
    """The mean over ``possible`` of the precision at each right match, nearest first."""
    hits = right[np.argsort(distance, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].sum() / possible) if possible else 0.0


def score(a: NDArray[Any], b: NDArray[Any], truth: NDArray[np.intp]) -> tuple[float, float]:
    """mAP and R@1 of one pair, from descriptors and the pairs of frames that correspond."""
    found = match_descriptors(a, b, mutual=False, ratio=None)
    true = {(int(i), int(j)) for i, j in truth}
    right = np.array([(int(i), int(j)) in true for i, j in found.indices], bool)
    possible = len({i for i, _ in true})
    recall = float(right.sum() / possible) if possible else 0.0
    return average_precision(found.distances.astype(np.float64), right, possible), recall


@dataclass(frozen=True)
class Line:
    """One descriptor's figures, per pair "sequence k" and in the mean."""

    name: str
    pairs: dict[str, tuple[float, float]]

    @property
    def mean(self) -> tuple[float, float]:
        """mAP and R@1 over all pairs."""
        values = np.array(list(self.pairs.values()))
        return float(values[:, 0].mean()), float(values[:, 1].mean())


def descriptors(
    folder: Path,
    names: tuple[str, ...] = (*PEERS, *OURS),
    sequences: tuple[str, ...] = SEQUENCES,
    progress: Callable[[str], None] = lambda message: None,
) -> list[Line]:
    """Every descriptor on every pair, at the same keypoints."""
    methods = {name: PEERS[name] if name in PEERS else caloric_descriptor(name) for name in names}
    scores: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in names}
    for sequence in sequences:
        data = load(folder, sequence)
        points = [opencv_keypoints(image) for image in data.images]
        frames = [Frames.from_opencv(p) for p in points]
        truths = [
            corresponding(frames[0], frames[k], H).indices
            for k, H in enumerate(data.homographies, 1)
        ]
        for name, describe in methods.items():
            values = [describe(i, p) for i, p in zip(data.images, points, strict=True)]
            for k, truth in enumerate(truths, 1):
                scores[name][f"{sequence} {k + 1}"] = score(values[0], values[k], truth)
            progress(f"{sequence}: {name}")
    return [Line(name, pairs) for name, pairs in scores.items()]


@dataclass(frozen=True)
class Pipeline:
    """A detector with its own descriptor, over all pairs."""

    name: str
    repeatability: float
    correspondences: float
    accurate: float


def _corner_error(estimate: FloatArray | None, truth: FloatArray, shape: tuple[int, ...]) -> float:
    if estimate is None:
        return float("inf")
    h, w = shape[:2]
    corners = np.array([[0.0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]])
    return float(
        np.linalg.norm(project(estimate, corners) - project(truth, corners), axis=1).mean()
    )


def _opencv_extract(image: NDArray[Any]) -> tuple[Frames, NDArray[Any]]:
    points = opencv_keypoints(image)
    return Frames.from_opencv(points), opencv_sift(root=True)(image, points)


def _caloric_extract(image: NDArray[Any], descriptor: str) -> tuple[Frames, NDArray[Any]]:
    found = features.extract(image, descriptor, max_features=KEYPOINTS)
    return found.frames, found.descriptors


PIPELINES: dict[str, Callable[[NDArray[Any]], tuple[Frames, NDArray[Any]]]] = {
    "OpenCV SIFT, root": _opencv_extract,
    "caloric's detector, sift": partial(_caloric_extract, descriptor="sift"),
    "caloric": partial(_caloric_extract, descriptor="caloric"),
}


def _visible(frames: Frames, homography: FloatArray, shape: tuple[int, ...]) -> Frames:
    there = project(homography, frames.xy)
    h, w = shape[:2]
    return frames[((there >= 0) & (there <= [w - 1, h - 1])).all(1)]


def pipelines(
    folder: Path,
    sequences: tuple[str, ...] = SEQUENCES,
    progress: Callable[[str], None] = lambda message: None,
) -> list[Pipeline]:
    """Repeatability, correspondences and the share of pairs whose corners are right to 3 pixels.

    Repeatability is over one frame a place: several orientations of one extremum count once.
    """
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PIPELINES}
    for sequence in sequences:
        data = load(folder, sequence)
        for name, extract in PIPELINES.items():
            found = [extract(image) for image in data.images]
            once = [_once(f) for f, _ in found]
            for k, H in enumerate(data.homographies, 1):
                shapes = data.images[0].shape, data.images[k].shape
                a = _visible(once[0], H, shapes[1])
                b = _visible(once[k], np.asarray(np.linalg.inv(H), np.float64), shapes[0])
                common = one_to_one(corresponding(a, b, H))
                (fa, da), (fb, db) = found[0], found[k]
                matches = match_descriptors(da, db, xy_b=fb.xy)
                geometry = features.verify(fa, fb, matches)
                error = _corner_error(geometry.matrix, H, data.images[k].shape)
                share = common / max(1, min(len(a), len(b)))
                results[name].append((share, float(common), float(error < 3)))
            progress(f"{sequence}: {name}, end to end")
    return [Pipeline(name, *np.mean(rows, 0).tolist()) for name, rows in results.items()]


def _once(frames: Frames) -> Frames:
    key = np.round(np.column_stack([frames.xy, frames.sigma]), 3)
    return frames[np.sort(np.unique(key, axis=0, return_index=True)[1])]
