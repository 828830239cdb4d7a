"""Steps five and six: the store for other tools, and the model that COLMAP makes of it."""

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
                if row["made_from"] != path.name:
                    raise InputError(f"{store}: matches are newer than geometries: verify again")
                found[row["name_a"], row["name_b"]] = row
        for row in own.read(path):
            a, b = row["name_a"], row["name_b"]
            if {a, b} - known.keys() or matching.made_from(known[a], known[b]) != row["made_from"]:
                raise InputError(f"{store}: features are newer than matches: match again")
            yield _two_views(row, found.get((a, b)))


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
    target = store / "colmap" / "database.db"
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name("database.unfinished.db")
    names = sorted(name for name, one in extraction.listed(store).items() if one.count)
    colmap.write_database(unfinished, names, images(store), folder, two_views(store))
    unfinished.replace(target)
    return target


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


def describe_database(database: Path, folder: Path, descriptor: str) -> int:
    """Another descriptor at the keypoints of a COLMAP database, written in place of its own.

    Matches and geometries of the old descriptors are removed. How many images.
    """
    recipe = recipes.descriptor(descriptor)
    if recipe.dimension != 128:
        raise InputError(
            f"COLMAP's descriptors have 128 dimensions, {descriptor!r} {recipe.dimension}"
        )
    frames = colmap.read_frames(database)

    def described() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        for name, own in frames.items():
            pixels = reading.read_image(folder / name)
            values = describing.describe(pixels, own, descriptor, dtype="uint8")
            yield name, np.asarray(values, np.uint8)

    colmap.replace_descriptors(database, described())
    return len(frames)


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
    target.mkdir(exist_ok=True)
    found: dict[int, Any] = library.incremental_mapping(str(database), str(folder), str(target))
    if not found:
        raise InputError(f"{database}: COLMAP found no two images to begin with")
    number, best = max(found.items(), key=lambda one: one[1].num_reg_images())
    return Model(
        target / str(number), best.num_reg_images(), best.num_points3D(),
        float(best.compute_mean_reprojection_error()),
    )  # fmt: skip
