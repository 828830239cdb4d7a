"""Reconstruct models with COLMAP's mapper."""

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from caloric.collection import (
    calibrating,
    extraction,
    metadata,
    positions,
    relocating,
    results,
    sources,
)
from caloric.collection.steps import Progress, no_progress
from caloric.collection.summaries import summaries
from caloric.errors import InputError
from caloric.interop import colmap, colmap_model
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.files import remove_temporary_directories, temporary_directory

_log = logging.getLogger(__name__)
_REGISTERED = "images registered"
_ATTEMPTS = (
    ("strict", colmap.STRICT, _REGISTERED),
    ("relaxed", colmap.RELAXED, f"{_REGISTERED} with lower thresholds"),
    ("fixed", colmap.FIXED_DISTORTION, f"{_REGISTERED} with fixed distortion"),
)
_ENOUGH = 0.5  # share of the images with verified pairs; with fewer, the last attempt is made
_KEPT = 0.9  # a model with more images must have this share of the points


@dataclass(frozen=True)
class ReconstructionResult:
    """The models with points that COLMAP reconstructed, largest first.

    ``failure`` is the reason if there are none. ``is_unchanged`` is true for models of an earlier
    run.
    """

    models: tuple[Reconstruction, ...]
    failure: str = ""
    is_unchanged: bool = False

    def __str__(self) -> str:
        """Return the summary of the largest model in one line."""
        start = "unchanged since the last run: " if self.is_unchanged else ""
        if not self.models:
            return f"{start}no model: {self.failure}"
        number = f"{len(self.models)} models, the largest: " if len(self.models) > 1 else ""
        return f"{start}{number}{self.models[0]}"


def _ordered(models: list[Reconstruction]) -> list[Reconstruction]:
    """Return the models that have points, largest first, without those contained in a larger one.

    COLMAP's models may have common images.
    """
    with_points = [model for model in models if model.points]
    ordered: list[Reconstruction] = []
    for model in sorted(with_points, key=lambda model: (-len(model.images), -model.points)):
        if not any(set(model.images) <= set(larger.images) for larger in ordered):
            ordered.append(model)
    return ordered


def size(models: Sequence[Reconstruction]) -> tuple[int, int]:
    """Return the number of images of the largest model, which is the first, and of all models."""
    return len(models[0].images), len({name for model in models for name in model.images})


def _is_larger(new: list[Reconstruction], old: list[Reconstruction]) -> bool:
    """Return whether models have more images than others, and the largest about as many points.

    Images of the largest model count first, then those of all models.
    """
    if not new or not old:
        return bool(new)
    return size(new) > size(old) and new[0].points >= _KEPT * old[0].points


def check_owner(store: Path, directory: str) -> None:
    """Raise InputError if a store has the models of another image directory.

    A directory that was moved or renamed still has images with the same names.
    """
    owner = results.owner_of(store)
    if owner is None or not (store / colmap.MODELS).exists():
        return
    path, names = owner
    if path.resolve() == Path(directory).resolve():
        return
    is_moved = not path.is_dir() and any((Path(directory) / name).is_file() for name in names)
    if not is_moved and not sources.is_remote(directory):
        raise InputError(f"{store}: contains models of {path}; specify another output directory")


def retire(store: Path) -> None:
    """Rename the directory of earlier models, which do not belong to the current images."""
    target = store / colmap.MODELS
    if target.exists():
        old = target.with_name("sparse.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        _log.warning("no model; the earlier models are in %s", old)


def connected(store: Path) -> set[str]:
    """Return the images of a store that have verified pairs."""
    pairs = [pair for pair in summaries(store) if pair.is_verified]
    return {name for pair in pairs for name in (pair.name_a, pair.name_b)}


def _counting(store: Path, progress: Progress, what: str = _REGISTERED) -> Callable[[int], None]:
    """Return a callback that reports how many of the images with features are registered."""
    total = sum(1 for image in extraction.stored_images(store).values() if image.count)
    return lambda count: progress(what, min(count, total), total)


def map_store(
    store: Path, directory: Path, output: Path, progress: Progress = no_progress
) -> tuple[list[Reconstruction], list[Reconstruction]]:
    """Run COLMAP's mapper on the exported database; return the models, and all that it made.

    If images that have verified pairs are missing in the largest model, COLMAP is run again with
    lower thresholds. If all models together have less than half of these images, it is run once
    more with fixed distortion, which is refined in the end. The models of a later run are kept if
    they have more images. Images whose verified matches contradict their position are registered
    again.
    """
    needed = connected(store)
    models: list[Reconstruction] = []
    made: list[Reconstruction] = []
    for name, thresholds, what in _ATTEMPTS:
        is_last = thresholds is colmap.FIXED_DISTORTION
        if is_last and models and size(models)[1] >= _ENOUGH * len(needed):
            break
        (output / name).mkdir()
        database = store / colmap.DATABASE
        registered = _counting(store, progress, what)
        new = colmap.map_images(database, directory, output / name, thresholds, registered)
        made += new
        if is_last:
            new = [_adjusted(model) for model in new if model.points]
        new = [
            relocating.relocate(model, database, directory, output / f"{name}-{i}", registered)
            for i, model in enumerate(_ordered(new))
        ]
        if _is_larger(new, models):
            models = new
        if models and needed <= set(models[0].images):
            break
    return models, made


def _adjusted(model: Reconstruction) -> Reconstruction:
    """Return a model after a bundle adjustment with distortion, or as it is if that fails."""
    output = model.directory.with_name(f"{model.directory.name}-adjusted")
    output.mkdir()
    try:
        colmap.adjust(model.directory, output, {})
    except InputError:
        return model
    return colmap_model.summary(output)


def install(store: Path, models: list[Reconstruction]) -> ReconstructionResult:
    """Calibrate models, align them with GPS positions, and move them to ``store``/colmap/sparse.

    Earlier models are removed after the new ones were written.
    """
    target, exif = store / colmap.MODELS, metadata.read(store)
    models = [positions.align(calibrating.calibrate(model), exif) for model in models]
    with temporary_directory(target.parent) as temporary:
        for number, model in enumerate(models):
            shutil.copytree(model.directory, temporary / "new" / str(number))
        _replace(target, temporary / "new", temporary / "old")
    return ReconstructionResult(
        tuple(replace(model, directory=target / str(i)) for i, model in enumerate(models))
    )


def _replace(target: Path, new: Path, old: Path) -> None:
    """Rename the directory ``new`` to ``target``, after ``target``, if it exists, to ``old``."""
    if target.exists():
        target.rename(old)
    new.rename(target)


def reconstruct(
    store: Path, directory: Path, progress: Progress = no_progress
) -> ReconstructionResult:
    """Run COLMAP's mapper on the exported database; the models are in ``store``/colmap/sparse.

    Models are aligned with GPS positions if possible. If there is no model, earlier models are
    moved to ``store``/colmap/sparse.old. See :func:`map_store`.
    """
    colmap.require()
    database = store / colmap.DATABASE
    if not database.is_file():
        raise InputError(f"{database}: does not exist; export it first")
    colmap.check_space(database.parent, 0)
    for parent in (database.parent, store / colmap.MODELS):
        remove_temporary_directories(parent)
    with temporary_directory(database.parent) as temporary:
        models, made = map_store(store, directory, temporary, progress)
        if models:
            return install(store, models)
    retire(store)
    return ReconstructionResult((), results.failure(summaries(store), tuple(made)))


def complete(
    store: Path,
    directory: Path,
    result: ReconstructionResult,
    progress: Progress = no_progress,
) -> ReconstructionResult:
    """Add images of the exported database to the largest model with COLMAP's mapper.

    The model is replaced if it then has more images. Smaller models whose images are all in it are
    removed.
    """
    largest = result.models[0]
    database = store / colmap.DATABASE
    registered = _counting(store, progress)
    with temporary_directory(database.parent) as temporary:
        output = temporary / "larger"
        output.mkdir()
        models = colmap.map_images(
            database, directory, output, colmap.RELAXED, registered, largest.directory
        )
        larger = max(models, key=lambda model: len(model.images), default=largest)
        larger = relocating.relocate(
            larger, database, directory, temporary / "relocated", registered
        )
        if not _is_larger([larger], [largest]):
            return result
        larger = positions.align(calibrating.calibrate(larger), metadata.read(store))
        shutil.copytree(larger.directory, temporary / "new")
        _replace(largest.directory, temporary / "new", temporary / "old")
    kept = [replace(larger, directory=largest.directory)]
    for model in result.models[1:]:
        if set(model.images) <= set(larger.images):
            shutil.rmtree(model.directory)
        else:
            kept.append(model)
    return ReconstructionResult(tuple(kept))
