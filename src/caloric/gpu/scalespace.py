"""Scale spaces of images of the same size in PyTorch; pyramid.py defines their memory layout."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.gpu.caches import cached
from caloric.gpu.pyramid import Pyramid
from caloric.image import scalespace
from caloric.image.scalespace import SCALES


@cached
def mirrored(count: int, reach: int, device: Any) -> Tensor:
    """Return −reach … count + reach − 1 mirrored into 0 … count − 1, (count + 2 reach,)."""
    period = max(2 * (count - 1), 1)
    index = np.abs((np.arange(-reach, count + reach) + count - 1) % period - (count - 1))
    return torch.tensor(index if count > 1 else 0 * index, device=device)


def blur(pixels: Tensor, sigma: float) -> Tensor:
    """Return images (b, h, w) smoothed by ``sigma``.

    Columns are smoothed before rows, and taps are added in the order of the compiled core, so that
    pixels and therefore extrema are the same.
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
    """Return images (b, 2h, 2w) interpolated linearly at ±1/4 pixel, along rows, then columns."""
    for axis in (2, 1):
        count = pixels.shape[axis]
        before = torch.cat([pixels.narrow(axis, 0, 1), pixels.narrow(axis, 0, count - 1)], axis)
        after = torch.cat([pixels.narrow(axis, 1, count - 1), pixels.narrow(axis, -1, 1)], axis)
        even = torch.add(pixels, before - pixels, alpha=0.25)
        odd = torch.add(pixels, after - pixels, alpha=0.25)
        pixels = torch.stack([even, odd], axis + 1).flatten(axis, axis + 1)
    return pixels


def _layers(base: Tensor, first: float) -> Tensor:
    layers, layer = [], base
    for sigma in scalespace.steps(first):
        layer = blur(layer, sigma) if sigma else layer
        layers.append(layer)
    return torch.stack(layers, 1)


def build(images: Tensor, pyramid: Pyramid, sizes: Tensor | None = None) -> Tensor:
    """Return the pyramids (b, total) of images (b, h, w) with values in [0, 1]."""
    b = len(images)
    octaves = [_layers(enlarged(images), pyramid.octaves[0].first)]
    base = images
    for octave in pyramid.octaves[1:]:
        octaves.append(_layers(base, octave.first))
        base = octaves[-1][:, SCALES, ::2, ::2]
    return torch.cat([layers.reshape(b, -1) for layers in octaves], 1)
