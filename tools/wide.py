"""``python -m tools wide``: oblique views, unrelated pairs and real pairs with wide baselines.

A related pair is a photograph and an oblique view of it, rendered in front of another photograph,
with changes of illumination, noise and compression. An unrelated pair shows two scenes.
"""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from math import pi
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

import caloric
from caloric import synthetic, verify
from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.image.pixels import source
from caloric.image.views import BLUR, TILTS, View, render
from caloric.matching import neighbors
from caloric.matching.confidence import CORRECT_ERROR
from caloric.matching.models import mapped
from caloric.runtime import threads
from caloric.types import FloatArray, GeometryModel, Log, Report
from tools.geometry.scenes import scene

LEVELS = (1, *TILTS)
RENDERED = (1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)  # tilts
_SAMPLE_IMAGES = (
    "camera", "coffee", "astronaut", "chelsea", "rocket", "brick", "grass", "gravel", "retina",
    "immunohistochemistry", "hubble_deep_field", "coins", "page", "clock", "moon", "text",
)  # fmt: skip
_SIZE = (640, 800)
_MAX_SIDE = 640
_TOLERATED = (1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8, 3.4, 4.0)


@dataclass(frozen=True)
class Job:
    """A pair to match: a photograph and a view of it, or (tilt 0) another photograph."""

    first: str
    second: str
    tilt: float
    seed: int


def _photograph(path: str) -> NDArray[np.uint8]:
    if path.startswith("skimage:"):
        from skimage import data

        image = getattr(data, path.removeprefix("skimage:"))()
    else:
        image = caloric.read_image(path)
    gray = cv2.cvtColor(image[..., :3], cv2.COLOR_RGB2GRAY) if image.ndim == 3 else image
    scale = min(1.0, _MAX_SIDE / max(gray.shape))
    return np.asarray(cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))


def oblique(
    plane: NDArray[np.uint8], background: NDArray[np.uint8], tilt: float, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], FloatArray]:
    """Return a random oblique view of a plane in front of a background, and the homography."""
    h, w = plane.shape
    size = (_SIZE[1], _SIZE[0])
    focal = 1.3 * max(h, w)
    axis, roll = rng.uniform(0, 2 * pi, 2)
    distance = focal * rng.uniform(0.9, 1.6)
    view = synthetic.oblique(
        plane.shape, tilt, axis=axis, roll=roll, focal=focal, distance=distance
    )
    corners = np.array([[[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]]], np.float64)
    outline = cv2.perspectiveTransform(corners, view)[0]
    shift = np.array(size) / 2 - (outline.min(0) + outline.max(0)) / 2 + rng.uniform(-60, 60, 2)
    homography = synthetic.translation(shift) @ view
    rendered, opacity = (
        synthetic.render(v, homography, size) / 255 for v in (plane, np.full_like(plane, 255))
    )
    resized = cv2.resize(background, size, interpolation=cv2.INTER_AREA) / 255
    pixels = opacity * rendered + (1 - opacity) * resized
    gamma, gain = rng.uniform(0.7, 1.4), rng.uniform(0.75, 1)
    changed = synthetic.relit(pixels, gamma, gain, rng.choice([0.005, 0.015, 0.025]), rng)
    return synthetic.compressed(changed, int(rng.integers(75, 95))), homography


def _error(estimate: FloatArray | None, truth: FloatArray, shape: tuple[int, ...]) -> float:
    """Return the mean error of a homography in pixels over the common field of view."""
    if estimate is None:
        return float("inf")
    h, w = shape
    grid = np.stack(np.meshgrid(np.linspace(0, w - 1, 30), np.linspace(0, h - 1, 30)), -1)
    points = grid.reshape(-1, 2)
    expected = mapped(points, truth)
    inside = ((expected >= 0) & (expected < (_SIZE[1], _SIZE[0]))).all(1)
    return float(np.linalg.norm(mapped(points, estimate) - expected, axis=1)[inside].mean())


def trial(job: Job) -> list[Report]:
    """Return the results of matching a pair without views and with the views that it needs."""
    first, second = _photograph(job.first), _photograph(job.second)
    truth = None
    if job.tilt:
        rng = np.random.default_rng(job.seed)
        second, truth = oblique(first, second, job.tilt, rng)
    choices: tuple[Literal["auto"] | None, ...] = (None, "auto") if job.tilt else ("auto",)
    return [_row(job, first, second, truth, views) for views in choices]


def _row(
    job: Job,
    first: NDArray[np.uint8],
    second: NDArray[np.uint8],
    truth: FloatArray | None,
    views: Literal["auto"] | None,
) -> Report:
    pair = caloric.match_images(first, second, model="homography", views=views)
    error = float("inf") if truth is None else _error(pair.geometry.matrix, truth, first.shape)
    row = vars(job) | {
        "views": views or "none", "level": pair.level, "matches": len(pair.matches),
        "inliers": len(pair), "correct": error < CORRECT_ERROR,
        "homography": round(pair.geometry.confidence, 4),
    }  # fmt: skip
    camera = _camera(first.shape), _camera(second.shape)
    others: tuple[tuple[GeometryModel, Any], ...] = (("fundamental", None), ("essential", camera))
    for model, cameras in others:
        geometry = verify(
            pair.features_a, pair.features_b, pair.matches, model=model, intrinsics=cameras
        )
        row[model] = round(geometry.confidence, 4)
    return row


def _camera(shape: tuple[int, ...]) -> FloatArray:
    """Return the calibration matrix (3, 3) of a camera with a usual field of view."""
    h, w = shape[:2]
    focal = 1.2 * max(h, w)
    return np.array([[focal, 0, w / 2], [0, focal, h / 2], [0, 0, 1]])


def jobs(photographs: Sequence[str], count: int, seed: int) -> Iterator[Job]:
    """Yield equal numbers of unrelated and related pairs."""
    rng = np.random.default_rng(seed)
    others = [(a, b) for a, b in combinations(photographs, 2) if scene(Path(a)) != scene(Path(b))]
    if len(others) < count:
        raise InputError(f"{len(photographs)} photographs have too few unrelated pairs")
    for i in rng.permutation(len(others))[:count]:
        yield Job(others[i][0], others[i][1], 0.0, int(rng.integers(1 << 30)))
    for i in rng.integers(0, len(others), count):
        pair = others[i] if rng.random() < 0.5 else others[i][::-1]
        yield Job(pair[0], pair[1], float(rng.choice(RENDERED)), int(rng.integers(1 << 30)))


def tolerance(photographs: Sequence[str], seed: int) -> Report:
    """Return the share of correct matches that remain after a tilt, without views."""
    rng = np.random.default_rng(seed)
    counts = []
    for path in photographs:
        image = _photograph(path)
        a = caloric.extract(image, max_features=1500)
        row = []
        for tilt in _TOLERATED:
            view = View(1, float(rng.uniform(0, pi)))
            rotated = render(source(image), view)
            pixels: Any = rotated.read(*(slice(0, n) for n in rotated.size))
            if tilt > 1:
                sigma = BLUR * float(np.sqrt(tilt**2 - 1))
                pixels = cv2.sepFilter2D(
                    pixels, -1, cv2.getGaussianKernel(2 * int(4 * sigma) + 3, sigma), np.ones(1)
                )
            compression = np.array([[1 / tilt, 0, 0], [0, 1.0, 0]])
            h, w = pixels.shape
            pixels = cv2.warpAffine(
                pixels, compression, (int(w / tilt), h), borderMode=cv2.BORDER_REPLICATE
            )
            b = caloric.extract(np.clip(pixels, 0, 1), max_features=1500)
            matches = caloric.match(a, b)
            p, q = matches.points(a.frames.xy, b.frames.xy)
            to = view.to_view(source(image).size)
            expected = (p @ to[:, :2].T + to[:, 2]) * (1 / tilt, 1)
            row.append(int((np.linalg.norm(expected - q, axis=1) < 3).sum()))
        counts.append(row)
    share = np.array(counts) / np.maximum(np.array(counts)[:, :1], 1)
    return dict(zip(map(str, _TOLERATED), share.mean(0).tolist(), strict=True))


def real(directory: Path) -> Report:
    """Return results for pairs with verified points: 1.jpg, 2.jpg and points.txt."""
    report = {}
    for pair in sorted(p.parent for p in directory.glob("*/points.txt")):
        checked = np.loadtxt(pair / "points.txt")
        report[pair.name] = _evaluate(pair / "1.jpg", pair / "2.jpg", checked)
    return report


def oxford(directory: Path) -> Report:
    """Return results for the widest pairs of Oxford Affine, on a grid of points."""
    report = {}
    for name in ("graf", "wall"):
        truth = np.loadtxt(directory / name / "H1to6p")
        first, second = (directory / name / f"img{i}.png" for i in (1, 6))
        h, w = caloric.read_image(first).shape[:2]
        grid = np.stack(np.meshgrid(np.linspace(0, w - 1, 20), np.linspace(0, h - 1, 20)), -1)
        points = grid.reshape(-1, 2)
        expected = mapped(points, truth)
        inside = ((expected >= 0) & (expected <= (w - 1, h - 1))).all(1)
        checked = np.concatenate([points[inside], expected[inside]], 1)
        report[f"{name} 1-6"] = _evaluate(first, second, checked, truth)
    return report


def _evaluate(
    first: Path, second: Path, checked: FloatArray, truth: FloatArray | None = None
) -> Report:
    """Return the result of a pair, and the mean error in both orders of the images."""
    if truth is None:
        homography = cv2.findHomography(checked[:, :2], checked[:, 2:], cv2.LMEDS)[0]
        truth = np.asarray(homography, np.float64)
    started = time.perf_counter()
    pair = caloric.match_images(first, second, model="homography")
    seconds = time.perf_counter() - started
    exchanged = caloric.match_images(second, first, model="homography")
    p, q = pair.all_points()
    expected = cv2.perspectiveTransform(p[None], truth)[0]
    return {
        "level": pair.level, "inliers": len(pair), "seconds": seconds,
        "correct": int((np.linalg.norm(expected - q, axis=1) < CORRECT_ERROR).sum()),
        "confidences": [pair.geometry.confidence, exchanged.geometry.confidence],
        "errors": [
            _mean_error(pair.geometry.matrix, checked[:, :2], checked[:, 2:]),
            _mean_error(exchanged.geometry.matrix, checked[:, 2:], checked[:, :2]),
        ],
    }  # fmt: skip


def _mean_error(matrix: FloatArray | None, p: FloatArray, q: FloatArray) -> float | None:
    if matrix is None:
        return None
    return float(np.linalg.norm(mapped(p, matrix) - q, axis=1).mean())


def times(photographs: Sequence[str]) -> Report:
    """Return the times of each step for two unrelated photographs of 800 x 640."""
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
        caloric.match_images(a, b, model="homography", views=views)
        report[str(level)] = best | {"match_images": time.perf_counter() - started}
    started = time.perf_counter()
    caloric.match_images(a, b, model="homography")
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
    """Return all results for wide baselines."""
    files = sorted(str(path) for path in data.iterdir() if path.suffix in (".jpg", ".png"))
    photographs = files
    if find_spec("skimage"):
        photographs = files + [f"skimage:{name}" for name in _SAMPLE_IMAGES]
    report: Report = {
        "about": {
            "versions": versions(), "threads": threads.count(), "platform": platform.machine()
        }
    }  # fmt: skip
    progress("times")
    report["times"] = times(files[:: max(len(files) - 1, 1)])
    progress("tolerance")
    report["tolerance"] = tolerance(files[::3], seed)
    for name, directory, evaluate in (("wide", wide, real), ("oxford", oxford_data, oxford)):
        if directory is not None:
            progress(name)
            report[name] = evaluate(directory)
    planned = list(jobs(photographs, count, seed))
    rows: list[Report] = []
    before = os.environ.get(threads.SETTING)
    os.environ[threads.SETTING] = "1"  # one process per core
    try:
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for i, results in enumerate(pool.map(trial, planned), 1):
                rows += [row | {"run": seed} for row in results]
                if i % 20 == 0:
                    progress(f"{i} of {len(planned)} pairs")
    finally:
        if before is None:
            del os.environ[threads.SETTING]
        else:
            os.environ[threads.SETTING] = before
    report["pairs"] = rows
    return report
