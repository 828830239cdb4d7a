"""``python -m tools wide``: oblique views, unrelated pairs, and the confidence fitted to both.

Related pairs are photographs and oblique views of them in front of another photograph, with changes
of illumination, noise and compression; unrelated ones are photographs of two scenes. Scenes are in
two halves: coefficients that are fitted to one are tested on the other.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from math import pi
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import caloric
from caloric import pipeline, synthetic
from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.image.pixels import source
from caloric.image.views import BLUR, TILTS, View, seen
from caloric.matching import confidence, neighbors
from caloric.runtime import threads
from caloric.types import FloatArray, Log, Report

LEVELS = (1, *TILTS)
RIGHT = 5.0  # pixels, in the median over the part of the plane that is seen
RENDERED = (1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)  # tilts
_PICTURES = (
    "camera", "coffee", "astronaut", "chelsea", "rocket", "brick", "grass", "gravel", "retina",
    "immunohistochemistry", "hubble_deep_field", "coins", "page", "clock", "moon", "text",
)  # fmt: skip
_SIZE = (640, 800)
_LONGEST = 800
_DECAY = 0.1
_TOLERATED = (1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8, 3.4, 4.0)


@dataclass(frozen=True)
class Job:
    """A pair to match: a photograph and its rendered view, or (tilt 0) another photograph."""

    first: str
    second: str
    tilt: float
    half: int
    seed: int


def scene(path: str) -> str:
    """Return what a photograph shows: the part of its name before its number."""
    return Path(path).stem.rstrip("0123456789").rstrip("_-")


def _photograph(path: str) -> NDArray[np.uint8]:
    if path.startswith("skimage:"):
        from skimage import data

        image = getattr(data, path.removeprefix("skimage:"))()
    else:
        image = caloric.read_image(path)
    gray = cv2.cvtColor(image[..., :3], cv2.COLOR_RGB2GRAY) if image.ndim == 3 else image
    scale = min(1.0, _LONGEST / max(gray.shape))
    return np.asarray(cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))


def oblique(
    plane: NDArray[np.uint8], background: NDArray[np.uint8], tilt: float, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], FloatArray]:
    """Return a random oblique view of a plane in front of another image, and the homography."""
    h, w = plane.shape
    size = (_SIZE[1], _SIZE[0])
    focal = 1.3 * max(h, w)
    axis, roll = rng.uniform(0, 2 * pi, 2)
    distance = focal * rng.uniform(0.9, 1.6)
    view = synthetic.oblique(
        plane.shape, tilt, axis=axis, roll=roll, focal=focal, distance=distance
    )
    corners = np.array([[[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]]], np.float64)
    mapped = cv2.perspectiveTransform(corners, view)[0]
    shift = np.array(size) / 2 - (mapped.min(0) + mapped.max(0)) / 2 + rng.uniform(-60, 60, 2)
    homography = synthetic.translation(shift) @ view
    rendered, opacity = (
        synthetic.render(v, homography, size) / 255 for v in (plane, np.full_like(plane, 255))
    )
    around = cv2.resize(background, size, interpolation=cv2.INTER_AREA) / 255
    pixels = opacity * rendered + (1 - opacity) * around
    gamma, gain = rng.uniform(0.7, 1.4), rng.uniform(0.75, 1)
    changed = synthetic.relit(pixels, gamma, gain, rng.choice([0.005, 0.015, 0.025]), rng)
    return synthetic.compressed(changed, int(rng.integers(75, 95))), homography


def _error(found: FloatArray | None, truth: FloatArray, shape: tuple[int, ...]) -> float:
    """Return the median error of a homography in pixels, where the second image shows the first."""
    if found is None:
        return float("inf")
    h, w = shape
    grid = np.stack(np.meshgrid(np.linspace(0, w - 1, 30), np.linspace(0, h - 1, 30)), -1)
    points = grid.reshape(1, -1, 2)
    there, by_it = (cv2.perspectiveTransform(points, m)[0] for m in (truth, found))
    inside = ((there >= 0) & (there < (_SIZE[1], _SIZE[0]))).all(1)
    return float(np.median(np.linalg.norm(there - by_it, axis=1)[inside]))


def evidence(pair: caloric.ImageMatch, with_frames: bool) -> confidence.Evidence:
    """Return what speaks for the geometry of two images."""
    geometry, (p, q) = pair.geometry, pair.all_points()
    assert geometry.matrix is not None
    frames = None
    if with_frames:
        second = pair.matches.refined
        assert second is not None
        frames = (pair.features_a.frames.maps[pair.matches.indices[:, 0]], second)
    return confidence.evidence(
        confidence.Estimate(
            geometry.model, geometry.matrix, p, q, geometry.residuals, pair.threshold,
            (pair.features_a.image_size, pair.features_b.image_size), frames,
        )
    )  # fmt: skip


def trial(job: Job) -> list[Report]:
    """Return what is found of a pair at each level."""
    first, second = _photograph(job.first), _photograph(job.second)
    truth = None
    if job.tilt:
        rng = np.random.default_rng(job.seed)
        second, truth = oblique(first, second, job.tilt, rng)
    rows = []
    for level in LEVELS:
        pair = caloric.match_images(first, second, views=None if level == 1 else level)
        row: Report = vars(job) | {
            "level": level, "matches": len(pair.matches), "inliers": len(pair), "evidence": {},
        }  # fmt: skip
        error = float("inf") if truth is None else _error(pair.geometry.matrix, truth, first.shape)
        row["right"] = error < RIGHT
        if pair.geometry.matrix is not None:
            for name, with_frames in (("with frames", True), ("without", False)):
                found = evidence(pair, with_frames)
                if np.isfinite(found.power):
                    row["evidence"][name] = [round(term, 4) for term in found.terms]
        epipolar = pipeline.verify(
            pair.features_a, pair.features_b, pair.matches, model="fundamental"
        )
        row["confidence, fundamental"] = epipolar.confidence
        rows.append(row)
    return rows


def jobs(photographs: Sequence[str], count: int, seed: int) -> Iterator[Job]:
    """Yield as many related as unrelated pairs, in two halves that share no scene."""
    rng = np.random.default_rng(seed)
    scenes = sorted({scene(path) for path in photographs})
    half_of = {name: i % 2 for i, name in enumerate(rng.permutation(scenes).tolist())}
    for half in range(2):
        members = [path for path in photographs if half_of[scene(path)] == half]
        others = [(a, b) for a, b in combinations(members, 2) if scene(a) != scene(b)]
        if len(others) < count // 2:
            raise InputError(f"{len(photographs)} photographs give too few unrelated pairs")
        for i in rng.permutation(len(others))[: count // 2]:
            yield Job(others[i][0], others[i][1], 0.0, half, int(rng.integers(1 << 30)))
        for i in rng.integers(0, len(others), count // 2):
            pair = others[i] if rng.random() < 0.5 else others[i][::-1]
            yield Job(
                pair[0], pair[1], float(rng.choice(RENDERED)), half, int(rng.integers(1 << 30))
            )


def fit(rows: list[Report], name: str) -> FloatArray:
    """Return the coefficients (4,) of a logistic regression of "the geometry is right"."""
    terms = np.array([row["evidence"][name] for row in rows])
    right = np.array([row["right"] for row in rows], float)
    scale = np.array([1.0, 10.0, 1.0, 1.0])
    terms = terms / scale

    def loss(w: FloatArray) -> float:
        z = terms @ w
        return float(np.logaddexp(0, z).sum() - (right * z).sum() + _DECAY * (w[1:] ** 2).sum())

    return np.asarray(minimize(loss, np.zeros(4)).x / scale)


def calibration(rows: list[Report], name: str) -> Report:
    """Return coefficients for all, and what those of one half of a run say of its other half."""
    known = [row for row in rows if name in row["evidence"]]
    said, right, related = [], [], []
    for run, half in sorted({(row["run"], row["half"]) for row in known}):
        of_run = [row for row in known if row["run"] == run]
        w = fit([row for row in of_run if row["half"] != half], name)
        tested = [row for row in of_run if row["half"] == half]
        z = np.array([row["evidence"][name] for row in tested]) @ w
        said += (1 / (1 + np.exp(-z))).tolist()
        right += [row["right"] for row in tested]
        related += [row["tilt"] > 0 for row in tested]
    edges = (0, 0.1, 0.5, 0.9, 0.99, 1.0)
    c, ok = np.array(said), np.array(right)
    bins = np.digitize(c, edges[1:-1])
    return {
        "coefficients": fit(known, name).tolist(),
        "bins": [
            {"from": edges[i], "to": edges[i + 1], "geometries": int((bins == i).sum()),
             "right": float(ok[bins == i].mean()) if (bins == i).any() else None}
            for i in range(len(edges) - 1)
        ],
        "above .9": int((c > 0.9).sum()), "of them right": float(ok[c > 0.9].mean()),
        "unrelated, accepted": int((c[~np.array(related)] > 0.5).sum()),
    }  # fmt: skip


def tolerance(photographs: Sequence[str], seed: int) -> Report:
    """Return the share of right matches that are left after a tilt, without views."""
    rng = np.random.default_rng(seed)
    counts = []
    for path in photographs:
        image = _photograph(path)
        a = caloric.extract(image, max_features=1500)
        row = []
        for tilt in _TOLERATED:
            view = View(1, float(rng.uniform(0, pi)))
            turned = seen(source(image), view)
            pixels: Any = turned.read(*(slice(0, n) for n in turned.size))
            if tilt > 1:
                sigma = BLUR * float(np.sqrt(tilt**2 - 1))
                pixels = cv2.sepFilter2D(
                    pixels, -1, cv2.getGaussianKernel(2 * int(4 * sigma) + 3, sigma), np.ones(1)
                )
            squeeze = np.array([[1 / tilt, 0, 0], [0, 1.0, 0]])
            h, w = pixels.shape
            pixels = cv2.warpAffine(
                pixels, squeeze, (int(w / tilt), h), borderMode=cv2.BORDER_REPLICATE
            )
            b = caloric.extract(np.clip(pixels, 0, 1), max_features=1500)
            matches = caloric.match(a, b)
            p, q = matches.points(a.frames.xy, b.frames.xy)
            to = view.to_view(source(image).size)
            there = (p @ to[:, :2].T + to[:, 2]) * (1 / tilt, 1)
            row.append(int((np.linalg.norm(there - q, axis=1) < 3).sum()))
        counts.append(row)
    share = np.array(counts) / np.maximum(np.array(counts)[:, :1], 1)
    return dict(zip(map(str, _TOLERATED), share.mean(0).tolist(), strict=True))


def real(directory: Path) -> Report:
    """Return what is found of pairs with checked points, each in 1.jpg, 2.jpg and points.txt."""
    report = {}
    for place in sorted(p.parent for p in directory.glob("*/points.txt")):
        checked = np.loadtxt(place / "points.txt")
        report[place.name] = _judged(place / "1.jpg", place / "2.jpg", checked)
    return report


def oxford(directory: Path) -> Report:
    """Return what is found of the widest pairs of Oxford Affine, on a grid of points."""
    report = {}
    for name in ("graf", "wall"):
        truth = np.loadtxt(directory / name / "H1to6p")
        first, second = (directory / name / f"img{i}.png" for i in (1, 6))
        h, w = caloric.read_image(first).shape[:2]
        grid = np.stack(np.meshgrid(np.linspace(0, w - 1, 20), np.linspace(0, h - 1, 20)), -1)
        points = grid.reshape(-1, 2)
        there = cv2.perspectiveTransform(points[None], truth)[0]
        inside = ((there >= 0) & (there <= (w - 1, h - 1))).all(1)
        checked = np.concatenate([points[inside], there[inside]], 1)
        report[f"{name} 1-6"] = _judged(first, second, checked, truth)
    return report


def _judged(
    first: Path, second: Path, checked: FloatArray, truth: FloatArray | None = None
) -> Report:
    if truth is None:
        found = cv2.findHomography(checked[:, :2], checked[:, 2:], cv2.LMEDS)[0]
        truth = np.asarray(found, np.float64)
    started = time.perf_counter()
    pair = caloric.match_images(first, second)
    seconds = time.perf_counter() - started
    p, q = pair.all_points()
    there = cv2.perspectiveTransform(p[None], truth)[0]
    report: Report = {
        "level": pair.level, "confidence": pair.geometry.confidence, "inliers": len(pair),
        "seconds": seconds, "reliable": bool(pair),
        "right": int((np.linalg.norm(there - q, axis=1) < RIGHT).sum()),
    }  # fmt: skip
    if pair.geometry.matrix is not None:
        there = cv2.perspectiveTransform(checked[None, :, :2], pair.geometry.matrix)[0]
        report["error"] = float(np.median(np.linalg.norm(there - checked[:, 2:], axis=1)))
    return report


def times(photographs: Sequence[str]) -> Report:
    """Return seconds for unrelated photographs of 800 x 640 and all threads, each step alone."""
    a, b = (cv2.resize(_photograph(path), (800, 640)) for path in photographs[:2])
    report: Report = {"threads": threads.count()}
    for level in LEVELS:
        views = None if level == 1 else level
        best: Report = {}
        for _ in range(2):
            started = time.perf_counter()
            first, second = (caloric.extract(v, views=views) for v in (a, b))
            extracted = time.perf_counter()
            matches = caloric.match(first, second)
            matched = time.perf_counter()
            matches = caloric.match(first, second, refine=True, images=(a, b))
            refined = time.perf_counter()
            caloric.verify(first, second, matches)
            row = {
                "features": len(first), "extract": extracted - started,
                "match": matched - extracted, "verify": time.perf_counter() - refined,
            }  # fmt: skip
            if not best or row["extract"] < best["extract"]:
                best = row
        started = time.perf_counter()
        caloric.match_images(a, b, views=views)
        report[str(level)] = best | {"match_images": time.perf_counter() - started}
    started = time.perf_counter()
    caloric.match_images(a, b)
    report["auto, all levels"] = time.perf_counter() - started
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 30_000, 128)).astype(np.float32)
    for _ in range(2):
        started = time.perf_counter()
        neighbors.match_descriptors(first, second, xy_b=rng.uniform(0, 800, (30_000, 2)))
        report["30,000 by 30,000"] = time.perf_counter() - started
    return report


def run(
    data: Path,
    wide: Path | None,
    oxford_data: Path | None,
    count: int,
    seed: int,
    progress: Log,
) -> Report:
    """Return all figures of wide baselines."""
    files = sorted(str(path) for path in data.iterdir() if path.suffix in (".jpg", ".png"))
    photographs = files
    if find_spec("skimage"):
        photographs = files + [f"skimage:{name}" for name in _PICTURES]
    report: Report = {"about": {"versions": versions(), "threads": threads.count()}}
    progress("times")
    report["times"] = times(files[:: max(len(files) - 1, 1)])
    progress("tolerance")
    report["tolerance"] = tolerance(files[::3], seed)
    for name, directory, judge in (("wide", wide, real), ("oxford", oxford_data, oxford)):
        if directory is not None:
            progress(name)
            report[name] = judge(directory)
    planned = list(jobs(photographs, count, seed))
    rows: list[Report] = []
    before = os.environ.get(threads.SETTING)
    os.environ[threads.SETTING] = "1"  # one process per core
    try:
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for i, found in enumerate(pool.map(trial, planned), 1):
                rows += [row | {"run": seed} for row in found]
                if i % 20 == 0:
                    progress(f"{i} of {len(planned)} pairs")
    finally:
        if before is None:
            del os.environ[threads.SETTING]
        else:
            os.environ[threads.SETTING] = before
    report["pairs"] = rows
    return report
