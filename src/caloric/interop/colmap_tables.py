"""Write features, matches and geometries to the tables of a COLMAP database with sqlite3.

COLMAP's importers ignore affine shapes, and read image names only up to a space. The tables have
neither limitation, and are the same in COLMAP 3 and 4.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.interop.colmap_model import CAMERA_MODELS, DEFAULT_FOCAL
from caloric.matching.two_views import TwoViews
from caloric.types import FloatArray

# COLMAP's TwoViewGeometry configurations UNCALIBRATED and PLANAR_OR_PANORAMIC.
CONFIGURATIONS = {"fundamental": 3, "homography": 6}
_IMAGES = 2**31 - 1  # pair_id = image_id1 * _IMAGES + image_id2
# The tables of COLMAP 3.8. Later versions add what is missing when they open a database.
_SCHEMA = """
CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    model INTEGER NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL, params BLOB,
    prior_focal_length INTEGER NOT NULL);
CREATE TABLE images (image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
    name TEXT NOT NULL UNIQUE, camera_id INTEGER NOT NULL, prior_qw REAL, prior_qx REAL,
    prior_qy REAL, prior_qz REAL, prior_tx REAL, prior_ty REAL, prior_tz REAL,
    CONSTRAINT image_id_check CHECK(image_id >= 0 and image_id < 2147483647),
    FOREIGN KEY(camera_id) REFERENCES cameras(camera_id));
CREATE UNIQUE INDEX index_name ON images(name);
CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE descriptors (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB,
    FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE);
CREATE TABLE matches (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB);
CREATE TABLE two_view_geometries (pair_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB, config INTEGER NOT NULL, F BLOB, E BLOB, H BLOB,
    qvec BLOB, tvec BLOB);
"""


@dataclass(frozen=True, eq=False)
class PairGeometry:
    """A two-view geometry: COLMAP's configuration, and its matrices (3, 3) by column: F, E, H."""

    configuration: int
    matrices: Mapping[str, FloatArray]

    def swapped(self) -> "PairGeometry":
        """Return the geometry with the two images exchanged."""
        matrices = {
            name: np.asarray(np.linalg.pinv(matrix) if name == "H" else matrix.T, np.float64)
            for name, matrix in self.matrices.items()
        }
        return PairGeometry(self.configuration, matrices)


@dataclass(frozen=True)
class CameraRow:
    """A camera as it is stored: the id of COLMAP's model, the size, and the parameters as bytes."""

    model: int
    width: int
    height: int
    parameters: bytes
    prior_focal_length: int

    @classmethod
    def default(cls, name: str, width: int, height: int) -> "CameraRow":
        """Return a camera of a model with the parameters that COLMAP assumes without EXIF data."""
        kinds = {kind: (number, *counts) for number, (kind, *counts) in CAMERA_MODELS.items()}
        number, focal_lengths, count = kinds[name]
        parameters = np.zeros(count)
        parameters[:focal_lengths] = DEFAULT_FOCAL * max(width, height)
        parameters[focal_lengths : focal_lengths + 2] = width / 2, height / 2
        if name == "FOV":
            parameters[-1] = 0.01  # its distortion must not be 0
        return cls(number, width, height, parameters.tobytes(), 0)


@contextmanager
def opened(path: Path) -> Iterator["Tables"]:
    """Yield the tables of a database; all changes are in one transaction."""
    with closing(sqlite3.connect(path)) as database, database:
        yield Tables(database)


@contextmanager
def created(path: Path) -> Iterator["Tables"]:
    """Yield the empty tables of a new database; the file must be empty or not exist."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        yield Tables(database)


class Tables:
    """The tables of an open database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        """Read the image ids."""
        self.database = database
        self.numbers = dict(database.execute("SELECT name, image_id FROM images"))

    def add_camera(self, camera: CameraRow) -> int:
        """Add a camera; return its id."""
        number = self.database.execute(
            "INSERT INTO cameras (model, width, height, params, prior_focal_length) "
            "VALUES (?, ?, ?, ?, ?)",
            (camera.model, camera.width, camera.height, camera.parameters,
             camera.prior_focal_length),
        ).lastrowid  # fmt: skip
        assert number is not None
        return number

    def add_image(self, name: str, camera: int, keypoints: NDArray[np.float32]) -> None:
        """Add an image with the id of its camera and keypoints (n, 2), (n, 4) or (n, 6)."""
        cursor = self.database.execute(
            "INSERT INTO images (name, camera_id) VALUES (?, ?)", (name, camera)
        )
        assert cursor.lastrowid is not None
        self.numbers[name] = cursor.lastrowid
        self.database.execute(
            "INSERT INTO keypoints (image_id, rows, cols, data) VALUES (?, ?, ?, ?)",
            (cursor.lastrowid, *keypoints.shape, keypoints.tobytes()),
        )

    def camera_of(self, name: str) -> int:
        """Return the id of the camera of an image."""
        query = "SELECT camera_id FROM images WHERE image_id = ?"
        ((camera,),) = self.database.execute(query, (self.numbers[name],))
        return int(camera)

    def positions(self, name: str) -> FloatArray:
        """Return the positions (n, 2) of the keypoints of an image, in COLMAP's coordinates."""
        query = "SELECT rows, cols, data FROM keypoints WHERE image_id = ?"
        ((rows, columns, data),) = self.database.execute(query, (self.numbers[name],))
        values = np.frombuffer(data or b"", np.float32).reshape(rows, columns)
        return values[:, :2].astype(np.float64)

    def replace_features(
        self, name: str, keypoints: NDArray[np.float32], descriptors: NDArray[np.uint8]
    ) -> None:
        """Replace the keypoints (n, 6) of :meth:`Frames.to_colmap` and descriptors (n, 128)."""
        for table, rows in (("keypoints", keypoints), ("descriptors", descriptors)):
            self._put(table, name, rows)

    def _put(self, table: str, name: str, rows: NDArray[np.generic]) -> None:
        """Write an array to the row of an image in a table, which may have more columns."""
        row = (*rows.shape, rows.tobytes(), self.numbers[name])
        update = f"UPDATE {table} SET rows = ?, cols = ?, data = ? WHERE image_id = ?"
        if self.database.execute(update, row).rowcount == 0:
            columns = "(rows, cols, data, image_id) VALUES (?, ?, ?, ?)"
            self.database.execute(f"INSERT INTO {table} {columns}", row)

    def replace_descriptors(self, values: Mapping[str, NDArray[np.uint8]]) -> None:
        """Replace the descriptors of all images by those of some; delete matches and geometries."""
        described = {number for name, number in self.numbers.items() if name in values}
        self.database.execute("DELETE FROM matches")
        self.database.execute("DELETE FROM two_view_geometries")
        for number in self.numbers.values():
            if number not in described:
                self.database.execute("DELETE FROM descriptors WHERE image_id = ?", (number,))
        for name, rows in values.items():
            self._put("descriptors", name, rows)

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
        self.add_matches(pair.name_a, pair.name_b, pair.matches)
        if pair.matrix is not None:
            column = "F" if pair.model == "fundamental" else "H"
            geometry = PairGeometry(CONFIGURATIONS[pair.model], {column: pair.matrix})
            self.add_geometry(pair.name_a, pair.name_b, pair.inlier_matches, geometry)

    def add_matches(self, name_a: str, name_b: str, matches: NDArray[np.uint32]) -> None:
        """Add the matches (m, 2) of two images."""
        number, is_swapped = self._pair(name_a, name_b)
        self.database.execute(
            "INSERT INTO matches (pair_id, rows, cols, data) VALUES (?, ?, 2, ?)",
            (number, len(matches), _bytes(matches[:, ::-1] if is_swapped else matches)),
        )

    def add_geometry(
        self, name_a: str, name_b: str, inliers: NDArray[np.uint32], geometry: PairGeometry
    ) -> None:
        """Add the geometry of two images, with the matches (k, 2) that agree with it."""
        number, is_swapped = self._pair(name_a, name_b)
        if is_swapped:
            inliers, geometry = inliers[:, ::-1], geometry.swapped()
        columns = "".join(f", {name}" for name in geometry.matrices)
        matrices = [
            np.ascontiguousarray(matrix, np.float64).tobytes()
            for matrix in geometry.matrices.values()
        ]
        self.database.execute(
            f"INSERT INTO two_view_geometries (pair_id, rows, cols, data, config{columns}) "
            f"VALUES (?, ?, 2, ?, ?{', ?' * len(matrices)})",
            (number, len(inliers), _bytes(inliers), geometry.configuration, *matrices),
        )

    def replace_inliers(self, name_a: str, name_b: str, inliers: NDArray[np.uint32]) -> None:
        """Replace the matches (k, 2) that agree with the geometry of two images."""
        number, is_swapped = self._pair(name_a, name_b)
        self.database.execute(
            "UPDATE two_view_geometries SET rows = ?, data = ? WHERE pair_id = ?",
            (len(inliers), _bytes(inliers[:, ::-1] if is_swapped else inliers), number),
        )

    def _pair(self, name_a: str, name_b: str) -> tuple[int, bool]:
        """Return the pair_id, which has the smaller image id first, and whether it swaps them."""
        first, second = self.numbers[name_a], self.numbers[name_b]
        return pair_id(first, second), first > second


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


def pairs(
    database: sqlite3.Connection, table: str = "two_view_geometries"
) -> Iterator[tuple[str, str, NDArray[np.uint32]]]:
    """Yield the names of two images and their matches (k, 2), for each pair with matches."""
    names = dict(database.execute("SELECT image_id, name FROM images"))
    query = f"SELECT pair_id, rows, data FROM {table} WHERE rows > 0"
    for number, rows, data in database.execute(query):
        a, b = (names[i] for i in images_of(number))
        yield a, b, np.frombuffer(data, np.uint32).reshape(rows, 2)


def pair_id(first: int, second: int) -> int:
    """Return the pair_id of two image ids in any order."""
    return min(first, second) * _IMAGES + max(first, second)


def images_of(pair: int) -> tuple[int, int]:
    """Return the two image ids of a pair_id."""
    second = pair % _IMAGES
    return (pair - second) // _IMAGES, second


def _bytes(matches: NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(matches, np.uint32).tobytes()
