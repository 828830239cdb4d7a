"""Steps five and six: the store for other tools, and the model that COLMAP makes of it."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import features as describing
from caloric import reading, recipes
from caloric.collection import extraction, matching
from caloric.errors import InputError
from caloric.features import Features
from caloric.interop import colmap, hdf5, text
from caloric.interop.colmap import TwoViews

_BYTES_A_FEATURE = 128 + 24 + 40  # descriptor, keypoint, its share of matches


def images(store: Path) -> Iterator[tuple[str, Features]]:
    """The features of all images of a store that have some, a shard at a time."""
    own = extraction.shards(store)
    for path in own.all():
        for row in own.read(path):
            if row["count"]:
                yield row["name"], extraction.features_of(row)


def two_views(store: Path) -> Iterator[TwoViews]:
    """All pairs that were matched, and the geometry of those that were verified."""
    own, geometries = matching.shards(store), matching.geometries(store)
    known = extraction.listed(store)
    verified = {matching.bucket(path): path for path in geometries.all()}
    for path in own.all():
        found = {}
        if matching.bucket(path) in verified:
            for row in geometries.read(verified[matching.bucket(path)]):
                found[row["name_a"], row["name_b"]] = row
        for row in own.read(path):
            matching.current(store, known, [row])
            geometry = found.get((row["name_a"], row["name_b"]))
            if verified and (geometry is None or geometry["matches"] != row["made_from"]):
                raise InputError(f"{store}: matches are newer than geometries: verify again")
            yield _two_views(row, geometry)


def _two_views(row: dict[str, Any], geometry: dict[str, Any] | None) -> TwoViews:
    indices, distances = row["indices"].reshape(-1, 2), row["distances"]
    if geometry is None or not len(geometry["matrix"]):
        none = np.zeros(0, np.uint32)
        return TwoViews(row["name_a"], row["name_b"], indices, distances, none, None, "")
    return TwoViews(
        row["name_a"], row["name_b"], indices, distances, geometry["inliers"],
        geometry["matrix"].reshape(3, 3), geometry["model"],
    )  # fmt: skip


def export_colmap(store: Path, folder: Path | None) -> Path:
    """OUT/colmap/database.db, new; ``folder`` has the images, for what their EXIF data says."""
    known = {name: one for name, one in extraction.listed(store).items() if one.count}
    if not known:
        raise InputError(f"{store}: no features in it; extract them first")
    target = store / "colmap" / "database.db"
    _room(target.parent, sum(one.count for one in known.values()) * _BYTES_A_FEATURE)
    unfinished = target.with_name("database.unfinished.db")
    try:
        colmap.write_database(unfinished, sorted(known), images(store), folder, two_views(store))
        unfinished.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _room(folder: Path, needed: int) -> None:
    """That there is: COLMAP's own way to say that there is none is to end the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    if free < needed:
        raise InputError(
            f"{folder}: {needed / 1e6:,.0f} MB are needed there, and {free / 1e6:,.0f} are free"
        )


def export_hloc(store: Path) -> tuple[Path, Path]:
    """OUT/hloc/features.h5 and matches.h5: of verified pairs the inliers, of others nothing."""
    target = store / "hloc"
    target.mkdir(parents=True, exist_ok=True)
    counts = {}

    def counted() -> Iterator[tuple[str, Features]]:
        for name, features in images(store):
            counts[name] = len(features)
            yield name, features

    hdf5.write(target / "features.h5", counted())
    good = (pair for pair in two_views(store) if pair.matrix is not None)
    hdf5.write_matches(
        target / "matches.h5",
        (
            (p.name_a, p.name_b, p.matches[p.inliers], p.distances[p.inliers], counts[p.name_a])
            for p in good
        ),
    )
    return target / "features.h5", target / "matches.h5"


def export_text(store: Path) -> Path:
    """OUT/text/NAME.txt of every image, as COLMAP's feature importer reads them."""
    target = store / "text"
    for name, features in images(store):
        path = target / f"{name}.txt"
        if not path.resolve().is_relative_to(target.resolve()):
            raise InputError(f"{name}: a name that leads out of {target}; the store is not ours")
        path.parent.mkdir(parents=True, exist_ok=True)
        text.write(path, features)
    return target


def describe_database(database: Path, folder: Path, descriptor: str) -> tuple[int, dict[str, str]]:
    """Another descriptor at the keypoints of a COLMAP database, written in place of its own.

    Matches and geometries of the old descriptors are removed. How many images; and those that could
    not be read, which have no descriptors then, with why.
    """
    recipe = recipes.descriptor(descriptor)
    if recipe.dimension != 128:
        raise InputError(
            f"COLMAP's descriptors have 128 dimensions, {descriptor!r} {recipe.dimension}"
        )
    frames = colmap.read_frames(database)
    skipped: dict[str, str] = {}

    def described() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        for name, own in frames.items():
            try:
                pixels = reading.read_image(folder / name)
            except InputError as error:
                skipped[name] = str(error)
                continue
            values = describing.describe(pixels, own, descriptor, dtype="uint8")
            yield name, np.asarray(values, np.uint8)

    colmap.replace_descriptors(database, described())
    return len(frames) - len(skipped), skipped


@dataclass(frozen=True)
class Model:
    """What COLMAP made: how many images it placed, its points and their mean error in pixels."""

    folder: Path
    images: int
    points: int
    error: float


def reconstruct(store: Path, folder: Path) -> Model:
    """The largest model of the database, under OUT/colmap/sparse."""
    library = colmap.pycolmap()
    database = store / "colmap" / "database.db"
    if not database.is_file():
        raise InputError(f"{database}: not there; export it first")
    target = store / "colmap" / "sparse"
    _room(target.parent, 0)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="sparse.") as place:
        found: dict[int, Any] = colmap.said(
            lambda: library.incremental_mapping(str(database), str(folder), place), database
        )
        if not found:
            raise InputError(f"{database}: COLMAP found no two images to begin with")
        # Models of before would be taken for ones of now.
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place, target)
    number, best = max(found.items(), key=lambda one: one[1].num_reg_images())
    return Model(
        target / str(number), best.num_reg_images(), best.num_points3D(),
        float(best.compute_mean_reprojection_error()),
    )  # fmt: skip
