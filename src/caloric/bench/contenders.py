"""The extractors that ``caloric bench pairs`` compares."""

import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench.methods import colmap_sift
from caloric.bench.pair_data import Gray
from caloric.descriptor import normalize
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.interop import colmap_command
from caloric.types import FloatArray

COUNT = 2048  # features per image


@dataclass(frozen=True, eq=False)
class Extracted:
    """Features of one image: frames, strongest first, and descriptors (n, d)."""

    frames: Frames
    descriptors: NDArray[Any]
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Contender:
    """A feature extractor with its usual match filter.

    ``ratio`` is the threshold of the ratio test. If ``caloric`` is set, :func:`caloric.match` does
    the filtering instead. If ``refine`` is set, filtered matches are refined.
    """

    name: str
    extract: Callable[[Gray, str], Extracted]
    ratio: float | None = None
    caloric: bool = False
    refine: bool = False


def ours(name: str, count: int = COUNT, refine: bool = True, **options: Any) -> Contender:
    """Return Caloric with options of :func:`caloric.extract`; matches are refined by default."""

    def extract(image: Gray, _: str) -> Extracted:
        features = pipeline.extract(image, max_features=count, **options)
        return Extracted(features.frames, features.descriptors)

    return Contender(name, extract, caloric=True, refine=refine)


def opencv(count: int = COUNT, refine: bool = False) -> Contender:
    """Return OpenCV's SIFT with RootSIFT normalization and a ratio test at 0.8."""

    def extract(image: Gray, _: str) -> Extracted:
        sift = cv2.SIFT_create(nfeatures=count)  # type: ignore[attr-defined]
        keypoints, values = sift.detectAndCompute(image, None)
        order = sorted(range(len(keypoints)), key=lambda i: -keypoints[i].response)
        if not order:
            return Extracted(Frames.empty(), np.zeros((0, 128), np.float32))
        frames = Frames.from_opencv([keypoints[i] for i in order])
        return Extracted(frames, normalize.root(values[order].astype(np.float32)))

    name = "OpenCV RootSIFT, refined" if refine else "OpenCV RootSIFT"
    return Contender(name, extract, ratio=0.8, refine=refine)


def colmap(count: int = COUNT) -> Contender:
    """Return COLMAP's SIFT (pycolmap or the executable) with a ratio test at 0.8."""
    has_pycolmap = util.find_spec("pycolmap") is not None
    sift = colmap_sift(count) if has_pycolmap else None

    def extract(image: Gray, _: str) -> Extracted:
        if sift is not None:
            rows, values = sift.extract(np.ascontiguousarray(image))
        else:
            rows, values = _run_executable(image, count)
        frames = Frames.from_colmap(np.asarray(rows, np.float64))
        # COLMAP reports no scores, and keeps the largest features if there are too many.
        order = np.argsort(-frames.sigma, kind="stable")
        return Extracted(frames[order], normalize.l2(np.asarray(values, np.float32)[order]))

    return Contender("COLMAP SIFT", extract, ratio=0.8)


def _run_executable(image: Gray, count: int) -> tuple[FloatArray, NDArray[np.uint8]]:
    with tempfile.TemporaryDirectory() as root:
        directory, database = Path(root) / "images", Path(root) / "database.db"
        directory.mkdir()
        cv2.imwrite(str(directory / "image.png"), image)
        colmap_command.call(
            "feature_extractor", "--database_path", database, "--image_path", directory,
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
    """Return the features of an HDF5 file in hloc's format: keypoints (n, 2), descriptors (d, n).

    Images are named by their path relative to the root of the data set. Matches are not filtered,
    as is usual for learned features.
    """
    import h5py

    file = h5py.File(path, "r")

    def extract(_: Gray, key: str) -> Extracted:
        if key not in file:
            raise InputError(f"{path}: contains no image {key!r}")
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
        if scores is None:
            scores = np.zeros(len(xy), np.float32)
        return Extracted(Frames(maps, scores), values)

    return Contender(path.stem, extract)


def default_contenders(count: int = COUNT) -> list[Contender]:
    """Return variants of Caloric, OpenCV, and COLMAP if it is installed."""
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
