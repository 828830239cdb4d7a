"""Image pairs with a known homography or known cameras, in the layouts of public data sets."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import synthetic
from caloric.bench import datasets
from caloric.bench.correspondence import project
from caloric.bench.methods import read_gray
from caloric.errors import InputError
from caloric.matching.models import cross, in_pixels, residual
from caloric.runtime.files import check_input_directory
from caloric.synthetic import View
from caloric.types import FloatArray

CHANGES = 3  # synthetic changes per photograph
_MAX_SIDE = 1000  # pixels; larger photographs are reduced before they are changed

Gray = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Camera:
    """Calibration (3, 3), world-to-camera rotation (3, 3) and center (3,) of a camera."""

    calibration: FloatArray
    rotation: FloatArray
    center: FloatArray


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images with their ground truth: a homography, or two cameras."""

    name: str
    scene: str
    first: Callable[[], Gray]
    second: Callable[[], Gray]
    keys: tuple[str, str]
    truth: FloatArray | tuple[Camera, Camera]


def fundamental(a: Camera, b: Camera) -> FloatArray:
    """Return the fundamental matrix (3, 3): x_b^T F x_a = 0."""
    rotation, translation = relative_pose(a, b)
    return in_pixels(cross(translation) @ rotation, (a.calibration, b.calibration))


def relative_pose(a: Camera, b: Camera) -> tuple[FloatArray, FloatArray]:
    """Return rotation (3, 3) and translation (3,) from the first camera to the second."""
    return b.rotation @ a.rotation.T, b.rotation @ (a.center - b.center)


def distances(pair: Pair, p: FloatArray, q: FloatArray) -> FloatArray:
    """Return the errors (m,) of matches p, q in pixels, or their epipolar distances."""
    if isinstance(pair.truth, tuple):
        return np.asarray(residual(p, q, "fundamental", fundamental(*pair.truth)))
    return np.asarray(np.linalg.norm(project(pair.truth, p) - q, axis=1))


def _reader(path: Path) -> Callable[[], Gray]:
    return partial(read_gray, path)


def _homographies(layout: str, directory: Path) -> list[Pair]:
    return [
        Pair(p.name, p.first.parent.name, _reader(p.first), _reader(p.second),
             (str(p.first.relative_to(directory)), str(p.second.relative_to(directory))),
             p.homography)
        for p in datasets.DATASETS[layout](directory)
    ]  # fmt: skip


def _checked_points(directory: Path) -> list[Pair]:
    """Return pairs of planar scenes with verified points: ``<pair>/{1,2}.jpg, points.txt``."""
    pairs = []
    for path in sorted(directory.glob("*/points.txt")):
        points = np.loadtxt(path)
        matrix = np.asarray(cv2.findHomography(points[:, :2], points[:, 2:], 0)[0], np.float64)
        files = [next(path.parent.glob(f"{i}.*")) for i in (1, 2)]
        keys = (str(files[0].relative_to(directory)), str(files[1].relative_to(directory)))
        name = path.parent.name
        pairs.append(Pair(name, name, _reader(files[0]), _reader(files[1]), keys, matrix))
    return pairs


def _cameras(directory: Path) -> list[Pair]:
    """Return all pairs of each scene with ``cameras.json`` and ``images/``."""
    scenes = [directory] if (directory / "cameras.json").is_file() else sorted(directory.iterdir())
    pairs = []
    for scene in scenes:
        if not (scene / "cameras.json").is_file():
            continue
        cameras = {
            name: Camera(*(np.array(entry[k]) for k in ("K", "R_world_to_cam", "centre")))
            for name, entry in json.loads((scene / "cameras.json").read_text()).items()
        }
        for a, b in combinations(sorted(cameras), 2):
            first, second = (_reader(scene / "images" / name) for name in (a, b))
            keys = (f"{scene.name}/{a}", f"{scene.name}/{b}")
            truth = (cameras[a], cameras[b])
            pairs.append(Pair(f"{scene.name} {a} {b}", scene.name, first, second, keys, truth))
    return pairs


def _changed(path: Path, number: int) -> View:
    """Return a photograph and a synthetic view of it, seeded by its name and a number."""
    image = read_gray(path)
    scale = min(1.0, _MAX_SIDE / max(image.shape))
    if scale < 1:
        image = np.asarray(
            cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        )
    rng = np.random.default_rng(int.from_bytes(path.name.encode()[-7:], "big") + number)
    change = synthetic.draw(rng, image.shape)
    return View(image, synthetic.apply(image, change, rng), change.homography)


def _synthetic(directory: Path) -> list[Pair]:
    """Return photographs with synthetic changes of viewpoint, illumination and compression."""
    paths = datasets.photographs(directory)
    if not paths:
        raise InputError(f"{directory}: contains no images and no known data set")
    pairs = []
    for path in paths:
        for number in range(CHANGES):
            view = partial(_changed, path, number)
            pairs.append(
                Pair(
                    f"{path.stem} {number}", path.stem.rsplit("_", 1)[0],
                    lambda view=view: view().original, lambda view=view: view().changed,  # type: ignore[misc]
                    (path.name, f"{path.name}#{number}"), view().homography,
                )
            )  # fmt: skip
    return pairs


def read(directory: Path) -> list[Pair]:
    """Return the pairs of a data set; its layout is recognized by its files."""
    check_input_directory(directory, "; name the directory of the data set with --data")
    for pattern, layout in (("*/H1to2p", "oxford"), ("*/H_1_2", "hpatches"), ("*/H_*", "fischer")):
        if any(directory.glob(pattern)):
            return _homographies(layout, directory)
    if any(directory.glob("*/points.txt")):
        return _checked_points(directory)
    if (directory / "cameras.json").is_file() or any(directory.glob("*/cameras.json")):
        return _cameras(directory)
    return _synthetic(directory)
