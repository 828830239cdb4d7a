"""Extraction on a device: frames and descriptors of images of the same size."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from caloric.descriptor import normalize
from caloric.gpu import backend, extrema, orientation
from caloric.gpu.pyramid import Peaks, Pyramid, pyramid
from caloric.gpu.reader import Reader
from caloric.options import ExtractOptions

_MIN_CAPACITY = 1024  # candidates
_PIXELS_PER_CANDIDATE = 16  # if there are more candidates, the extraction is repeated


@dataclass(frozen=True, eq=False)
class Batch:
    """Features of b images on the device, in the order of :func:`caloric.detect`.

    ``maps`` (b, k, 2, 3) in float64, ``strengths`` (b, k) and ``descriptors`` (b, k, d); a slot of
    strength 0 is empty. ``overflowed`` (b,) is True if the candidates exceeded the capacity.
    """

    maps: Tensor
    strengths: Tensor
    descriptors: Tensor
    overflowed: Tensor


def default_capacity(size: tuple[int, int]) -> int:
    """Return the default size of the candidate buffer for an image (h, w)."""
    return max(_MIN_CAPACITY, size[0] * size[1] // _PIXELS_PER_CANDIDATE)


def _unmasked(peaks: Peaks, masks: Tensor | None) -> Peaks:
    """Return the peaks without those where the mask (b, h, w) is 0."""
    if masks is None or peaks.keys.shape[1] == 0:
        return peaks
    b, h, w = masks.shape
    x, y = (torch.round(peaks.positions[..., i]).long() for i in (0, 1))
    at = y.clamp(0, h - 1) * w + x.clamp(0, w - 1)
    allowed = masks.reshape(b, -1).gather(1, at)
    return replace(peaks, keys=torch.where(allowed, peaks.keys, 0))


def extract(
    images: Tensor,
    options: ExtractOptions,
    masks: Tensor | None = None,
    capacity: int = 0,
    sizes: Tensor | None = None,
    octaves: int | None = None,
) -> Batch:
    """Return the features of images (b, h, w), float32 in [0, 1], on their device.

    With ``sizes`` (b, 2) each image is only the top left of its (h, w) pixels, and has so many
    ``octaves``.
    On a GPU with ``max_features`` the host never waits for the device, and all shapes are known in
    advance: the number of slots is ``max_features``, or the capacity if that is smaller.
    """
    h, w = images.shape[1:]
    layout, stages = pyramid(h, w, octaves), backend.of(images.device)
    capacity = capacity or default_capacity((h, w))
    rows = stages.build(images, layout, sizes)
    peaks = stages.find(rows, layout, options.lowest, options.edge, capacity, sizes)
    peaks = _unmasked(peaks, masks)
    limit = options.max_features
    if stages.compiled and limit is not None:
        slots = count = min(limit, capacity)
    else:
        slots = None
        count = int((peaks.keys > 0).sum(1).max()) if peaks.keys.numel() else 0
        count = count if limit is None else min(limit, count)
    positions, strengths = extrema.strongest(peaks, count)
    maps = upright(positions, strengths)
    reader = Reader(rows, layout, count, sizes)
    if options.affine and count:
        maps = orientation.adapted(reader, maps.view(-1, 2, 3)).view_as(maps)
    frame_counts = peaks.counts
    if not options.upright and count:
        maps, strengths, frame_counts = orientation.oriented(reader, maps, strengths, slots)
        maps, strengths = maps[:, :limit], strengths[:, :limit]
    overflowed = peaks.counts > peaks.keys.shape[1]
    if slots is not None and slots != limit:
        overflowed |= frame_counts > slots
    reader = Reader(rows, layout, strengths.shape[1], sizes)
    return Batch(maps, strengths, _describe_slots(reader, maps, strengths, options), overflowed)


def upright(positions: Tensor, strengths: Tensor) -> Tensor:
    """Return upright frames (b, k, 2, 3) of extrema (b, k, 3); empty slots get σ = 1."""
    maps = torch.zeros((*strengths.shape, 2, 3), dtype=positions.dtype, device=positions.device)
    maps[..., 0, 0] = maps[..., 1, 1] = torch.where(strengths > 0, positions[..., 2], 1.0)
    maps[..., 2] = positions[..., :2]
    return maps


def _describe_slots(
    reader: Reader, maps: Tensor, strengths: Tensor, options: ExtractOptions
) -> Tensor:
    """Return the descriptors (b, k, d) of frames (b, k, 2, 3); slots may be empty."""
    b, k = strengths.shape
    device, d = maps.device, options.recipe.dimension
    if k == 0:
        return torch.zeros((b, 0, d), device=device)
    empty = (strengths == 0)[..., None, None]
    frames = torch.where(empty, torch.eye(2, 3, dtype=maps.dtype, device=device), maps)
    return _describe(reader, frames.view(-1, 2, 3), options).view(b, k, d)


def describe(images: Tensor, maps: Tensor, options: ExtractOptions) -> Tensor:
    """Return the descriptors (n, d) of frames (n, 2, 3) of a single image (1, h, w)."""
    layout = pyramid(*images.shape[1:])
    return describe_in(backend.of(images.device).build(images, layout, None), layout, maps, options)


def describe_in(rows: Tensor, layout: Pyramid, maps: Tensor, options: ExtractOptions) -> Tensor:
    """Return the descriptors (n, d) of frames (n, 2, 3) in the pyramid (1, total) of an image."""
    return _describe(Reader(rows, layout, len(maps)), maps, options)


def _describe(reader: Reader, maps: Tensor, options: ExtractOptions) -> Tensor:
    values = reader.described(maps, options.recipe, options.sizes, product_type(maps.device))
    if options.output != "uint8":
        return values
    return normalize.to_uint8(values, signed=options.recipe.whitening is not None)


def product_type(device: Any) -> Any:
    """Return the data type in which harmonics and tables are multiplied on a device."""
    return torch.float16 if device.type == "cuda" else torch.float32
