"""Evidence against shared cameras: images of the same size with different focal lengths.

Images without EXIF data share a camera if they have the same size. After mapping, a bundle
adjustment gives each image its own focal length. If there are clearly different ones, images with
similar focal lengths share a camera, and COLMAP maps the images again. If images with verified
pairs are missing, COLMAP first adds them with separate cameras, so that their focal lengths are
known. The result is kept if it is better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from caloric.collection import exporting, extraction, mapping, metadata
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.steps import Progress, no_progress
from caloric.errors import InputError
from caloric.image.exif import Exif
from caloric.interop import cameras as interop_cameras
from caloric.interop import colmap, colmap_model
from caloric.interop.cameras import Cameras
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.files import temporary_directory

_MIN_IMAGES = 2  # of each camera
_SHARE = 0.8  # of the images in clusters
_MIN_POINTS = 50  # of an image whose focal length is used
_MIN_RATIO = 1.08  # of the focal lengths of two cameras
_MIN_DISTANCE = 5.0  # of two cameras, in standard deviations of their images
# A result with as many images must have this share of the error and of the observations.
_ERROR, _KEPT = 0.97, 0.9


def clusters(focal_lengths: Mapping[str, float]) -> list[list[str]]:
    """Return images with similar focal lengths, in the order of the focal lengths.

    The focal lengths of two clusters differ by much more than those within a cluster. An image
    between clusters is in the nearest one.
    """
    names = sorted(focal_lengths, key=lambda name: (focal_lengths[name], name))
    values = np.log([focal_lengths[name] for name in names])
    gaps = np.diff(values)
    for gap in np.unique(gaps[gaps >= np.log(_MIN_RATIO)]):
        rows = np.split(np.arange(len(names)), np.flatnonzero(gaps >= gap) + 1)
        parts = [part for part in rows if len(part) >= _MIN_IMAGES]
        if len(parts) < 2 or sum(map(len, parts)) < _SHARE * len(names):
            continue
        spread = max(float(values[part].std(ddof=1)) for part in parts)
        distances = [values[b[0]] - values[a[-1]] for a, b in pairwise(parts)]
        if min(distances) >= _MIN_DISTANCE * spread:
            medians = np.array([np.median(values[part]) for part in parts])
            nearest = abs(values[:, None] - medians).argmin(1)
            return [[names[i] for i in np.flatnonzero(nearest == n)] for n in range(len(parts))]
    return [names]


def separate_focal_lengths(model: Reconstruction) -> dict[str, float]:
    """Return the focal lengths of the images of a model if each has a separate camera.

    They are refined by a bundle adjustment, from the cameras of the model. Images with few points
    are left out.
    """
    images = list(colmap_model.registered(model.directory))
    shared = colmap_model.cameras(model.directory)
    with temporary_directory(model.directory.parent) as temporary:
        start, output = temporary / "start", temporary / "output"
        for directory in (start, output):
            directory.mkdir()
        colmap_model.write(
            start,
            {image.number: shared[image.camera] for image in images},
            [replace(image, camera=image.number) for image in images],
            colmap_model.points(model.directory),
        )
        try:
            colmap.adjust(start, output, {})
        except InputError:
            return {}
        cameras = colmap_model.cameras(output)
    counts = {image.number: int((image.points >= 0).sum()) for image in images}
    return {
        image.name: cameras[image.number].focal
        for image in images
        if counts[image.number] >= _MIN_POINTS
    }


@dataclass(frozen=True)
class Separated:
    """Models of separate cameras, or the earlier ones, and the cameras of the images.

    ``focal_lengths`` are those of the separate cameras, in pixels; () if there are none.
    """

    models: ReconstructionResult
    cameras: Cameras
    focal_lengths: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return the summary in one line."""
        if not self.focal_lengths:
            return "no evidence for different cameras"
        focal_lengths = ", ".join(f"{value:,.0f}" for value in self.focal_lengths)
        return f"different cameras, with focal lengths of {focal_lengths} px: {self.models}"


def assumed(store: Path, cameras: Cameras) -> list[list[str]]:
    """Return the images that share a camera because of their size only, by camera."""
    if cameras.sharing != "auto" or cameras.camera_of:
        return []
    exif = metadata.read(store)
    groups: dict[str, list[str]] = {}
    for name, first in interop_cameras.groups(extraction.sizes(store), exif).items():
        if not exif.get(name, Exif()).has_camera:
            groups.setdefault(first, []).append(name)
    return [names for names in groups.values() if len(names) >= 2 * _MIN_IMAGES]


def _separations(groups: list[list[str]], focal_lengths: Mapping[str, float]) -> list[list[str]]:
    """Return the cameras of groups that are divided, as lists of images."""
    result = []
    for names in groups:
        parts = clusters({name: focal_lengths[name] for name in names if name in focal_lengths})
        result += parts if len(parts) > 1 else []
    return result


def _evidence(groups: list[list[str]], models: Sequence[Reconstruction]) -> dict[str, float]:
    """Return the focal lengths of images of groups, those in several models of the largest."""
    names = {name for group in groups for name in group}
    focal_lengths: dict[str, float] = {}
    for model in reversed(models):
        if names & set(model.images):
            focal_lengths |= separate_focal_lengths(model)
    return focal_lengths


def _alone(missing: set[str], groups: list[list[str]]) -> dict[str, str]:
    """Return the cameras of images of groups; each missing image has its own."""
    result: dict[str, str] = {}
    for names in groups:
        others = [name for name in names if name not in missing]
        result |= {name: name for name in missing & set(names)}
        result |= {name: min(others) for name in others}
    return result


def _is_better(new: list[Reconstruction], old: tuple[Reconstruction, ...]) -> bool:
    """Return whether models have more images, or about as many observations at lower errors."""
    if not new or not old:
        return bool(new)
    if mapping.size(new) != mapping.size(old):
        return mapping.size(new) > mapping.size(old)
    observations = [model.points * model.track_length for model in (new[0], old[0])]
    return new[0].error < _ERROR * old[0].error and observations[0] > _KEPT * observations[1]


def separate(
    store: Path,
    directory: Path,
    cameras: Cameras,
    earlier: ReconstructionResult,
    progress: Progress = no_progress,
) -> Separated:
    """Return models in which images with different focal lengths have different cameras.

    The database and the models of the store are replaced if the new ones are better. Otherwise
    the earlier ones are returned.
    """
    unchanged = Separated(earlier, cameras)
    groups = assumed(store, cameras)
    focal_lengths = _evidence(groups, earlier.models)
    parts = _separations(groups, focal_lengths)
    registered = set(earlier.models[0].images) if earlier.models else set()
    missing = mapping.connected(store) - registered
    missing &= {name for names in groups for name in names}
    if not parts and len(missing) < _MIN_IMAGES:
        return unchanged
    shared = interop_cameras.groups(extraction.sizes(store), metadata.read(store))

    def mapped(camera_of: dict[str, str], output: Path) -> list[Reconstruction]:
        chosen = replace(cameras, camera_of={**shared, **camera_of})
        exporting.export(store, "colmap", directory, chosen)
        output.mkdir()
        return mapping.map_store(store, directory, output, progress)[0]

    with temporary_directory((store / colmap.DATABASE).parent) as temporary:
        if not parts:
            models = mapped(_alone(missing, groups), temporary / "missing")
            focal_lengths = _evidence(groups, models)
            parts = _separations(groups, focal_lengths)
        camera_of = {name: min(names) for names in parts for name in names}
        # An image whose focal length is unknown has its own camera.
        divided = [group for group in groups if camera_of.keys() & set(group)]
        camera_of |= {name: name for group in divided for name in group if name not in camera_of}
        models = mapped(camera_of, temporary / "parts") if parts else []
        if not _is_better(models, earlier.models):
            exporting.export(store, "colmap", directory, cameras)
            return unchanged
        result = mapping.install(store, models)
    medians = [float(np.median([focal_lengths[name] for name in names])) for names in parts]
    chosen = replace(cameras, camera_of={**shared, **camera_of})
    return Separated(result, chosen, tuple(sorted(medians)))
