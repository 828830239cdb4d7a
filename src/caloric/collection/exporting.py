"""Steps five and six: the store for other tools, and the model that COLMAP makes of it."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.collection import extraction, matching
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.features import Features
from caloric.image import reading
from caloric.interop import colmap, colmap_command, hdf5, text
from caloric.interop.colmap import TwoViews
from caloric.interop.colmap_command import Model

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
    """OUT/colmap/database.db, new; ``folder`` has the images, for what their EXIF data says.

    By pycolmap where it is installed, else by the ``colmap`` executable, which needs the images.
    """
    colmap.require()
    if not colmap.available() and folder is None:
        raise InputError("without pycolmap the images are needed too: --images FOLDER")
    known = {name: one for name, one in extraction.listed(store).items() if one.count}
    if not known:
        raise InputError(f"{store}: no features in it; extract them first")
    target = store / "colmap" / "database.db"
    _room(target.parent, sum(one.count for one in known.values()) * _BYTES_A_FEATURE)
    unfinished = target.with_name("database.unfinished.db")
    try:
        if folder is None or colmap.available():
            colmap.write_database(
                unfinished, sorted(known), images(store), folder, two_views(store)
            )
        else:
            for name in known:
                colmap.require_image(folder, name)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="text.") as place:
                verified = _write_matches(store, Path(place))
                _write_features(store, Path(place))
                colmap_command.write_database(unfinished, Path(place), folder, verified)
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


def export_text(store: Path) -> list[Path]:
    """OUT/text/NAME.txt of every image, and OUT/text/matches.txt, as COLMAP's importers read them.

    Of verified pairs matches.txt has the inliers; where nothing is verified, it has all matches.
    It comes last: where a name cannot be written into it, the features are there.
    """
    target = store / "text"
    (target / "matches.txt").unlink(missing_ok=True)  # one of before would be taken for one of now
    _write_features(store, target)
    _write_matches(store, target)
    return [target, target / "matches.txt"]


def _write_features(store: Path, target: Path) -> None:
    for name, features in images(store):
        path = target / f"{name}.txt"
        if not path.resolve().is_relative_to(target.resolve()):
            raise InputError(f"{name}: a name that leads out of {target}; the store is not ours")
        path.parent.mkdir(parents=True, exist_ok=True)
        text.write(path, features)


def _write_matches(store: Path, target: Path) -> bool:
    """target/matches.txt; whether the matches in it are verified ones."""
    verified = bool(matching.geometries(store).all())
    pairs = (pair for pair in two_views(store) if not verified or pair.matrix is not None)
    text.write_matches(
        target / "matches.txt",
        (
            (pair.name_a, pair.name_b, pair.matches[pair.inliers] if verified else pair.matches)
            for pair in pairs
        ),
    )
    return verified


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
            values = pipeline.describe(pixels, own, descriptor, dtype="uint8")
            yield name, np.asarray(values, np.uint8)

    colmap.replace_descriptors(database, described())
    return len(frames) - len(skipped), skipped


def reconstruct(store: Path, folder: Path) -> Model:
    """The largest model of the database, under OUT/colmap/sparse."""
    colmap.require()
    database = store / "colmap" / "database.db"
    if not database.is_file():
        raise InputError(f"{database}: not there; export it first")
    target = store / "colmap" / "sparse"
    _room(target.parent, 0)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="sparse.") as place:
        models = _models(database, folder, Path(place))
        if not models:
            raise InputError(f"{database}: COLMAP found no two images to begin with")
        # Models of before would be taken for ones of now.
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place, target)
    best = max(models, key=lambda model: model.images)
    return replace(best, folder=target / best.folder.name)


def _models(database: Path, folder: Path, place: Path) -> list[Model]:
    if not colmap.available():
        return colmap_command.map_images(database, folder, place)
    library = colmap.pycolmap()
    found: dict[int, Any] = colmap.said(
        lambda: library.incremental_mapping(str(database), str(folder), str(place)), database
    )
    return [
        Model(
            place / str(number), one.num_reg_images(), one.num_points3D(),
            float(one.compute_mean_reprojection_error()),
        )
        for number, one in found.items()
    ]  # fmt: skip
