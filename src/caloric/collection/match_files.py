"""Keypoints and matches in COLMAP databases and hloc files, read by image and by pair.

Keypoints have the conventions of :mod:`caloric.frames`, in the coordinates of the image files.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.frames import Frames
from caloric.interop import colmap, colmap_tables, hdf5
from caloric.interop.colmap_tables import CameraRow, PairGeometry
from caloric.types import FloatArray

Matches = NDArray[np.uint32]
PairNames = tuple[str, str]
_HDF5 = (".h5", ".hdf5")
_NONE = np.zeros((0, 2), np.uint32)


@dataclass(frozen=True, eq=False)
class Keypoints:
    """Frames (n, 2, 3) of an image; ``has_scale`` says whether scale and orientation are known."""

    maps: FloatArray
    has_scale: bool


@dataclass(frozen=True, eq=False)
class PairContent:
    """The matches (m, 2) of two images, the verified ones (k, 2), and their geometry or None."""

    matches: Matches
    inliers: Matches
    geometry: PairGeometry | None

    def swapped(self) -> "PairContent":
        """Return the content with the two images exchanged."""
        geometry = None if self.geometry is None else self.geometry.swapped()
        return PairContent(self.matches[:, ::-1], self.inliers[:, ::-1], geometry)


class MatchFile(Protocol):
    """An open source of keypoints and matches; the names of a pair are sorted."""

    path: Path
    counts: dict[str, int]  # number of keypoints by image name
    pairs: set[PairNames]

    def camera(self, name: str) -> tuple[int, CameraRow] | None:
        """Return the id and the content of the camera of an image, or None."""

    def size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image, or None if they are not stored."""

    def keypoints(self, name: str, sigma: float) -> Keypoints:
        """Return the keypoints of an image; ``sigma`` is the scale of those without one."""

    def pair(self, name_a: str, name_b: str) -> PairContent:
        """Return the matches of a pair; empty if the file has none."""


@contextmanager
def opened(inputs: tuple[Path, ...]) -> Iterator[MatchFile]:
    """Open a database (one path), or hloc's features and matches (two paths)."""
    if len(inputs) == 1:
        (path,) = inputs
        with closing(connected(path)) as database:
            yield DatabaseFile(path, database)
        return
    features, matches = inputs
    with opened_hdf5(features) as first, opened_hdf5(matches) as second:
        yield HlocFiles(features, matches, first, second)


def resolved(inputs: list[Path]) -> list[tuple[Path, ...]]:
    """Return the files of each source: a database, or hloc's features and matches.

    An input is a database, the store of a collection, of which the exported database is taken, an
    hloc feature file that is followed by its match file, or a directory that contains both.
    """
    files: list[tuple[Path, ...]] = []
    rest = list(inputs)
    while rest:
        path = rest.pop(0)
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        if path.is_dir():
            files.append(_in_directory(path))
        elif path.suffix.lower() not in _HDF5:
            files.append((path,))
        elif _has_matches(path):
            raise InputError(f"{path}: an hloc match file; put its feature file before it")
        elif not rest or rest[0].suffix.lower() not in _HDF5 or not _has_matches(rest[0]):
            raise InputError(f"{path}: an hloc feature file; put its match file after it")
        else:
            files.append((path, rest.pop(0)))
    return files


def _in_directory(directory: Path) -> tuple[Path, ...]:
    database = directory / colmap.DATABASE
    if database.is_file():
        return (database,)
    if (directory / "features").is_dir():
        raise InputError(
            f"{directory}: the collection has no database; write it with "
            f"`caloric collection export {directory} --to colmap`"
        )
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() in _HDF5)
    matches = [path for path in files if _has_matches(path)]
    features = [path for path in files if path not in matches]
    if not files:
        raise InputError(
            f"{directory}: neither a collection nor a directory with hloc files; pass a COLMAP "
            "database, a collection, or hloc feature and match files (.h5)"
        )
    if len(features) != 1 or len(matches) != 1:
        raise InputError(
            f"{directory}: contains {len(features)} hloc feature files and {len(matches)} match "
            "files, expected one each; name the two files instead"
        )
    return features[0], matches[0]


def _has_matches(path: Path) -> bool:
    def kind(name: str) -> str | None:
        last = name.rpartition("/")[2]
        return last if last in ("matches0", "keypoints") else None

    with opened_hdf5(path) as file:
        return bool(file.visit(kind) == "matches0")


def opened_hdf5(path: Path) -> Any:
    """Return an HDF5 file that is opened for reading."""
    library = hdf5.h5py()
    try:
        return library.File(path, "r")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError:
        raise InputError(f"{path}: not an HDF5 file") from None


def connected(path: Path) -> sqlite3.Connection:
    """Return a database that is opened for reading."""
    if not path.is_file():
        raise InputError(f"{path}: no such database")
    return sqlite3.connect(colmap_tables.read_only(path), uri=True)


def circular(xy: FloatArray, sigma: float | FloatArray, angle: float | FloatArray) -> FloatArray:
    """Return circular frames (n, 2, 3) at positions (n, 2)."""
    return Frames.from_xysa(xy[:, 0], xy[:, 1], np.broadcast_to(sigma, len(xy)), angle).maps


def colmap_keypoints(rows: NDArray[np.float32], sigma: float) -> Keypoints:
    """Return the keypoints of COLMAP's rows (n, 2), (n, 4) or (n, 6)."""
    if rows.shape[1] > 2:
        return Keypoints(Frames.from_colmap(rows).maps, True)
    return Keypoints(circular(rows.astype(np.float64) - 0.5, sigma, 0.0), False)


def hloc_keypoints(path: Path, item: Any, sigma: float) -> Keypoints:
    """Return the keypoints of a dataset ``keypoints`` of an hloc feature file."""
    group, values = item.parent, np.asarray(item, np.float64)
    if values.size and (values.ndim != 2 or values.shape[1] < 2):
        raise InputError(f"{path}: {item.name[1:]} has shape {values.shape}, not (n, 2)")
    xy = values.reshape(len(values), -1)[:, :2] if values.size else np.zeros((0, 2))
    scale = np.asarray(group["scales"], np.float64) if "scales" in group else sigma
    angle = np.radians(np.asarray(group["oris"], np.float64)) if "oris" in group else 0.0
    return Keypoints(circular(xy, scale, angle), "scales" in group)


def hloc_images(path: Path, file: Any) -> dict[str, Any]:
    """Return the datasets ``keypoints`` of an hloc feature file by image name."""
    images: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if name.endswith("/keypoints"):
            images[name.removesuffix("/keypoints")] = item

    file.visititems(visit)
    if not images:
        raise InputError(f"{path}: contains no keypoints; is it an hloc feature file?")
    return images


def hloc_pairs(
    features: Path, matches: Path, names: list[str], file: Any
) -> Iterator[tuple[PairNames, Any]]:
    """Yield the image names and the group of each pair of an hloc match file."""
    originals = {name.replace("/", "-"): name for name in names}
    if len(originals) < len(names):
        raise InputError(
            f"{features}: two image names are equal after hloc's replacement of / by -; "
            "rename one of the images"
        )
    group = hdf5.h5py().Group
    for a in file:
        for b in file[a] if isinstance(file[a], group) else ():
            if not isinstance(file[a][b], group) or "matches0" not in file[a][b]:
                raise InputError(f"{matches}: no matches of {a}, {b}; is it an hloc match file?")
            if a not in originals or b not in originals:
                raise InputError(f"{matches}: the images {a}, {b} are not in {features}")
            yield (originals[a], originals[b]), file[a][b]


def hloc_matches(group: Any) -> Matches:
    """Return the matches (m, 2) of a pair of an hloc match file."""
    nearest = np.asarray(group["matches0"], np.int64)
    rows = np.flatnonzero(nearest >= 0)
    return np.stack([rows, nearest[rows]], 1).astype(np.uint32)


def check_indices(path: Path, counts: dict[str, int], names: PairNames, matches: Matches) -> None:
    """Raise an error if a match index exceeds the number of keypoints of its image."""
    for name, column in zip(names, matches.T, strict=True):
        if len(column) and column.max() >= counts.get(name, 0):
            raise InputError(f"{path}: a match index exceeds the keypoints of {name}")


class DatabaseFile:
    """A COLMAP database of any version."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Read the names of images and pairs."""
        self.path, self._database = path, database
        names = dict(self._rows("SELECT image_id, name FROM images"))
        self._numbers = {name: number for number, name in names.items()}
        rows = dict(self._rows("SELECT image_id, rows FROM keypoints"))
        self.counts = {name: rows.get(number, 0) for name, number in self._numbers.items()}
        query = "SELECT pair_id FROM {} WHERE rows > 0"
        self.pairs: set[PairNames] = set()
        for table in ("matches", "two_view_geometries"):
            for (number,) in self._rows(query.format(table)):
                try:
                    a, b = sorted(names[i] for i in colmap_tables.images_of(number))
                except KeyError:
                    raise InputError(f"{path}: {table} has a pair of unknown images") from None
                self.pairs.add((a, b))
        self._cameras = {
            number: CameraRow(*row)
            for number, *row in self._rows(
                "SELECT camera_id, model, width, height, params, prior_focal_length FROM cameras"
            )
        }
        self._camera_of: dict[str, int] = dict(self._rows("SELECT name, camera_id FROM images"))

    def _rows(self, query: str, *parameters: int) -> list[Any]:
        try:
            return self._database.execute(query, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: not a COLMAP database ({error})") from None

    def camera(self, name: str) -> tuple[int, CameraRow] | None:
        """Return the id and the content of the camera of an image, or None."""
        number = self._camera_of.get(name, -1)
        return (number, self._cameras[number]) if number in self._cameras else None

    def size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image, or None if it has no camera."""
        known = self.camera(name)
        return None if known is None else (known[1].width, known[1].height)

    def keypoints(self, name: str, sigma: float) -> Keypoints:
        """Return the keypoints of an image; ``sigma`` is the scale of those without one."""
        query = "SELECT rows, cols, data FROM keypoints WHERE image_id = ?"
        values = np.zeros((0, 6), np.float32)
        for rows, columns, data in self._rows(query, self._numbers[name]):
            try:
                values = np.frombuffer(data or b"", np.float32).reshape(rows, columns)
            except ValueError:
                raise InputError(f"{self.path}: the keypoints of {name} are damaged") from None
        try:
            return colmap_keypoints(values, sigma)
        except InputError as error:
            raise InputError(f"{self.path}: {name}: {error}") from None

    def pair(self, name_a: str, name_b: str) -> PairContent:
        """Return the matches of a pair; empty if the database has none."""
        if name_a not in self._numbers or name_b not in self._numbers:
            return PairContent(_NONE, _NONE, None)
        first, second = self._numbers[name_a], self._numbers[name_b]
        number = colmap_tables.pair_id(first, second)
        names = (name_a, name_b) if first < second else (name_b, name_a)
        matches = inliers = _NONE
        for rows, data in self._rows("SELECT rows, data FROM matches WHERE pair_id = ?", number):
            matches = self._matches(names, rows, data)
        geometry = None
        query = "SELECT rows, data, config, F, E, H FROM two_view_geometries WHERE pair_id = ?"
        for rows, data, configuration, *blobs in self._rows(f"{query} AND rows > 0", number):
            inliers = self._matches(names, rows, data)
            matrices = {
                name: np.frombuffer(blob, np.float64).reshape(3, 3)
                for name, blob in zip("FEH", blobs, strict=True)
                if blob and len(blob) == 72
            }
            geometry = PairGeometry(configuration, matrices)
        content = PairContent(matches, inliers, geometry)
        return content if first < second else content.swapped()

    def _matches(self, names: PairNames, rows: int, data: bytes | None) -> Matches:
        try:
            matches = np.frombuffer(data or b"", np.uint32).reshape(rows, 2)
        except ValueError:
            raise InputError(
                f"{self.path}: the matches of {', '.join(names)} are damaged"
            ) from None
        check_indices(self.path, self.counts, names, matches)
        return matches


class HlocFiles:
    """A feature file and a match file of hloc, which has neither cameras nor geometries."""

    def __init__(self, features: Path, matches: Path, file: Any, match_file: Any) -> None:
        """Read the names of images and pairs."""
        self.path, self._matches_path = features, matches
        self._images = hloc_images(features, file)
        self.counts = {name: len(item) for name, item in self._images.items()}
        self._groups: dict[PairNames, list[tuple[bool, Any]]] = {}
        for (a, b), group in hloc_pairs(features, matches, list(self._images), match_file):
            # hloc may store both (a, b) and (b, a).
            self._groups.setdefault((min(a, b), max(a, b)), []).append((a > b, group))
        self.pairs = set(self._groups)

    def camera(self, name: str) -> None:
        """Return None: hloc files have no cameras."""

    def size(self, name: str) -> tuple[int, int] | None:
        """Return width and height of an image, or None if they are not stored."""
        group = self._images[name].parent if name in self._images else {}
        if "image_size" not in group:
            return None
        width, height = np.asarray(group["image_size"]).ravel().tolist()
        return int(width), int(height)

    def keypoints(self, name: str, sigma: float) -> Keypoints:
        """Return the keypoints of an image; ``sigma`` is the scale of those without one."""
        return hloc_keypoints(self.path, self._images[name], sigma)

    def pair(self, name_a: str, name_b: str) -> PairContent:
        """Return the matches of a pair; empty if the file has none."""
        parts = [_NONE]
        for is_swapped, group in self._groups.get((name_a, name_b), ()):
            matches = hloc_matches(group)
            parts.append(matches[:, ::-1] if is_swapped else matches)
        content = PairContent(np.unique(np.concatenate(parts), axis=0), _NONE, None)
        check_indices(self._matches_path, self.counts, (name_a, name_b), content.matches)
        return content
