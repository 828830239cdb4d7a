"""Feature extraction from one image on the CPU; the result does not depend on the tiles."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.engine import check_range, describe_levels
from caloric.descriptor.options import DescribeOptions
from caloric.detector import detection, extrema
from caloric.detector.detection import Strongest
from caloric.detector.extrema import Extrema, joined
from caloric.detector.options import DetectOptions
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image import inputs, tiles
from caloric.image.pixels import Source, as_array, is_tensor, source
from caloric.image.scalespace import SCALES
from caloric.kernels import Kernel
from caloric.options import ExtractOptions
from caloric.types import FloatArray, ImageLike, Mask, Windows

Allowed: TypeAlias = Callable[[FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class _Part:
    """Features of a tile: the extremum, frame and descriptor of each.

    The first ``positions`` of them are in the dominant orientations, the rest in others.
    """

    positions: int
    extrema: Extrema
    maps: FloatArray
    values: NDArray[np.generic]


def find(
    image: Source, allowed: Allowed | None, options: DetectOptions, memory: int
) -> tuple[Frames, NDArray[np.generic]]:
    """Return the frames of an image and their descriptors (n, d).

    ``allowed`` tests at which positions (n, 2) features are allowed. If the options are not
    :class:`ExtractOptions`, frames are not described: d is 0.
    """
    request = options if isinstance(options, ExtractOptions) else None
    if 0 in image.size:
        return Frames.empty(), np.zeros((0, 0)) if request is None else request.empty_values
    farthest = 0.0 if request is None else request.recipe.sampling.farthest()
    halo = tiles.halo(max(farthest * options.stretch, options.farthest))
    strongest = Strongest(options.max_features)
    whole = None
    if options.detector == "opencv":
        whole = detection.by_opencv(image.whole(), options.contrast, options.edge)
    parts = []
    for tile, space in tiles.scale_spaces(image, halo, memory):
        peaks = extrema.extrema(space, options.lowest, options.edge) if whole is None else whole
        peaks = peaks[tile.owns(peaks.xy)]
        if allowed is not None:
            peaks = peaks[allowed(peaks.xy)]
        peaks = strongest.select(peaks)
        ladder = space.ladder()
        maps, rows = detection.frames(
            ladder, peaks, options.affine, options.upright, options.max_features
        )
        values: NDArray[np.generic] = np.zeros((len(maps), 0))
        if request is not None:
            values = describe_levels(ladder, maps, request)
        parts.append(_Part(len(peaks), peaks[rows], maps, values))
        del space, ladder  # the next tile takes their memory
    return _merged(parts, options.max_features)


def _merged(parts: list[_Part], limit: int | None) -> tuple[Frames, NDArray[np.generic]]:
    """Return the strongest features of all tiles; those of each tile are already sorted."""
    if len(parts) == 1:
        (part,) = parts
        return Frames(part.maps, part.extrema.response.astype(np.float32)), part.values
    peaks = joined([part.extrema for part in parts])
    further = np.concatenate([np.arange(len(part.maps)) >= part.positions for part in parts])
    order = peaks.order()
    order = np.append(order[~further[order]], order[further[order]])[:limit]
    # Copy each row once: descriptors take most of the memory of a large image.
    rank = np.full(len(peaks), -1)
    rank[order] = np.arange(len(order))
    maps = np.empty((len(order), 2, 3))
    values = np.empty((len(order), *parts[0].values.shape[1:]), parts[0].values.dtype)
    for part in parts:
        rows, rank = rank[: len(part.maps)], rank[len(part.maps) :]
        maps[rows[rows >= 0]] = part.maps[rows >= 0]
        values[rows[rows >= 0]] = part.values[rows >= 0]
    return Frames(maps, peaks.response[order].astype(np.float32)), values


def describe(
    image: Source, frames: Frames, options: DescribeOptions, memory: int
) -> NDArray[np.generic]:
    """Return the descriptors (n, d) of given frames of an image."""
    recipe = options.recipe
    result = np.zeros((len(frames), recipe.dimension), options.output)
    if 0 in image.size or len(frames) == 0:
        return result
    stretch = float((np.linalg.norm(frames.maps[:, :, :2], 2, (1, 2)) / frames.sigma).max())
    margin = tiles.halo(recipe.sampling.farthest() * stretch)

    def has_frames(tile: tiles.Tile) -> bool:
        return bool(tile.owns(frames.xy).any())

    spaces = tiles.scale_spaces(image, margin, memory, has_frames, SCALES)
    for tile, space in spaces:
        rows, ladder = tile.owns(frames.xy), space.ladder()
        result[rows] = describe_levels(ladder, frames.maps[rows], options)
        del space, ladder  # the next tile takes their memory
    return result


def checked_source(image: Any, kernel: Kernel) -> Source:
    """Return the image as a source; an intensity kernel checks the range of pixels it reads."""
    pixels = source(image)

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        part = pixels.read(rows, columns)
        check_range(part, kernel)
        return part

    return replace(pixels, read=read) if kernel.feature == "intensity" else pixels


def checked_mask(mask: ImageLike | None, size: tuple[int, int]) -> Mask | None:
    """Return a mask as booleans (h, w); raise InputError if its shape is not ``size``.

    A mask can be any image. Where it has colors, all channels that are zero exclude a pixel, as
    does an alpha of zero.
    """
    if mask is None:
        return None
    try:
        # Unlike images, masks may be integers of any type.
        is_image = inputs.is_encoded(mask) or is_tensor(mask) or isinstance(mask, Windows)
        array = inputs.read_image(mask) if is_image else as_array(mask, "mask")
    except InputError as error:
        raise InputError(str(error).replace("image:", "mask:", 1)) from None
    if array.ndim == 3 and array.shape[2] in (3, 4):
        nonzero = (array[..., :3] != 0).any(-1)
        array = nonzero & (array[..., 3] != 0) if array.shape[2] == 4 else nonzero
    if array.shape != size:
        raise InputError(f"mask: shape {array.shape} does not match the image's, {size}")
    return np.asarray(array != 0)


def allowed_by(mask: ImageLike | None, size: tuple[int, int]) -> Allowed | None:
    """Return a function that tests at which positions (n, 2) a mask is nonzero."""
    checked = checked_mask(mask, size)
    if checked is None:
        return None
    h, w = size

    def allowed(xy: FloatArray) -> NDArray[np.bool_]:
        column = np.clip(np.rint(xy[:, 0]).astype(int), 0, w - 1)
        row = np.clip(np.rint(xy[:, 1]).astype(int), 0, h - 1)
        return np.asarray(checked[row, column])

    return allowed
