"""Merge the keypoints and matches of several matchers into one COLMAP database.

Keypoints of different sources that are close to each other in an image become one observation, so
that the tracks of all sources are joined. Images and pairs are read one at a time.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import checkpoints, match_files, projects, tracks
from caloric.collection.consistency import filter_matches, residuals
from caloric.collection.match_files import MatchFile, PairContent, PairNames
from caloric.collection.tracks import Indices, PairMatches
from caloric.errors import InputError, check_bool
from caloric.features import Features
from caloric.frames import Frames
from caloric.image import exif, inputs, reading
from caloric.interop import colmap, colmap_tables, exporters
from caloric.interop.cameras import groups
from caloric.interop.colmap_tables import CameraRow, Tables
from caloric.interop.exporters import Request
from caloric.pipeline import POINT_SIGMA
from caloric.runtime.files import (
    check_input_directory,
    check_new,
    remove_stale,
    replacing,
    replacing_path,
)
from caloric.runtime.words import counted
from caloric.types import FloatArray

_log = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]
_MAX_RESIDUAL = 4.0  # pixels; the default of COLMAP's verification


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge.

    Attributes
    ----------
    database : Path
        The new database.
    image_count : int
        The number of images.
    images_of_one_source : int
        The number of images that only one source has.
    keypoints, shared : int
        The number of merged keypoints, and of those that several sources have.
    pairs, verified : int
        The number of pairs with matches, and of those with a geometry.
    refined : int or None
        The number of refined keypoints; None without refinement.
    skipped : dict
        Images that could not be read for refinement, with the reasons.
    unverified : Path or None
        The list of the pairs that no source has verified, for COLMAP; None if there are none.
    """

    database: Path
    image_count: int
    images_of_one_source: int
    keypoints: int
    shared: int
    pairs: int
    verified: int
    refined: int | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    unverified: Path | None = None

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        lines = [
            f"{self.image_count:,} images, {self.keypoints:,} keypoints ({self.shared:,} of "
            f"several sources), {self.pairs:,} pairs ({self.verified:,} verified)"
        ]
        if self.refined is not None:
            lines.append(f"{self.refined:,} keypoints refined")
        if self.unverified is not None:
            lines.append(
                f"not verified by any source: {counted(self.pairs - self.verified, 'pair')}; the "
                "mapper ignores pairs until COLMAP has verified them, see docs/merging.md; listed "
                f"in {self.unverified}"
            )
        return "\n".join([*lines, f"written: {self.database}"])


def merge(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    radius: float = 1.5,
    refine: bool = False,
    images: str | Path | None = None,
    sigma: float = POINT_SIGMA,
    progress: Progress = lambda what, done, total: None,
) -> MergeResult:
    """Merge the keypoints and matches of several matchers into a new COLMAP database.

    Keypoints of different sources within ``radius`` become one, with the position of the first
    source that has it; each source has at most one of them. The matches of a pair are the union of
    all sources, and so are the verified matches. Its geometry is that with the most verified
    matches; unverified matches of the other sources that agree with it within 4 px are verified
    by it. Pairs that no source has verified are left to COLMAP, and listed in a text file beside
    ``out``. There are no descriptors.

    Parameters
    ----------
    sources : sequence of str or Path
        At least two of: a COLMAP database; the store of a collection, of which the exported
        database is taken; an hloc feature file (.h5) followed by its match file; a directory with
        these two files. Images are identified by name.
    out : str or Path
        The new database; it must not exist.
    radius : float
        The maximum distance of keypoints that are the same point, in pixels.
    refine : bool
        Refine the merged tracks to sub-pixel accuracy, and remove verified matches that are not
        consistent then. Needs ``images``.
    images : str or Path, optional
        The image directory. Also needed for images of which no source has a camera.
    sigma : float
        The scale in pixels of keypoints without one.
    progress : callable
        Called with a description, the number of finished items and their total.

    Returns
    -------
    MergeResult
        The path of the database, and numbers of images, keypoints and pairs.

    Examples
    --------
    >>> import caloric
    >>> sources = ["store", "database.db"]  # a collection and a COLMAP database
    >>> result = caloric.merge(
    ...     sources, "merged.db", refine=True, images="photos"
    ... )  # doctest: +SKIP
    >>> result.shared  # keypoints that both sources have  # doctest: +SKIP
    59995
    """
    target, directory = Path(out), None if images is None else Path(images)
    _check_arguments(sources, target, radius, refine, directory, sigma)
    files = match_files.resolved([Path(source) for source in sources])
    if len(files) < 2:
        raise InputError("there is only one source; pass at least two to merge")
    with ExitStack() as stack:
        opened = [stack.enter_context(match_files.opened(paths)) for paths in files]
        writer = _Writer(opened, radius, sigma, progress)
        writer.check()
        if refine and directory is not None:
            projects.missing((name for pair in writer.pairs for name in pair), directory)
        cameras = writer.cameras(directory)
        remove_stale(target)
        with replacing_path(target) as path:
            with colmap_tables.created(path) as tables:
                keypoints, shared = writer.write_images(tables, cameras)
                unverified = writer.write_pairs(tables)
            refined, skipped = None, {}
            if refine and directory is not None:
                project, unfinished = projects.read_colmap(path, sigma), checkpoints.beside(target)
                outcome = projects.refine(project, directory, progress, unfinished)
                projects.move_keypoints(path, outcome.positions)
                refined, skipped = outcome.moved, outcome.skipped
                if outcome.moved and len(unverified) < len(writer.pairs):
                    filter_matches(path, sigma)
            if unverified:
                with replacing(_pair_list(target)) as file:
                    file.write("".join(f"{a} {b}\n" for a, b in unverified).encode())
    return MergeResult(
        target, len(writer.names), writer.images_of_one_source, keypoints, shared,
        len(writer.pairs), len(writer.pairs) - len(unverified), refined, skipped,
        _pair_list(target) if unverified else None,
    )  # fmt: skip


def _pair_list(target: Path) -> Path:
    return target.with_suffix(".unverified.txt")


def _check_arguments(
    sources: Sequence[str | Path],
    target: Path,
    radius: float,
    refine: bool,
    directory: Path | None,
    sigma: float,
) -> None:
    if isinstance(sources, str | Path):
        raise InputError("sources must be a sequence of paths, such as [a, b]")
    check_bool("refine", refine)
    for name, value in (("radius", radius), ("sigma", sigma)):
        if not isfinite(value) or value <= 0:
            raise InputError(f"{name} must be a positive number of pixels, got {value!r}")
    if refine and directory is None:
        raise InputError("--refine needs --images DIR (refine=True needs images)")
    if directory is not None:
        check_input_directory(directory)
    check_new(target)
    if _pair_list(target).exists():
        raise InputError(
            f"{_pair_list(target)}, the list of unverified pairs, already exists; remove it, or "
            "specify another database"
        )


class _Writer:
    """Writes the merged images and pairs of open sources; ``names`` and ``pairs`` are sorted."""

    def __init__(
        self, sources: list[MatchFile], radius: float, sigma: float, progress: Progress
    ) -> None:
        self.sources, self.radius, self.sigma, self.progress = sources, radius, sigma, progress
        self.names = sorted({name for source in sources for name in source.counts})
        self.pairs = sorted({pair for source in sources for pair in source.pairs})
        # The index of the merged keypoint of each keypoint, by source and image.
        self.merged: list[dict[str, Indices]] = [{} for _ in sources]

    def check(self) -> None:
        """Raise an error if the sources do not fit; warn about images of one source."""
        for source in self.sources:
            if not source.pairs:
                raise InputError(f"{source.path}: contains no matches; match first")
        for name in self.names:
            exporters.check_name(name)
            sizes = {
                size: source.path
                for source in reversed(self.sources)
                if name in source.counts and (size := source.size(name)) is not None
            }
            if len(sizes) > 1:
                (one, first), (two, second) = list(sizes.items())[:2]
                raise InputError(
                    f"{name}: {one[0]}x{one[1]} pixels in {first}, but {two[0]}x{two[1]} in "
                    f"{second}; the sources must be made from the same images"
                )
        counts = [sum(name in source.counts for source in self.sources) for name in self.names]
        self.images_of_one_source = counts.count(1)
        if self.images_of_one_source == len(self.names):
            raise InputError(
                "no two sources have an image in common; each image must have the same name in all "
                "of them"
            )
        if self.images_of_one_source:
            _log.warning(
                "%d of %d images are in one source only, such as %s; they are kept",
                self.images_of_one_source, len(self.names), self.names[counts.index(1)],
            )  # fmt: skip

    def cameras(self, directory: Path | None) -> dict[str, tuple[int, int, CameraRow]]:
        """Return the camera of each image, with the number of its source and its id there."""
        result, missing = {}, []
        for name in self.names:
            known = ((i, source.camera(name)) for i, source in enumerate(self.sources))
            first = next(((i, *camera) for i, camera in known if camera is not None), None)
            if first is None:
                missing.append(name)
            else:
                result[name] = first
        if not missing:
            return result
        if directory is None:
            raise InputError(
                f"no source has a camera of {len(missing)} images, such as {missing[0]}; pass the "
                "image directory, from which COLMAP takes it: images (--images)"
            )
        return result | {
            name: (len(self.sources), *camera)
            for name, camera in _inferred(missing, directory).items()
        }

    def write_images(
        self, tables: Tables, cameras: dict[str, tuple[int, int, CameraRow]]
    ) -> tuple[int, int]:
        """Write cameras, images and keypoints; return the numbers of all and shared keypoints."""
        numbers: dict[tuple[int, int], int] = {}
        total = total_shared = 0
        for done, name in enumerate(self.names, 1):
            source, number, camera = cameras[name]
            if (source, number) not in numbers:
                numbers[source, number] = tables.add_camera(camera)
            rows, shared = self._keypoints(name)
            tables.add_image(name, numbers[source, number], rows)
            total, total_shared = total + len(rows), total_shared + shared
            self.progress("images merged", done, len(self.names))
        return total, total_shared

    def _keypoints(self, name: str) -> tuple[NDArray[np.float32], int]:
        """Return COLMAP's rows of the merged keypoints, and how many several sources have."""
        having = [i for i, source in enumerate(self.sources) if name in source.counts]
        parts = [self.sources[i].keypoints(name, self.sigma) for i in having]
        merged = join([part.maps[:, :, 2] for part in parts], self.radius)
        for i, indices in zip(having, merged, strict=True):
            self.merged[i][name] = indices
        count = max((int(indices.max(initial=-1)) for indices in merged), default=-1) + 1
        maps, occurrences = np.zeros((count, 2, 3)), np.zeros(count, np.int64)
        # Earlier sources overwrite later ones, but not a known scale by an assumed one.
        has_scale = np.zeros(count, bool)
        for part, indices in list(zip(parts, merged, strict=True))[::-1]:
            rows = indices if part.has_scale else indices[~has_scale[indices]]
            shapes = part.maps if part.has_scale else part.maps[~has_scale[indices]]
            maps[rows, :, :2] = shapes[:, :, :2]
            maps[indices, :, 2] = part.maps[:, :, 2]
            has_scale[indices] |= part.has_scale
            occurrences[indices] += 1
        rows6 = Frames(maps, np.zeros(count, np.float32)).to_colmap()
        known = has_scale.any() or count == 0
        return rows6 if known else np.ascontiguousarray(rows6[:, :2]), int((occurrences > 1).sum())

    def write_pairs(self, tables: Tables) -> list[PairNames]:
        """Write the matches and geometries of all pairs; return the pairs without a geometry."""
        unverified = []

        @lru_cache(maxsize=64)
        def positions(name: str) -> FloatArray:
            return tables.positions(name)

        for done, (a, b) in enumerate(self.pairs, 1):
            contents = [self._mapped(i, (a, b)) for i in range(len(self.sources))]
            tables.add_matches(a, b, _union([c.matches for c in contents]))
            geometries = [c for c in contents if c.geometry is not None]
            if geometries:
                best = max(geometries, key=lambda content: len(content.inliers))
                assert best.geometry is not None
                others = _union([c.matches for c in contents if c.geometry is None])
                errors = residuals(best.geometry, positions(a), positions(b), others)
                agreeing = others[errors <= _MAX_RESIDUAL]
                inliers = _union([*(c.inliers for c in geometries), agreeing])
                tables.add_geometry(a, b, inliers, best.geometry)
            else:
                unverified.append((a, b))
            self.progress("pairs merged", done, len(self.pairs))
        return unverified

    def _mapped(self, number: int, pair: PairNames) -> PairContent:
        """Return the content of a pair in one source, with the indices of merged keypoints."""
        content = self.sources[number].pair(*pair)
        first, second = (self.merged[number].get(name, np.zeros(0, np.int64)) for name in pair)

        def mapped(matches: NDArray[np.uint32]) -> NDArray[np.uint32]:
            return np.stack([first[matches[:, 0]], second[matches[:, 1]]], 1).astype(np.uint32)

        return PairContent(mapped(content.matches), mapped(content.inliers), content.geometry)


def join(positions: Sequence[FloatArray], radius: float) -> list[Indices]:
    """Return for the keypoints of each source the indices of the merged keypoints.

    ``positions`` has the keypoints (n, 2) of an image in each source. Keypoints of different
    sources are joined in the order of their distances. A merged keypoint has at most one keypoint
    of each source. The merged keypoints are in the order of the sources.
    """
    from scipy.spatial import cKDTree  # imported here because it is slow to import

    names = [f"{i:06d}" for i in range(len(positions))]  # in the order of the sources
    trees = [cKDTree(xy) if len(xy) else None for xy in positions]
    pairs = []
    for j, second in enumerate(trees):
        for i, first in enumerate(trees[:j]):
            if first is not None and second is not None:
                near = first.sparse_distance_matrix(second, radius, output_type="ndarray")
                matches = np.stack([near["i"], near["j"]], 1).astype(np.uint32)
                pairs.append(PairMatches(names[i], names[j], matches, near["v"].astype(np.float32)))
    counts = [len(xy) for xy in positions]
    starts = np.cumsum([0, *counts])
    joined = tracks.join(dict(zip(names, counts, strict=True)), pairs)
    rows = starts[joined.image] + joined.feature  # sorted
    _, first_row = np.unique(joined.track, return_index=True)
    root = np.arange(starts[-1])
    if len(rows):
        root[rows] = rows[first_row][joined.track]
    _, index = np.unique(root, return_inverse=True)
    return np.split(index.astype(np.int64), starts[1:-1])


def _union(parts: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """Return all matches (m, 2) without repetitions, in their order."""
    matches = np.concatenate([np.zeros((0, 2), np.uint32), *parts])
    _, first = np.unique(matches, axis=0, return_index=True)
    return matches[np.sort(first)]


def _inferred(names: list[str], directory: Path) -> dict[str, tuple[int, CameraRow]]:
    """Return the cameras that COLMAP infers from image files, shared as in a collection."""
    sizes, data, empty = {}, {}, Frames.empty()
    for name in names:
        h, w = inputs.read_image(directory / name).shape[:2]
        is_rotated = reading.orientation(directory / name) >= 5
        sizes[name] = (w, h) if is_rotated else (h, w)
        data[name] = exif.read((directory / name).read_bytes())
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "cameras.db"
        request = Request(path, tuple(names), directory, camera_of=groups(sizes, data))
        features = (
            (name, Features(empty, np.zeros((0, 128), np.uint8), sizes[name], "caloric", ""))
            for name in names
        )
        exporters.write(colmap.Colmap(request), features)
        with match_files.opened((path,)) as source:
            cameras = {name: source.camera(name) for name in names}
    result = {name: camera for name, camera in cameras.items() if camera is not None}
    for name in names:
        if name not in result:
            raise InputError(f"{directory / name}: COLMAP cannot read the image, to infer a camera")
    return result
