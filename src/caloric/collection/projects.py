"""Refine the keypoints of hloc files and COLMAP databases.

Matches are joined into tracks, and the keypoints of each track are aligned with a reference view:
see :mod:`caloric.collection.tracks`. Refined positions are kept where the matches agree better
than before: see :mod:`caloric.collection.improvement`. The result is a new file; the project is not
changed.
"""

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import checkpoints, match_files, tracks
from caloric.collection.checkpoints import Arrays, Checkpoints
from caloric.collection.image_cache import Views
from caloric.collection.improvement import Moved, improved
from caloric.collection.refining import gathered
from caloric.collection.steps import Progress
from caloric.collection.tracks import PairMatches
from caloric.errors import InputError
from caloric.frames import sigmas
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

    ``keypoints`` is the number of keypoints to refine, ``rejected`` of those that were refined but
    keep their positions, with which their matches agree better.
    """

    positions: Positions
    tracks: int
    keypoints: int
    rejected: int
    skipped: dict[str, str]

    @property
    def moved(self) -> int:
        """Return the number of moved keypoints."""
        return sum(len(rows) for rows, _ in self.positions.values())


def read_hloc(features: Path, matches: Path, sigma: float) -> Project:
    """Return the keypoints and matches of hloc files.

    ``sigma`` is the scale in pixels of keypoints without ``scales``.
    """
    pairs: list[PairMatches] = []
    with (
        match_files.opened_hdf5(features) as file,
        match_files.opened_hdf5(matches) as match_file,
    ):
        images = match_files.hloc_images(features, file)
        maps = {
            name: match_files.hloc_keypoints(features, item, sigma).maps
            for name, item in images.items()
        }
        for (a, b), group in match_files.hloc_pairs(features, matches, list(maps), match_file):
            indices = match_files.hloc_matches(group)
            score = np.zeros(len(group["matches0"]), np.float32)
            if "matching_scores0" in group:
                score = np.asarray(group["matching_scores0"], np.float32)
            pairs.append(PairMatches(a, b, indices, 1 - score[indices[:, 0]]))
    return _checked(Project(maps, pairs), matches)


def read_colmap(database: Path, sigma: float) -> Project:
    """Return the keypoints of a COLMAP database, and its matches (only verified ones if any)."""
    keypoints = colmap_tables.keypoints(database)
    try:
        maps = {
            name: match_files.colmap_keypoints(rows, sigma).maps for name, rows in keypoints.items()
        }
        with closing(match_files.connected(database)) as opened:
            pairs = []
            for table in ("two_view_geometries", "matches"):
                for a, b, indices in colmap_tables.pairs(opened, table):
                    distances = np.zeros(len(indices), np.float32)
                    pairs.append(PairMatches(a, b, indices, distances))
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
    counts = {name: len(maps) for name, maps in project.maps.items()}
    for pair in project.pairs:
        match_files.check_indices(source, counts, (pair.name_a, pair.name_b), pair.matches)
    return project


def missing(names: Iterable[str], directory: Path) -> dict[str, str]:
    """Return the images that a directory does not contain, with the reasons, sorted by name.

    Raise InputError if it contains none of the images.
    """
    images = sorted(set(names))
    result = {
        name: f"{directory / name}: no such file"
        for name in images
        if not (directory / name).is_file()
    }
    if len(result) == len(images):
        raise InputError(f"{directory}: contains none of the images, such as {images[0]}")
    return result


@threads.single_threaded_blas
def refine(project: Project, directory: Path, progress: Progress, unfinished: Path) -> Outcome:
    """Align the keypoints of each track of a project with its reference view.

    ``unfinished`` is a directory in which an interrupted call leaves what it has computed; a later
    call continues there. It is removed at the end.
    """
    names = {name for p in project.pairs for name in (p.name_a, p.name_b)}
    skipped = missing(names, directory)
    try:
        outcome = _refined(project, directory, skipped, progress, unfinished)
    except _UnreadableError:
        for name in sorted(names - skipped.keys()):
            try:
                inputs.read_image(directory / name)
            except InputError as error:
                skipped[name] = str(error)
        outcome = _refined(project, directory, skipped, progress, unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)
    return outcome


_BLOCK = 64  # pairs that are saved together


def _inputs(
    project: Project, pairs: list[tuple[tuple[str, str], NDArray[np.int64]]], directory: Path
) -> Iterator[bytes]:
    """Yield everything that the refined positions depend on."""
    for name, maps in sorted(project.maps.items()):
        yield name.encode() + np.ascontiguousarray(maps).tobytes()
    for (a, b), features in pairs:
        yield f"{a} {b} ".encode() + np.ascontiguousarray(features).tobytes()
    yield from checkpoints.states(directory, sorted(project.maps))


class _UnreadableError(InputError):
    """An image cannot be decoded."""


def _refined(
    project: Project,
    directory: Path,
    skipped: dict[str, str],
    progress: Progress,
    unfinished: Path,
) -> Outcome:
    """Refine the keypoints without the skipped images; raise an error if another is unreadable."""
    # A skipped image must not become the reference of others.
    readable = [p for p in project.pairs if not {p.name_a, p.name_b} & skipped.keys()]
    joined = tracks.join({name: len(maps) for name, maps in project.maps.items()}, readable)
    scales = {name: sigmas(maps) for name, maps in project.maps.items()}
    pairs = tracks.references(joined, scales)

    def read(name: str) -> tuple[NDArray[np.generic], int]:
        try:
            return inputs.read_image(directory / name), reading.orientation(directory / name)
        except InputError as error:
            raise _UnreadableError(str(error)) from None

    views, ordered = Views(read), sorted(pairs.items())
    parts: dict[str, list[Moved]] = {name: [] for name in project.maps}

    def make(first: int) -> Arrays:
        block = []
        for number, ((a, b), features) in enumerate(ordered[first : first + _BLOCK], first):
            maps_a, maps_b = project.maps[a][features[:, 0]], project.maps[b][features[:, 1]]
            chosen, xy = views.refined(a, b, maps_a, maps_b)
            block.append((np.full(chosen.sum(), number), features[chosen, 1], xy[chosen]))
            progress("pairs refined", number + 1, len(ordered))
        names = ("pair", "feature", "xy")
        return dict(zip(names, map(np.concatenate, zip(*block, strict=True)), strict=True))

    saved = Checkpoints(unfinished, _inputs(project, ordered, directory))
    for first in range(0, len(ordered), _BLOCK):
        arrays = saved(str(first), partial(make, first))
        for number in np.unique(arrays["pair"]).tolist():
            rows = arrays["pair"] == number
            parts[ordered[number][0][1]].append((arrays["feature"][rows], arrays["xy"][rows]))
    count, moved = sum(len(v) for v in pairs.values()), gathered(parts)
    before = {name: maps[:, :, 2] for name, maps in project.maps.items()}
    kept = improved(before, moved, readable, joined)
    rejected = sum(len(v[0]) for v in moved.values()) - sum(len(v[0]) for v in kept.values())
    return Outcome(kept, len(np.unique(joined.track)), count, rejected, skipped)


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
        move_keypoints(name, positions)


def move_keypoints(database: Path, positions: Positions) -> None:
    """Move the keypoints of a COLMAP database, in place."""
    with closing(sqlite3.connect(database)) as opened, opened:
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
