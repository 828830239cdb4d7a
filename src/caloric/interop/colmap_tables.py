"""Write features, matches and geometries to the tables of a COLMAP database with sqlite3.

COLMAP's importers ignore affine shapes, and read image names only up to a space. The tables have
neither limitation, and are the same in COLMAP 3 and 4.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.interop.colmap_model import CAMERA_MODELS
from caloric.matching.two_views import TwoViews

# COLMAP's TwoViewGeometry configurations UNCALIBRATED and PLANAR_OR_PANORAMIC.
CONFIGURATIONS = {"fundamental": 3, "homography": 6}
_IMAGES = 2**31 - 1  # pair_id = image_id1 * _IMAGES + image_id2


@contextmanager
def opened(path: Path) -> Iterator["Tables"]:
    """Yield the tables of a database; all changes are in one transaction."""
    with closing(sqlite3.connect(path)) as database, database:
        yield Tables(database)


class Tables:
    """The tables of an open database that already contains the images."""

    def __init__(self, database: sqlite3.Connection) -> None:
        """Read the image ids."""
        self.database = database
        self.numbers = dict(database.execute("SELECT name, image_id FROM images"))

    def replace_features(
        self, name: str, keypoints: NDArray[np.float32], descriptors: NDArray[np.uint8]
    ) -> None:
        """Replace the keypoints (n, 6) of :meth:`Frames.to_colmap` and descriptors (n, 128)."""
        for table, rows in (("keypoints", keypoints), ("descriptors", descriptors)):
            self.database.execute(
                f"UPDATE {table} SET rows = ?, cols = ?, data = ? WHERE image_id = ?",
                (*rows.shape, rows.tobytes(), self.numbers[name]),
            )

    def replace_descriptors(self, values: Mapping[str, NDArray[np.uint8]]) -> None:
        """Replace the descriptors of all images by those of some; delete matches and geometries."""
        described = {number for name, number in self.numbers.items() if name in values}
        self.database.execute("DELETE FROM matches")
        self.database.execute("DELETE FROM two_view_geometries")
        for number in self.numbers.values():
            if number not in described:
                self.database.execute("DELETE FROM descriptors WHERE image_id = ?", (number,))
        for name, rows in values.items():
            row = (*rows.shape, rows.tobytes(), self.numbers[name])
            update = "UPDATE descriptors SET rows = ?, cols = ?, data = ? WHERE image_id = ?"
            if self.database.execute(update, row).rowcount == 0:
                self.database.execute(
                    "INSERT INTO descriptors (rows, cols, data, image_id) VALUES (?, ?, ?, ?)", row
                )

    def share_cameras(self, camera_of: Mapping[str, str]) -> None:
        """Give each image the camera of another image; remove the cameras without images."""
        camera_ids = dict(self.database.execute("SELECT name, camera_id FROM images"))
        first: dict[str, int] = {}  # the first image may be missing, if COLMAP cannot read it
        for name in sorted(self.numbers):
            shared = first.setdefault(camera_of.get(name, name), camera_ids[name])
            self.database.execute(
                "UPDATE images SET camera_id = ? WHERE image_id = ?", (shared, self.numbers[name])
            )
        self.database.execute(
            "DELETE FROM cameras WHERE camera_id NOT IN (SELECT camera_id FROM images)"
        )

    def set_focal(self, focal: float) -> None:
        """Set the focal length of all cameras, in pixels, which COLMAP then takes as known."""
        rows = self.database.execute("SELECT camera_id, model, params FROM cameras").fetchall()
        for number, model, data in rows:
            parameters = np.frombuffer(data, np.float64).copy()
            parameters[: CAMERA_MODELS[model][1]] = focal
            self.database.execute(
                "UPDATE cameras SET params = ?, prior_focal_length = 1 WHERE camera_id = ?",
                (parameters.tobytes(), number),
            )

    def add_pair(self, pair: TwoViews) -> None:
        """Add the matches of two images, and their geometry if they have one."""
        first, second = self.numbers[pair.name_a], self.numbers[pair.name_b]
        if first > second:  # a pair_id has the smaller image id first
            first, second, pair = second, first, pair.swapped()
        number = first * _IMAGES + second
        self.database.execute(
            "INSERT INTO matches (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
            (number, len(pair.matches), _bytes(pair.matches)),
        )
        if pair.matrix is None:
            return
        column = "F" if pair.model == "fundamental" else "H"
        inliers = pair.inlier_matches
        self.database.execute(
            f"INSERT INTO two_view_geometries (pair_id, rows, cols, data, config, {column}) "
            "VALUES (?, ?, 2, ?, ?, ?)",
            (number, len(inliers), _bytes(inliers), CONFIGURATIONS[pair.model],
             np.ascontiguousarray(pair.matrix, np.float64).tobytes()),
        )  # fmt: skip


def read_only(path: Path) -> str:
    """Return the URI of a database that is opened for reading."""
    return f"{path.resolve().as_uri()}?mode=ro"


def keypoints(path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the rows (n, 2), (n, 4) or (n, 6) of the keypoints of each image of a database."""
    if not path.is_file():
        raise InputError(f"{path}: no such database")
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as database:
            query = "SELECT name, rows, cols, data FROM images JOIN keypoints USING (image_id)"
            return {
                name: np.frombuffer(data or b"", np.float32).reshape(rows, columns)
                for name, rows, columns, data in database.execute(query)
            }
    except (sqlite3.DatabaseError, ValueError) as error:
        raise InputError(f"{path}: not a COLMAP database ({error})") from None


def images_of(pair: int) -> tuple[int, int]:
    """Return the two image ids of a pair_id."""
    second = pair % _IMAGES
    return (pair - second) // _IMAGES, second


def _bytes(matches: NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(matches, np.uint32).tobytes()
