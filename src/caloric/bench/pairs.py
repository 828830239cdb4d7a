"""The whole way on pairs of photographs: what a user gets, from two files to their geometry.

Every contender detects its own features, at most ``count`` per image. For each pair:

* repeatability: the share of frames in view of both images that have a counterpart within 1, 2 and
  3 pixels, among the strongest of each contender, one per place, as many as the one with the fewest
  has in the image
* right: mutual nearest neighbours within 3 pixels of the truth, without and with the contender's
  usual filter; for cameras the distance is to the epipolar line
* error: the median distance of the right matches from the truth, in pixels
* AUC: the area under the curve of recall against the error of the geometry. For homographies that
  is the mean error of the corners, up to 1, 3 and 5 pixels; for cameras the larger of the angles of
  rotation and translation, up to 1, 5 and 10 degrees. The robust estimator is the same for all, at
  the threshold that is best for each contender
* seconds: per image for extraction, per pair for matching
"""

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import util
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric import pipeline
from caloric.bench import datasets
from caloric.bench.correspondence import project
from caloric.bench.methods import colmap_sift, read_grey
from caloric.bench.metrics import bootstrap, corner_error
from caloric.descriptor import normalise
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.interop import colmap_command
from caloric.matching import fitting, geometry
from caloric.matching.neighbours import match_descriptors
from caloric.types import FloatArray

COUNT = 2048
_PLACES = "places"
PIXELS = (1.0, 2.0, 3.0)
CORNERS = (1.0, 3.0, 5.0)  # pixels
ANGLES = (1.0, 5.0, 10.0)  # degrees
THRESHOLDS = (0.5, 1.0, 2.0, 3.0)  # pixels, of the robust estimator
RIGHT = 3.0  # pixels
ERRORS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)  # pixels, of a curve
_SHARES = "share of the filtered matches within these pixels"
CHANGES = 3  # synthetic changes of each photograph

Grey = NDArray[np.uint8]
Report = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Camera:
    """The calibration (3, 3), rotation (3, 3) from the world, and centre (3,) of a camera."""

    calibration: FloatArray
    rotation: FloatArray
    centre: FloatArray


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images with the truth between them: a homography, or two cameras."""

    name: str
    scene: str
    first: Callable[[], Grey]
    second: Callable[[], Grey]
    keys: tuple[str, str]
    truth: FloatArray | tuple[Camera, Camera]


@dataclass(frozen=True, eq=False)
class Found:
    """Features of one image: frames, strongest first, and descriptors (n, d)."""

    frames: Frames
    descriptors: NDArray[Any]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Contender:
    """A way to get features, with the filter of matches that is usual for it.

    ``ratio`` is a plain ratio test against the second neighbour; with ``caloric`` the matches are
    filtered by :func:`caloric.match`. Filtered matches are refined if ``refine``.
    """

    name: str
    extract: Callable[[Grey, str], Found]
    ratio: float | None = None
    caloric: bool = False
    refine: bool = False


# Data.


def _reader(path: Path) -> Callable[[], Grey]:
    return partial(read_grey, path)


def _homographies(layout: str, folder: Path) -> list[Pair]:
    return [
        Pair(p.name, p.first.parent.name, _reader(p.first), _reader(p.second),
             (str(p.first.relative_to(folder)), str(p.second.relative_to(folder))), p.homography)
        for p in datasets.DATASETS[layout](folder)
    ]  # fmt: skip


def _checked_points(folder: Path) -> list[Pair]:
    """Return pairs of planar scenes with checked points: ``<pair>/{1,2}.jpg, points.txt``."""
    pairs = []
    for path in sorted(folder.glob("*/points.txt")):
        points = np.loadtxt(path)
        matrix = np.asarray(cv2.findHomography(points[:, :2], points[:, 2:], 0)[0], np.float64)
        files = [next(path.parent.glob(f"{i}.*")) for i in (1, 2)]
        keys = (str(files[0].relative_to(folder)), str(files[1].relative_to(folder)))
        name = path.parent.name
        pairs.append(Pair(name, name, _reader(files[0]), _reader(files[1]), keys, matrix))
    return pairs


def _cameras(folder: Path) -> list[Pair]:
    """Return all pairs of each scene with ``cameras.json`` and ``images/``."""
    scenes = [folder] if (folder / "cameras.json").is_file() else sorted(folder.iterdir())
    pairs = []
    for scene in scenes:
        if not (scene / "cameras.json").is_file():
            continue
        known = {
            name: Camera(*(np.array(one[k]) for k in ("K", "R_world_to_cam", "centre")))
            for name, one in json.loads((scene / "cameras.json").read_text()).items()
        }
        for a, b in combinations(sorted(known), 2):
            first, second = (_reader(scene / "images" / name) for name in (a, b))
            keys = (f"{scene.name}/{a}", f"{scene.name}/{b}")
            truth = (known[a], known[b])
            pairs.append(Pair(f"{scene.name} {a} {b}", scene.name, first, second, keys, truth))
    return pairs


def _changed(path: Path, number: int, most: int = 1000) -> tuple[Grey, Grey, FloatArray]:
    """Return a photograph, a synthetic view of it, and the homography between them."""
    image = read_grey(path)
    scale = min(1.0, most / max(image.shape))
    if scale < 1:
        image = np.asarray(
            cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        )
    h, w = image.shape
    seed = int.from_bytes(path.name.encode()[-7:], "big") + number
    rng = np.random.default_rng(seed)
    corners = np.array([[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]], np.float64)
    middle = corners.mean(0)
    tilt, axis, turn = np.exp(rng.uniform(0, 0.9)), rng.uniform(0, np.pi), rng.normal(0, 0.35)
    zoom = np.exp(rng.normal(0, 0.3))

    def rotation(a: float) -> FloatArray:
        return np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])

    linear = zoom * rotation(turn + axis) @ np.diag([1 / np.sqrt(tilt), np.sqrt(tilt)])
    moved = (corners - middle) @ (linear @ rotation(-axis)).T + middle
    moved += rng.normal(0, 0.03, (4, 2)) * [w, h]
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32))
    pixels = cv2.GaussianBlur(image.astype(np.float32) / 255, (0, 0), 0.4 * tilt / min(zoom, 1))
    pixels = cv2.warpPerspective(pixels, matrix, (w, h), flags=cv2.INTER_CUBIC)
    gain, gamma = np.exp(rng.normal(-0.1, 0.25)), np.exp(rng.normal(0, 0.3))
    pixels = gain * np.clip(pixels, 0, 1) ** gamma + rng.normal(0, 0.01, pixels.shape)
    changed = np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8)
    return image, changed, np.asarray(matrix, np.float64)


def _synthetic(folder: Path) -> list[Pair]:
    """Return photographs with synthetic changes of viewpoint, scale, light and noise."""
    paths = datasets.photographs(folder)
    if not paths:
        raise InputError(f"{folder}: no photographs and no known data set in it")
    pairs = []
    for path in paths:
        for number in range(CHANGES):
            parts = partial(_changed, path, number)
            pairs.append(
                Pair(
                    f"{path.stem} {number}", path.stem.rsplit("_", 1)[0],
                    lambda parts=parts: parts()[0], lambda parts=parts: parts()[1],  # type: ignore[misc]
                    (path.name, f"{path.name}#{number}"), parts()[2],
                )
            )  # fmt: skip
    return pairs


def read(folder: Path) -> list[Pair]:
    """Return the pairs of a folder, whose layout is recognised by its files."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name the folder of the data set by --data")
    for pattern, layout in (("*/H1to2p", "oxford"), ("*/H_1_2", "hpatches"), ("*/H_*", "fischer")):
        if any(folder.glob(pattern)):
            return _homographies(layout, folder)
    if any(folder.glob("*/points.txt")):
        return _checked_points(folder)
    if (folder / "cameras.json").is_file() or any(folder.glob("*/cameras.json")):
        return _cameras(folder)
    return _synthetic(folder)


# Contenders.


def ours(name: str, count: int = COUNT, refine: bool = True, **options: Any) -> Contender:
    """Return Caloric with options of :func:`caloric.extract`, refined as by default."""

    def extract(image: Grey, _: str) -> Found:
        features = pipeline.extract(image, max_features=count, **options)
        return Found(features.frames, features.descriptors)

    return Contender(name, extract, caloric=True, refine=refine)


def opencv(count: int = COUNT, refine: bool = False) -> Contender:
    """Return OpenCV's SIFT with RootSIFT normalisation and a ratio test at .8."""

    def extract(image: Grey, _: str) -> Found:
        sift = cv2.SIFT_create(nfeatures=count)  # type: ignore[attr-defined]
        keypoints, values = sift.detectAndCompute(image, None)
        order = sorted(range(len(keypoints)), key=lambda i: -keypoints[i].response)
        if not order:
            return Found(Frames.empty(), np.zeros((0, 128), np.float32))
        frames = Frames.from_opencv([keypoints[i] for i in order])
        return Found(frames, normalise.root(values[order].astype(np.float32)))

    name = "OpenCV RootSIFT, refined" if refine else "OpenCV RootSIFT"
    return Contender(name, extract, ratio=0.8, refine=refine)


def colmap(count: int = COUNT) -> Contender:
    """Return COLMAP's SIFT by pycolmap, or by the executable, with a ratio test at .8."""
    by_library = util.find_spec("pycolmap") is not None
    sift = colmap_sift(count) if by_library else None

    def extract(image: Grey, _: str) -> Found:
        if sift is not None:
            rows, values = sift.extract(np.ascontiguousarray(image))
        else:
            rows, values = _by_executable(image, count)
        frames = Frames.from_colmap(np.asarray(rows, np.float64))
        # COLMAP has no strength; where there are too many it keeps the largest.
        order = np.argsort(-frames.sigma, kind="stable")
        return Found(frames[order], normalise.l2(np.asarray(values, np.float32)[order]))

    return Contender("COLMAP SIFT", extract, ratio=0.8)


def _by_executable(image: Grey, count: int) -> tuple[FloatArray, NDArray[np.uint8]]:
    with tempfile.TemporaryDirectory() as place:
        folder, database = Path(place) / "images", Path(place) / "database.db"
        folder.mkdir()
        cv2.imwrite(str(folder / "image.png"), image)
        colmap_command.call(
            "feature_extractor", "--database_path", database, "--image_path", folder,
            "--SiftExtraction.max_num_features", str(count),
            *colmap_command.without_gpu("feature_extractor"),
        )  # fmt: skip
        connection = sqlite3.connect(database)
        ((rows, columns, data),) = connection.execute("SELECT rows, cols, data FROM keypoints")
        keypoints = np.frombuffer(data, np.float32).reshape(rows, columns).astype(np.float64)
        ((rows, columns, data),) = connection.execute("SELECT rows, cols, data FROM descriptors")
        connection.close()
        return keypoints, np.frombuffer(data, np.uint8).reshape(rows, columns)


def from_file(path: Path) -> Contender:
    """Return the features of a file as hloc writes them: keypoints (n, 2), descriptors (d, n).

    Images are named by their path below the data set's folder. Matches are not filtered, as is
    usual for learned features.
    """
    import h5py

    file = h5py.File(path, "r")

    def extract(_: Grey, key: str) -> Found:
        if key not in file:
            raise InputError(f"{path}: no image {key!r} in it")
        group = file[key]
        xy = np.asarray(group["keypoints"], np.float64)[:, :2]
        values = np.asarray(group["descriptors"], np.float32).T
        scores = np.asarray(group["scores"], np.float32) if "scores" in group else None
        if scores is not None:
            order = np.argsort(-scores, kind="stable")
            xy, values, scores = xy[order], values[order], scores[order]
        maps = np.zeros((len(xy), 2, 3))
        maps[:, 0, 0] = maps[:, 1, 1] = 1.0
        maps[:, :, 2] = xy
        none = np.zeros(len(xy), np.float32)
        return Found(Frames(maps, none if scores is None else scores), values)

    return Contender(path.stem, extract)


def default_contenders(count: int = COUNT) -> list[Contender]:
    """Return Caloric in its variants, OpenCV, and COLMAP where it is installed."""
    contenders = [
        ours("caloric", count),
        ours("caloric, affine", count, affine=True),
        ours("caloric, not refined", count, refine=False),
        opencv(count),
        opencv(count, refine=True),
    ]
    if util.find_spec("pycolmap") is not None or colmap_command.executable() is not None:
        contenders.append(colmap(count))
    return contenders


# Measures.


def one_per_place(xy: FloatArray) -> FloatArray:
    """Return the distinct places (m, 2), strongest first; several directions are one place."""
    _, first = np.unique(np.round(xy, 2), axis=0, return_index=True)
    return xy[np.sort(first)]


@dataclass(frozen=True, eq=False)
class Places:
    """The distinct places (n, 2) and (m, 2) of the frames of two images, and the images' shapes."""

    first: FloatArray
    second: FloatArray
    shapes: tuple[Any, Any]


def _add_repeatability(pairs: list[Pair], results: dict[str, list[dict[str, Any]]]) -> None:
    """Replace the places in the results by repeatabilities among equally many of them."""
    for number, pair in enumerate(pairs):
        rows = [figures[number] for figures in results.values()]
        if _PLACES not in rows[0]:
            continue
        places: list[Places] = [row.pop(_PLACES) for row in rows]
        counts = [min(len(v) for v in side) for side in (
            [p.first for p in places], [p.second for p in places])]  # fmt: skip
        for row, found in zip(rows, places, strict=True):
            again = repeatability(
                found.first[: counts[0]], found.second[: counts[1]], np.asarray(pair.truth),
                found.shapes,
            )  # fmt: skip
            row["places compared"] = sum(counts) / 2
            for limit, share in zip(PIXELS, again, strict=True):
                row[f"repeatability {limit:g} px"] = share


def _inside(xy: FloatArray, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    h, w = shape[:2]
    return np.asarray((xy >= 0).all(1) & (xy[:, 0] <= w - 1) & (xy[:, 1] <= h - 1))


def repeatability(
    a: FloatArray, b: FloatArray, matrix: FloatArray, shapes: tuple[Any, Any]
) -> list[float]:
    """Return the share of frames with a counterpart within 1, 2 and 3 pixels, one to one."""
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    forth, back = project(matrix, a), project(inverse, b)
    a_in_b, b = forth[_inside(forth, shapes[1])], b[_inside(back, shapes[0])]
    if min(len(a_in_b), len(b)) == 0:
        return [0.0] * len(PIXELS)
    to_b, nearest_b = cKDTree(b).query(a_in_b)
    _, nearest_a = cKDTree(a_in_b).query(b)
    mutual = nearest_a[nearest_b] == np.arange(len(a_in_b))
    return [float((mutual & (to_b <= t)).sum()) / min(len(a_in_b), len(b)) for t in PIXELS]


def fundamental(a: Camera, b: Camera) -> FloatArray:
    """Return the fundamental matrix (3, 3): x_b^T F x_a = 0."""
    rotation, translation = relative_pose(a, b)
    tx, ty, tz = translation
    cross = np.array([[0, -tz, ty], [tz, 0, -tx], [-ty, tx, 0]])
    inverse_a, inverse_b = np.linalg.inv(a.calibration), np.linalg.inv(b.calibration)
    return np.asarray(inverse_b.T @ cross @ rotation @ inverse_a)


def relative_pose(a: Camera, b: Camera) -> tuple[FloatArray, FloatArray]:
    """Return rotation (3, 3) and translation (3,) from the first camera to the second."""
    return b.rotation @ a.rotation.T, b.rotation @ (a.centre - b.centre)


def distances(pair: Pair, p: FloatArray, q: FloatArray) -> FloatArray:
    """Return how far matches p, q are from the truth, in pixels (m,)."""
    if isinstance(pair.truth, tuple):
        return fitting.residual(p, q, "fundamental", fundamental(*pair.truth))
    return np.asarray(np.linalg.norm(project(pair.truth, p) - q, axis=1))


def _angle(cosine: float) -> float:
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def pose_error(
    pair: Pair,
    p: FloatArray,
    q: FloatArray,
    threshold: float,
    covariances: FloatArray | None = None,
) -> float:
    """Return the larger error of rotation and translation, in degrees; infinite without a pose."""
    assert isinstance(pair.truth, tuple)
    cameras = [camera.calibration for camera in pair.truth]
    estimate = geometry.estimate(
        p, q, model="essential", threshold=threshold, intrinsics=(cameras[0], cameras[1]),
        covariances=covariances,
    )  # fmt: skip
    if estimate.matrix is None:
        return float("inf")
    unit = [
        cv2.undistortPoints(points[:, None], k, None)[:, 0]
        for points, k in zip((p, q), cameras, strict=True)
    ]
    inliers = estimate.inliers.astype(np.uint8)[:, None].copy()
    _, rotation, translation, _ = cv2.recoverPose(
        estimate.matrix, unit[0], unit[1], np.eye(3), mask=inliers
    )
    truth, direction = relative_pose(*pair.truth)
    turn = _angle((np.trace(rotation @ truth.T) - 1) / 2)
    cosine = float(translation[:, 0] @ direction / np.linalg.norm(direction))
    return max(turn, _angle(cosine))


def shares(errors: FloatArray, limit: float) -> FloatArray:
    """Return what each error (n,) adds to the area under the curve of recall up to a limit."""
    return np.asarray(np.clip(1 - errors / limit, 0, None))


def auc(errors: FloatArray, limit: float) -> float:
    """Return the area under the curve of recall against error up to a limit, as a share."""
    return float(shares(errors, limit).mean())


def _matched(
    contender: Contender, a: Found, b: Found, images: tuple[Grey, Grey], filtered: bool
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return the matched points (m, 2) of both images, and covariances if they are refined."""
    if contender.caloric and filtered:
        both = [
            Features(v.frames, v.descriptors, (image.shape[0], image.shape[1]), "caloric", "")
            for v, image in zip((a, b), images, strict=True)
        ]
        matches = pipeline.match(*both)
    else:
        ratio = contender.ratio if filtered else None
        matches = match_descriptors(a.descriptors, b.descriptors, mutual=True, ratio=ratio)
    first, second = (v.frames[rows] for v, rows in zip((a, b), matches.indices.T, strict=True))
    if not (contender.refine and filtered):
        return first.xy, second.xy, None
    refined = pipeline.refine(*images, first, second)
    return first.xy, refined.xy, refined.covariances


def measure(contender: Contender, pair: Pair, a: Found, b: Found) -> dict[str, Any]:
    """Return all figures of one contender on one pair."""
    images = (pair.first(), pair.second())
    figures: dict[str, Any] = {"features": (len(a.frames) + len(b.frames)) / 2}
    figures["seconds an image"] = (a.seconds + b.seconds) / 2
    planar = not isinstance(pair.truth, tuple)
    if planar:
        # Compared by summarise(), which knows how many frames every contender has.
        figures[_PLACES] = Places(
            one_per_place(a.frames.xy), one_per_place(b.frames.xy),
            (images[0].shape, images[1].shape),
        )  # fmt: skip
    p, q, _ = _matched(contender, a, b, images, filtered=False)
    figures["right"] = int((distances(pair, p, q) <= RIGHT).sum())
    started = time.perf_counter()
    p, q, covariances = _matched(contender, a, b, images, filtered=True)
    figures["seconds a pair"] = time.perf_counter() - started
    off = distances(pair, p, q)
    figures["right, filtered"] = int((off <= RIGHT).sum())
    figures["matches, filtered"] = len(p)
    right = off[off <= RIGHT]
    figures[_SHARES] = [float((off <= x).mean()) if len(off) else 0.0 for x in ERRORS]
    figures["error"] = float(np.median(right)) if len(right) else float("nan")
    for threshold in THRESHOLDS:
        if planar:
            matrix = geometry.estimate(p, q, threshold=threshold, covariances=covariances).matrix
            error = corner_error(matrix, np.asarray(pair.truth), images[0].shape)
        else:
            error = pose_error(pair, p, q, threshold, covariances)
        figures[f"geometry error at {threshold:g} px"] = error
    return figures


def run(
    pairs: list[Pair], contenders: list[Contender], progress: Callable[[str], None]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (name, figures of each pair) of each contender."""
    for contender in contenders:
        cache: dict[str, Found] = {}

        def features(
            read_image: Callable[[], Grey],
            key: str,
            contender: Contender = contender,
            cache: dict[str, Found] = cache,
        ) -> Found:
            if key not in cache:
                image = read_image()
                started = time.perf_counter()
                found = contender.extract(image, key)
                took = time.perf_counter() - started
                cache[key] = Found(found.frames, found.descriptors, took)
            return cache[key]

        rows = []
        for pair in pairs:
            progress(f"{contender.name}: {pair.name}")
            a, b = features(pair.first, pair.keys[0]), features(pair.second, pair.keys[1])
            rows.append(measure(contender, pair, a, b))
        yield contender.name, rows


def summarise(pairs: list[Pair], results: dict[str, list[dict[str, Any]]]) -> Report:
    """Return the mean of every figure with its bootstrap interval over scenes."""
    scenes = [pair.scene for pair in pairs]
    _add_repeatability(pairs, results)
    planar = not isinstance(pairs[0].truth, tuple)
    limits, unit = (CORNERS, "px") if planar else (ANGLES, "degrees")
    report: Report = {"pairs": len(pairs), "scenes": len(set(scenes)), "contenders": {}}
    for name, rows in results.items():
        figures: Report = {}
        for key in rows[0]:
            if key.startswith("geometry"):
                continue
            if key == _SHARES:
                figures[key] = [list(ERRORS), np.mean([row[key] for row in rows], 0).tolist()]
                continue
            values = np.array([row[key] for row in rows], np.float64)
            known = np.isfinite(values)
            if known.any():
                kept = [s for s, ok in zip(scenes, known, strict=True) if ok]
                figures[key] = vars(bootstrap(values[known], kept))
        errors = {
            t: np.array([row[f"geometry error at {t:g} px"] for row in rows]) for t in THRESHOLDS
        }
        best = max(THRESHOLDS, key=lambda t: sum(auc(errors[t], x) for x in limits))
        figures["threshold"] = best
        figures["errors of the geometry, sorted"] = (
            np.sort(np.minimum(errors[best], 1e6)).round(4).tolist()
        )
        for x in limits:
            figures[f"AUC {x:g} {unit}"] = vars(bootstrap(shares(errors[best], x), scenes))
        report["contenders"][name] = figures
    return report


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table that is printed."""
    first = next(iter(report["contenders"].values()))
    columns = [key for key in first if isinstance(first[key], dict)]
    rows = []
    for name, figures in report["contenders"].items():
        cells = [name]
        for key in columns:
            mean = figures[key]["mean"] if key in figures else float("nan")
            cells.append(f"{mean:,.0f}" if mean >= 20 else f"{mean:.3f}")
        rows.append(cells)
    return ["", *columns], rows
