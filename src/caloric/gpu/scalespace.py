"""The scale spaces of a batch of images of the same size, one row of a tensor per image.

A row holds the six layers of each octave, octave after octave. A level is an offset, a height and a
width, so that one kernel can read from all of them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.gpu.caches import once
from caloric.image import scalespace
from caloric.image.scalespace import FIRST, SCALES, SMALLEST

LAYERS = SCALES + 3


@dataclass(frozen=True)
class Octave:
    """The offset in a row of the six layers (6, h, w) of an octave, and their pixel grid.

    ``first`` is the smoothing of the base of the octave, in its pixels.
    """

    offset: int
    height: int
    width: int
    step: float
    origin: float
    first: float

    @property
    def count(self) -> int:
        """The number of elements of the octave."""
        return LAYERS * self.height * self.width


@dataclass(frozen=True)
class Pyramid:
    """The octaves of images (h, w), the enlarged one first."""

    size: tuple[int, int]
    octaves: tuple[Octave, ...]

    @property
    def total(self) -> int:
        """The number of elements of all octaves."""
        last = self.octaves[-1]
        return last.offset + last.count

    @property
    def levels(self) -> list[tuple[int, Octave]]:
        """Offset and octave of each level, as in :class:`caloric.image.scalespace.Ladder`."""
        levels = []
        for octave in self.octaves:
            layers = LAYERS if octave is self.octaves[-1] else SCALES
            plane = octave.height * octave.width
            levels += [(octave.offset + i * plane, octave) for i in range(layers)]
        return levels


@lru_cache(maxsize=256)
def pyramid(height: int, width: int) -> Pyramid:
    """Return the pyramid of images of that size."""
    octaves = [Octave(0, 2 * height, 2 * width, 0.5, -0.25, 2 * scalespace.CAMERA)]
    h, w, first, step = height, width, scalespace.SHARP, 1.0
    while min(h, w) >= SMALLEST:
        before = octaves[-1]
        octaves.append(Octave(before.offset + before.count, h, w, step, 0.0, first))
        h, w, first, step = (h + 1) // 2, (w + 1) // 2, FIRST, 2 * step
    return Pyramid((height, width), tuple(octaves))


@once
def mirrored(count: int, reach: int, device: Any) -> Tensor:
    """Return the mirrored indices of −reach … count + reach − 1 (count + 2 reach,)."""
    period = max(2 * (count - 1), 1)
    index = np.abs((np.arange(-reach, count + reach) + count - 1) % period - (count - 1))
    return torch.tensor(index if count > 1 else 0 * index, device=device)


def blur(pixels: Tensor, sigma: float) -> Tensor:
    """Return images (b, h, w) smoothed by ``sigma``.

    Columns are smoothed before rows, and taps are added in the order of the compiled core, so that
    the bytes and therefore the extrema are the same.
    """
    taps = scalespace.taps(sigma).tolist()
    reach = len(taps) // 2
    h, w = pixels.shape[1:]
    rows = pixels.index_select(1, mirrored(h, reach, pixels.device))
    down = taps[0] * rows[:, :h]
    for k, tap in enumerate(taps[1:], 1):
        down = torch.add(down, rows[:, k : k + h], alpha=tap)
    columns = down.index_select(2, mirrored(w, reach, pixels.device))
    total = taps[reach] * down
    for k in range(1, reach + 1):
        left, right = columns[..., reach - k :][..., :w], columns[..., reach + k :][..., :w]
        total = torch.add(total, left + right, alpha=taps[reach + k])
    return total


def enlarged(pixels: Tensor) -> Tensor:
    """Return images (b, 2h, 2w) interpolated at ±1/4 pixel: along rows first, then columns."""
    for axis in (2, 1):
        count = pixels.shape[axis]
        before = torch.cat([pixels.narrow(axis, 0, 1), pixels.narrow(axis, 0, count - 1)], axis)
        after = torch.cat([pixels.narrow(axis, 1, count - 1), pixels.narrow(axis, -1, 1)], axis)
        even = torch.add(pixels, before - pixels, alpha=0.25)
        odd = torch.add(pixels, after - pixels, alpha=0.25)
        pixels = torch.stack([even, odd], axis + 1).flatten(axis, axis + 1)
    return pixels


def _layers(base: Tensor, first: float) -> Tensor:
    layers, before = [], base
    for sigma in scalespace.steps(first):
        before = blur(before, sigma) if sigma else before
        layers.append(before)
    return torch.stack(layers, 1)


def build(images: Tensor, pyramid: Pyramid, fused: bool = False) -> Tensor:
    """Return the pyramids (b, total) of images (b, h, w) with values 0 to 1.

    With ``fused`` they are computed by Triton kernels, which are not differentiable.
    """
    if fused:
        from caloric.gpu import scalespace_kernels

        return scalespace_kernels.build(images, pyramid)
    b = len(images)
    octaves = [_layers(enlarged(images), pyramid.octaves[0].first)]
    base = images
    for octave in pyramid.octaves[1:]:
        octaves.append(_layers(base, octave.first))
        base = octaves[-1][:, SCALES, ::2, ::2]
    return torch.cat([layers.reshape(b, -1) for layers in octaves], 1)
