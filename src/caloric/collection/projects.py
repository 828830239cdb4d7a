"""Refine the keypoints of hloc files and COLMAP databases.

Matches are joined into tracks, and the keypoints of each track are aligned with a reference view:
see :mod:`caloric.collection.tracks`. The result is a new file; the project is not changed.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.collection import tracks
from caloric.collection.image_cache import Views
from caloric.collection.refining import Moved, gathered
from caloric.collection.tracks import PairMatches
from caloric.errors import InputError
from caloric.frames import Frames, sigmas
from caloric.image import inputs, reading
from caloric.interop import colmap_tables, hdf5
from caloric.runtime import threads
from caloric.runtime.files import replacing_path
from caloric.types import FloatArray

Positions = dict[str, Moved]


@dataclass(frozen=True, eq=False)
class Project:
    """The keypoint frames (n, 2, 3) of each image, and the matches of pairs.

    Pixel centers are at integer coordinates; the EXIF orientation of the images is ignored.
    """

    maps: dict[str, FloatArray]
    pairs: list[PairMatches]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The refined positions by image, and the unreadable images with the reasons.

    ``keypoints`` is the number of keypoints to refine.
    """

    positions: Positions
    tracks: int
    keypoints: int
    skipped: dict[str, str]

    @property
    def moved(self) -> int:
        """Return the number of moved keypoints."""
        return sum(len(rows) for rows, _ in self.positions.values())


def _circular(xy: FloatArray, sigma: float | FloatArray, angle: float | FloatArray) -> FloatArray:
    return Frames.from_xysa(xy[:, 0], xy[:, 1], np.broadcast_to(sigma, len(xy)), angle).maps


def read_hloc(features: Path, matches: Path, sigma: float) -> Project:
    """Return the keypoints and matches of hloc files.

    ``sigma`` is the scale in pixels of keypoints without ``scales``.
    """
    library = hdf5.h5py()
    maps: dict[str, FloatArray] = {}
    with _opened(library, features) as file:

        def visit(name: str, item: Any) -> None:
            if not name.endswith("/keypoints"):
                return
            group, values = item.parent, np.asarray(item, np.float64)
            if values.size and (values.ndim != 2 or values.shape[1] < 2):
                raise InputError(f"{features}: {name} has shape {values.shape}, not (n, 2)")
            xy = values.reshape(len(values), -1)[:, :2] if values.size else np.zeros((0, 2))
            scale = np.asarray(group["scales"], np.float64) if "scales" in group else sigma
            angle = np.radians(np.asarray(group["oris"], np.float64)) if "oris" in group else 0.0
            maps[name.removesuffix("/keypoints")] = _circular(xy, scale, angle)

        file.visititems(visit)
    if not maps:
        raise InputError(f"{features}: contains no keypoints; is it an hloc feature file?")
    names = {name.replace("/", "-"): name for name in maps}
    if len(names) < len(maps):
        raise InputError(
            f"{features}: two image names are equal after hloc's replacement of / by -; "
            "rename one of the images"
        )
    pairs: list[PairMatches] = []
    with _opened(library, matches) as file:
        for a in file:
            for b in file[a] if isinstance(file[a], library.Group) else ():
                if not isinstance(file[a][b], library.Group) or "matches0" not in file[a][b]:
                    raise InputError(
                        f"{matches}: no matches of {a}, {b}; is it an hloc match file?"
                    )
                if a not in names or b not in names:
                    raise InputError(f"{matches}: the images {a}, {b} are not in {features}")
                nearest = np.asarray(file[a][b]["matches0"], np.int64)
                rows = np.flatnonzero(nearest >= 0)
                score = np.zeros(len(nearest), np.float32)
                if "matching_scores0" in file[a][b]:
                    score = np.asarray(file[a][b]["matching_scores0"], np.float32)
                indices = np.stack([rows, nearest[rows]], 1).astype(np.uint32)
                pairs.append(PairMatches(names[a], names[b], indices, 1 - score[rows]))
    return _checked(Project(maps, pairs), matches)


def _opened(library: Any, path: Path) -> Any:
    try:
        return library.File(path, "r")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError:
        raise InputError(f"{path}: not an HDF5 file") from None


def read_colmap(database: Path, sigma: float) -> Project:
    """Return the keypoints of a COLMAP database, and its matches (only verified ones if any)."""
    keypoints = colmap_tables.keypoints(database)
    try:
        maps = {
            name: (
                Frames.from_colmap(rows).maps
                if rows.shape[1] > 2
                else _circular(rows.astype(np.float64) - 0.5, sigma, 0.0)
            )
            for name, rows in keypoints.items()
        }
        with closing(sqlite3.connect(colmap_tables.read_only(database), uri=True)) as opened:
            names = dict(opened.execute("SELECT image_id, name FROM images"))
            pairs = []
            for table in ("two_view_geometries", "matches"):
                query = f"SELECT pair_id, rows, data FROM {table} WHERE rows > 0"
                for number, rows, data in opened.execute(query):
                    a, b = (names[i] for i in colmap_tables.images_of(number))
                    indices = np.frombuffer(data, np.uint32).reshape(rows, 2)
                    pairs.append(PairMatches(a, b, indices, np.zeros(rows, np.float32)))
                if pairs:
                    break
    except InputError as error:
        raise InputError(f"{database}: {error}") from None
    except (sqlite3.DatabaseError, ValueError, KeyError) as error:
        raise InputError(f"{database}: not a COLMAP database ({error})") from None
    return _checked(Project(maps, pairs), database)


def _checked(project: Project, source: Path) -> Project:
    if not project.pairs:
        raise InputError(f"{source}: contains no matches; match first")
    for pair in project.pairs:
        for name, column in zip((pair.name_a, pair.name_b), pair.matches.T, strict=True):
            if len(column) and column.max() >= len(project.maps.get(name, ())):
                raise InputError(f"{source}: a match index exceeds the keypoints of {name}")
    return project


@threads.single_threaded_blas
def refine(project: Project, directory: Path, progress: Callable[[str, int, int], None]) -> Outcome:
    """Align the keypoints of each track of a project with its reference view."""
    skipped: dict[str, str] = {}
    for name in sorted({name for pair in project.pairs for name in (pair.name_a, pair.name_b)}):
        if not (directory / name).is_file():
            skipped[name] = f"{directory / name}: no such file"
    # A missing image must not become the reference of others.
    readable = [p for p in project.pairs if not {p.name_a, p.name_b} & skipped.keys()]
    joined = tracks.join({name: len(maps) for name, maps in project.maps.items()}, readable)
    scales = {name: sigmas(maps) for name, maps in project.maps.items()}
    pairs = tracks.references(joined, scales)

    def read(name: str) -> tuple[NDArray[np.generic], int]:
        try:
            return inputs.read_image(directory / name), reading.orientation(directory / name)
        except InputError as error:
            skipped[name] = str(error)
            raise

    views = Views(read)
    parts: dict[str, list[Moved]] = {name: [] for name in project.maps}
    for number, ((a, b), features) in enumerate(sorted(pairs.items()), 1):
        if a not in skipped and b not in skipped:
            try:
                chosen, xy = views.refined(
                    a, b, project.maps[a][features[:, 0]], project.maps[b][features[:, 1]]
                )
                parts[b].append((features[chosen, 1], xy[chosen]))
            except InputError:
                if a not in skipped and b not in skipped:
                    raise
        progress("pairs refined", number, len(pairs))
    count = sum(len(v) for v in pairs.values())
    return Outcome(gathered(parts), len(np.unique(joined.track)), count, skipped)


def write_hloc(features: Path, target: Path, positions: Positions) -> None:
    """Write a copy of an hloc feature file with refined keypoints."""
    library = hdf5.h5py()
    with replacing_path(target) as name:
        shutil.copyfile(features, name)
        with library.File(name, "r+") as file:
            for image, (rows, xy) in positions.items():
                old = file[image]["keypoints"]
                keypoints = np.asarray(old, np.float32)  # hloc may store float16: too coarse
                keypoints[rows, :2] = xy
                attributes = dict(old.attrs)
                del file[image]["keypoints"]
                new = file[image].create_dataset("keypoints", data=keypoints)
                for key, value in attributes.items():
                    new.attrs[key] = value


def write_colmap(database: Path, target: Path, positions: Positions) -> None:
    """Write a copy of a COLMAP database with refined keypoints."""
    with replacing_path(target) as name:
        # Unlike a copy of the file, a backup includes what is still in the write-ahead log.
        with (
            closing(sqlite3.connect(colmap_tables.read_only(database), uri=True)) as source,
            closing(sqlite3.connect(name)) as copy,
        ):
            source.backup(copy)
        with closing(sqlite3.connect(name)) as opened, opened:
            numbers = dict(opened.execute("SELECT name, image_id FROM images"))
            for image, (rows, xy) in positions.items():
                query = "SELECT rows, cols, data FROM keypoints WHERE image_id = ?"
                ((count, columns, data),) = opened.execute(query, (numbers[image],))
                keypoints = np.frombuffer(data, np.float32).reshape(count, columns).copy()
                keypoints[rows, :2] = xy + 0.5
                opened.execute(
                    "UPDATE keypoints SET data = ? WHERE image_id = ?",
                    (keypoints.tobytes(), numbers[image]),
                )
