"""Keypoints, matches and geometries in the tables of a COLMAP database, written by sqlite3.

COLMAP's importers read keypoints without affine shape, and image names only up to a space. The
tables have neither limit, and are the same in COLMAP 3 and 4.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.frames import Frames

Matrix = NDArray[np.float64]
# COLMAP's numbers of two configurations: UNCALIBRATED and PLANAR_OR_PANORAMIC.
CONFIGURATIONS = {"fundamental": 3, "homography": 6}
_IMAGES = 2**31 - 1  # the factor of the first image in the number of a pair


@dataclass(frozen=True, eq=False)
class TwoViews:
    """The matches (m, 2) and distances (m,) of two images, the inlier indices and the matrix."""

    name_a: str
    name_b: str
    matches: NDArray[np.uint32]
    distances: NDArray[np.float32]
    inliers: NDArray[np.uint32]
    matrix: Matrix | None
    model: str

    def swapped(self) -> "TwoViews":
        """Return the same from the second image to the first."""
        matrix = self.matrix
        if matrix is not None:
            back = matrix.T if self.model == "fundamental" else np.linalg.inv(matrix)
            matrix = np.asarray(back, np.float64)
        return TwoViews(
            self.name_b, self.name_a, self.matches[:, ::-1], self.distances, self.inliers, matrix,
            self.model,
        )  # fmt: skip


def write(path: Path, frames: Iterable[tuple[str, Frames]], pairs: Iterable[TwoViews]) -> list[str]:
    """Replace the keypoints of the images of a database, and add pairs, in one transaction.

    Returns the names of images that are not in the database: COLMAP could not read them.
    """
    missing = []
    with closing(sqlite3.connect(path)) as database, database:
        numbers = dict(database.execute("SELECT name, image_id FROM images"))
        for name, keypoints in frames:
            if name not in numbers:
                missing.append(name)
                continue
            rows = keypoints.to_colmap()
            database.execute(
                "UPDATE keypoints SET rows = ?, cols = ?, data = ? WHERE image_id = ?",
                (*rows.shape, rows.tobytes(), numbers[name]),
            )
        for pair in pairs:
            if pair.name_a in numbers and pair.name_b in numbers:
                _write_pair(database, numbers, pair)
    return missing


def _write_pair(database: sqlite3.Connection, numbers: dict[str, int], pair: TwoViews) -> None:
    first, second = numbers[pair.name_a], numbers[pair.name_b]
    if first > second:  # the number of a pair needs the smaller one first
        first, second, pair = second, first, pair.swapped()
    number = first * _IMAGES + second
    database.execute(
        "INSERT INTO matches (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
        (number, len(pair.matches), _bytes(pair.matches)),
    )
    if pair.matrix is None:
        return
    column = "F" if pair.model == "fundamental" else "H"
    inliers = pair.matches[pair.inliers]
    database.execute(
        f"INSERT INTO two_view_geometries (pair_id, rows, cols, data, config, {column}) "
        "VALUES (?, ?, 2, ?, ?, ?)",
        (number, len(inliers), _bytes(inliers), CONFIGURATIONS[pair.model],
         np.ascontiguousarray(pair.matrix, np.float64).tobytes()),
    )  # fmt: skip


def images_of(pair: int) -> tuple[int, int]:
    """Return the numbers of the two images of a pair by its number."""
    second = pair % _IMAGES
    return (pair - second) // _IMAGES, second


def _bytes(matches: NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(matches, np.uint32).tobytes()
