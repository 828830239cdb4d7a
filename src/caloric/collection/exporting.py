"""Export a store for other tools, and describe the keypoints of COLMAP databases."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.collection import defaults, extraction, metadata, observations, refining
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image import inputs, reading
from caloric.interop import colmap, exporters
from caloric.interop.cameras import Cameras, groups
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Request
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import created_directory

Content = tuple[Iterable[tuple[str, Features]], Iterable[TwoViews]]


def images(store: Path) -> Iterator[tuple[str, Features]]:
    """Yield the name and the features of each image of a store that has features.

    Refined features have their refined positions; those added by propagation are at the end.
    """
    refined = refining.positions(store)
    for row, added in observations.features(store):
        if not row["count"]:
            continue
        features = extraction.features_of(row)
        if added is not None:
            features = added.after(features)
        if row["name"] in refined:
            rows, xy = refined[row["name"]]
            maps = features.frames.maps.copy()
            maps[rows, :, 2] = xy
            frames = Frames(maps, features.frames.scores)
            features = replace(features, frames=frames)
        yield row["name"], features


def two_views(store: Path) -> Iterator[TwoViews]:
    """Yield the matches of all pairs of a store, with those added by propagation."""
    return observations.two_views(store, refining.positions(store))


@dataclass(frozen=True)
class ExportResult:
    """The files and directories that were written, and a hint on how to use them."""

    paths: tuple[Path, ...]
    hint: str = ""

    def __str__(self) -> str:
        """Return one line for each path."""
        lines = [f"written: {path}" for path in self.paths]
        return "\n".join([*lines, self.hint] if self.hint else lines)


def export(
    store: Path,
    to: str = "colmap",
    directory: Path | None = None,
    cameras: Cameras = defaults.CAMERAS,
    content: Content | None = None,
) -> ExportResult:
    """Export the features and matches of a store to a format of :mod:`caloric.interop.exporters`.

    ``directory`` is the image directory, from which COLMAP's cameras are read. ``content`` has
    other features and pairs of the same images.
    """
    kind = exporters.exporter(to)
    known = {name: image for name, image in extraction.stored_images(store).items() if image.count}
    if not known:
        raise InputError(f"{store}: contains no features; extract them first")
    target = store / kind.location
    count = sum(observations.counts(store).values())
    with created_directory(target.parent):
        request = Request(
            target, tuple(sorted(known)), directory, count, True, cameras,
            cameras.camera_of
            or groups(extraction.sizes(store), metadata.read(store), cameras.sharing),
        )  # fmt: skip
        exporter = kind(request)
        features, pairs = content or (images(store), two_views(store))
        paths = exporters.write(exporter, features, pairs)
    return ExportResult(tuple(paths), kind.hint)


def describe_database(
    database: Path, directory: Path, descriptor: str, white_level: float | None = None
) -> tuple[int, dict[str, str]]:
    """Replace the descriptors of a COLMAP database, at the same keypoints.

    Matches and geometries of the old descriptors are deleted. ``white_level`` is the pixel value of
    white (:func:`caloric.read_image`). Returns the number of described images, and the skipped
    images, which are left without descriptors, with the reasons.
    """
    inputs.check_white_level(white_level)
    recipe = recipes.descriptor(descriptor)
    if recipe.dimension != 128:
        raise InputError(
            f"COLMAP descriptors have 128 dimensions, {descriptor!r} has {recipe.dimension}; "
            "use caloric or caloric-unlearned"
        )
    frames = colmap.read_frames(database)
    skipped: dict[str, str] = {}

    def described() -> Iterator[tuple[str, NDArray[np.uint8]]]:
        for name, keypoints in frames.items():
            try:
                pixels = inputs.read_image(directory / name, white_level=white_level)
            except InputError as error:
                skipped[name] = str(error)
                continue
            size = (pixels.shape[0], pixels.shape[1])
            to_stored = reading.to_stored(size, reading.orientation(directory / name))
            upright = keypoints.moved(np.asarray(cv2.invertAffineTransform(to_stored)))
            values = pipeline.describe(pixels, upright, descriptor)
            yield name, sift_bytes(Features(upright, values, size, descriptor, ""))

    colmap.replace_descriptors(database, described())
    return len(frames) - len(skipped), skipped
