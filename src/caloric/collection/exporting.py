"""Steps five and six: export a store for other tools, and reconstruct a model by COLMAP."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.collection import extraction, matching, refining
from caloric.collection.matching import two_views
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image import reading
from caloric.interop import colmap, colmap_command, colmap_tables, hdf5, text
from caloric.interop.colmap_command import Model
from caloric.interop.conversion import NORMS, sift_bytes

_log = logging.getLogger(__name__)
_BYTES_PER_FEATURE = 128 + 24 + 40  # descriptor, keypoint, its share of the matches


def images(store: Path) -> Iterator[tuple[str, Features]]:
    """Yield the name and the features of every image of a store that has features.

    Features are where :mod:`refining` has moved them, if it has.
    """
    stored, places = extraction.shards(store), refining.places(store)
    for path in stored.all():
        for row in stored.read(path):
            if not row["count"]:
                continue
            features = extraction.features_of(row)
            if row["name"] in places:
                rows, xy = places[row["name"]]
                maps = features.frames.maps.copy()
                maps[rows, :, 2] = xy
                frames = Frames(maps, features.frames.scores)
                features = replace(features, frames=frames)
            yield row["name"], features


def export_colmap(store: Path, folder: Path | None) -> Path:
    """Write a new OUT/colmap/database.db; cameras come from the EXIF data in ``folder``.

    Uses pycolmap where it is installed, else the ``colmap`` executable, which needs the images.
    """
    colmap.require()
    if not colmap.available() and folder is None:
        raise InputError("without pycolmap the images are needed too: --images FOLDER")
    known = {name: image for name, image in extraction.listed(store).items() if image.count}
    if not known:
        raise InputError(f"{store}: no features in it; extract them first")
    target = store / "colmap" / "database.db"
    _check_space(target.parent, sum(image.count for image in known.values()) * _BYTES_PER_FEATURE)
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
                _write_features(store, Path(place))
                colmap_command.import_features(unfinished, Path(place), folder)
            frames = ((name, features.frames) for name, features in images(store))
            for name in colmap_tables.write(unfinished, frames, two_views(store)):
                _log.warning("%s: left out of the database, because COLMAP cannot read it", name)
        unfinished.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror})") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _check_space(folder: Path, needed: int) -> None:
    """Raise an error if a folder is not writable or too small: COLMAP would abort the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    if free < needed:
        raise InputError(
            f"{folder}: {needed / 1e6:,.0f} MB are needed, but only {free / 1e6:,.0f} MB are free"
        )


def export_hloc(store: Path) -> tuple[Path, Path]:
    """Write OUT/hloc/features.h5 and matches.h5, the inliers of verified pairs."""
    hdf5.h5py()  # raises an error before the work
    target = store / "hloc"
    target.mkdir(parents=True, exist_ok=True)
    counts, lengths = {}, {}

    def counted() -> Iterator[tuple[str, Features]]:
        for name, features in images(store):
            counts[name], lengths[name] = len(features), np.float32(NORMS[features.encoding])
            yield name, features

    hdf5.write(target / "features.h5", counted())
    verified = (pair for pair in two_views(store) if pair.matrix is not None)
    hdf5.write_matches(
        target / "matches.h5",
        (
            (
                p.name_a,
                p.name_b,
                p.matches[p.inliers],
                p.distances[p.inliers] / lengths[p.name_a],
                counts[p.name_a],
            )
            for p in verified
        ),
    )
    return target / "features.h5", target / "matches.h5"


def export_text(store: Path) -> list[Path]:
    """Write OUT/text/NAME.txt and OUT/text/matches.txt in the format of COLMAP's importers.

    matches.txt has the inliers of the verified pairs, or all matches if nothing is verified.
    """
    target = store / "text"
    for name in extraction.listed(store):
        text.check_name(name)
    (target / "matches.txt").unlink(missing_ok=True)  # an old one must not pass for new
    _write_features(store, target)
    _write_matches(store, target)
    return [target, target / "matches.txt"]


def _write_features(store: Path, target: Path) -> None:
    for name, features in images(store):
        path = target / f"{name}.txt"
        if not path.resolve().is_relative_to(target.resolve()):
            raise InputError(f"{name}: the name leads out of {target}; this is no store of caloric")
        path.parent.mkdir(parents=True, exist_ok=True)
        text.write(path, features)


def _write_matches(store: Path, target: Path) -> None:
    """Write target/matches.txt."""
    verified = bool(matching.geometries(store).all())
    pairs = (pair for pair in two_views(store) if not verified or pair.matrix is not None)
    text.write_matches(
        target / "matches.txt",
        (
            (pair.name_a, pair.name_b, pair.matches[pair.inliers] if verified else pair.matches)
            for pair in pairs
        ),
    )


def describe_database(database: Path, folder: Path, descriptor: str) -> tuple[int, dict[str, str]]:
    """Replace the descriptors of a COLMAP database by another descriptor at the same keypoints.

    Matches and geometries of the old descriptors are removed. Returns the number of described
    images, and the unreadable images, which are left without descriptors, with the reason.
    """
    recipe = recipes.descriptor(descriptor)
    if recipe.dimension != 128:
        raise InputError(
            f"COLMAP's descriptors have 128 dimensions, {descriptor!r} has {recipe.dimension}"
        )
    frames = colmap.read_frames(database)
    skipped: dict[str, str] = {}

    def described() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        for name, keypoints in frames.items():
            try:
                pixels = reading.read_image(folder / name)
            except InputError as error:
                skipped[name] = str(error)
                continue
            size = (pixels.shape[0], pixels.shape[1])
            turn = reading.to_stored(size, reading.orientation(folder / name))
            upright = keypoints.moved(np.asarray(cv2.invertAffineTransform(turn)))
            values = pipeline.describe(pixels, upright, descriptor)
            yield name, sift_bytes(Features(upright, values, size, descriptor, ""))

    colmap.replace_descriptors(database, described())
    return len(frames) - len(skipped), skipped


def reconstruct(store: Path, folder: Path) -> Model:
    """Reconstruct a store by COLMAP under OUT/colmap/sparse; return the largest model."""
    colmap.require()
    database = store / "colmap" / "database.db"
    if not database.is_file():
        raise InputError(f"{database}: does not exist; export it first")
    target = store / "colmap" / "sparse"
    _check_space(target.parent, 0)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="sparse.") as place:
        found = models(database, folder, Path(place))
        if not found:
            raise InputError(f"{database}: COLMAP found no two images to begin with")
        # Old models must not pass for new ones.
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place, target)
    best = max(found, key=lambda model: model.images)
    return replace(best, folder=target / best.folder.name)


def models(database: Path, folder: Path, place: Path) -> list[Model]:
    """Return the models that COLMAP makes of a database and its images, in folders of ``place``."""
    if not colmap.available():
        return colmap_command.map_images(database, folder, place)
    library = colmap.pycolmap()
    made: dict[int, Any] = colmap.call(
        lambda: library.incremental_mapping(str(database), str(folder), str(place)), database
    )
    return [
        Model(
            place / str(number), model.num_reg_images(), model.num_points3D(),
            float(model.compute_mean_reprojection_error()),
        )
        for number, model in made.items()
    ]  # fmt: skip
