"""Refinement of matches on a device, by :mod:`caloric.matching.refinement_steps`.

Results differ from those of the CPU only by the order of float32 sums.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.gpu import cuda_streams, devices, graphs
from caloric.gpu.caches import cached
from caloric.matching import refinement, refinement_steps
from caloric.matching.refinement import Outcome
from caloric.matching.refinement_steps import BLURS, Tables
from caloric.types import FloatArray

_BATCH = 1 << 15  # matches refined at once, at most
_RECORDED = 1 << 12  # matches refined by a recorded graph, at most: it holds memory for them


@dataclass(frozen=True, eq=False)
class _JoinedFilters:
    """Row and column filters as one matrix: a :class:`refinement_steps.Gradient`."""

    matrix: Tensor  # (n, 2 n)
    transposed: Tensor

    def apply(self, patches: Tensor) -> Tensor:
        return patches @ self.matrix

    def adjoint(self, weights: Tensor) -> Tensor:
        return weights @ self.transposed


@cached
def _tables(device: Any) -> Tables:
    to = partial(torch.tensor, device=device)
    joined = []
    for blur in BLURS:
        by = refinement_steps.filters(blur)
        # For row-major patches S P Dᵀ is kron(S, D) P, and D P Sᵀ is kron(D, S) P.
        gradient = np.concatenate([np.kron(by.smooth, by.slope), np.kron(by.slope, by.smooth)])
        matrix = to(gradient, dtype=torch.float32)
        joined.append(_JoinedFilters(matrix.T.contiguous(), matrix))
    return refinement_steps.tables(tuple(joined), "float32", to)


@dataclass(frozen=True, eq=False)
class _Octaves(refinement_steps.Image):
    pixels: Tensor  # of all levels, concatenated
    starts: Tensor  # index of the first pixel of each level
    heights: Tensor
    widths: Tensor

    def patches(self, maps: Tensor) -> Tensor:
        """Return patches (m, n) around frames (m, 2, 3) in float64, interpolated bilinearly."""
        level, _ = refinement_steps.octaves(maps, len(self.starts))
        scaled = maps / self.spacings[level][:, None, None]
        # Relative to the pixel at the center, so that float32 is accurate enough.
        center = scaled[:, :, 2].clamp(-1e7, 1e7).floor()
        grid = _tables(maps.device).grid
        xy = scaled[:, :, :2].float() @ grid.T + (scaled[:, :, 2] - center).float()[:, :, None]
        last = torch.stack([self.widths[level], self.heights[level]], 1)[:, :, None]
        corner = center.long()[:, :, None]
        xy = torch.maximum(torch.minimum(xy, (last - 1 - corner).float()), (-corner).float())
        whole = torch.minimum(xy.floor(), (last - 2 - corner).clamp_min(0 - corner).float())
        u, v = (xy - whole).unbind(1)
        column, row = (whole.long() + corner).unbind(1)
        width = self.widths[level][:, None]
        at = self.starts[level][:, None] + row * width + column
        above = torch.lerp(self.pixels[at], self.pixels[at + 1], u)
        at += width
        return torch.lerp(above, torch.lerp(self.pixels[at], self.pixels[at + 1], u), v)


@cached
def _level_tables(shapes: tuple[tuple[int, int], ...], device: Any) -> dict[str, Tensor]:
    """Return the attributes of :class:`_Octaves` that depend only on the sizes (h, w) of levels."""
    sizes = np.array(shapes)
    counts = sizes.prod(1)
    spacings, variances, correlations = refinement_steps.level_noise(len(shapes))
    by_name = {
        "spacings": spacings, "variances": variances, "correlations": correlations,
        "starts": counts.cumsum() - counts, "heights": sizes[:, 0], "widths": sizes[:, 1],
    }  # fmt: skip
    return {name: torch.tensor(v, device=device) for name, v in by_name.items()}


def _octaves(level: Tensor) -> _Octaves:
    noise = refinement_steps.noise_level(level)
    levels = [level]
    while min(level.shape) >= refinement.SMALLEST:
        for _ in range(2):  # along y, then x; by sums, because convolutions may use TF32
            padded = functional.pad(level.T[None], (2, 2), mode="reflect")[0]
            end = padded.shape[1]
            a, b, c, d, e = (padded[:, i : end - 4 + i : 2] for i in range(5))
            level = (a + e) / 16 + (b + d) / 4 + c * 0.375
        levels.append(level)
    shapes = tuple((v.shape[0], v.shape[1]) for v in levels)
    pixels = torch.cat([v.reshape(-1) for v in levels])
    return _Octaves(noise=noise, pixels=pixels, **_level_tables(shapes, pixels.device))


def descend(image_a: Any, image_b: Any, a: FloatArray, b: FloatArray, device: Any) -> Outcome:
    """Return the result of :func:`caloric.matching.refinement.descend`.

    The images are float32 arrays (h, w).
    """

    def on_device() -> Outcome:
        with torch.no_grad(), cuda_streams.using(device):
            first, second = (torch.as_tensor(v, device=device) for v in (image_a, image_b))
            parts = [
                _refined(first, second, a[i : i + _BATCH], b[i : i + _BATCH])
                for i in range(0, len(a), _BATCH)
            ]
            return Outcome(*(np.concatenate(v) for v in zip(*parts, strict=True)))

    result = devices.unless_out_of_memory(on_device, f"refining {len(a)} matches")
    if result is None:
        return refinement.descend(np.asarray(image_a), np.asarray(image_b), a, b)
    return result


def _refined(first: Tensor, second: Tensor, a: FloatArray, b: FloatArray) -> list[FloatArray]:
    """Return maps, shifts, total shifts and statistics of the matches of a batch."""
    count, device = len(a), first.device
    if count > _RECORDED:
        packed = _packed(first, second, *(torch.tensor(v, device=device) for v in (a, b)))
    else:
        # The last match is repeated, so that graphs have few different sizes.
        size = max(256, 1 << (count - 1).bit_length())
        rows = np.minimum(np.arange(size), count - 1)
        frames = (torch.from_numpy(v[rows]).to(device) for v in (a, b))
        packed = graphs.recorded(_packed, ("refinement",), first, second, *frames)
    maps, *shifts, statistics = np.split(packed[:count].cpu().numpy(), (6, 10, 14), 1)
    return [maps.reshape(-1, 2, 3), *(v.reshape(-1, 2, 2) for v in shifts), statistics]


def _packed(first: Tensor, second: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return an :class:`Outcome` of frames (m, 2, 3) as one float64 tensor (m, 17)."""
    images = _octaves(first), _octaves(second)
    parts = refinement_steps.descend(images, a, b, _tables(first.device))
    return torch.cat([v.double().flatten(1) for v in parts], 1)
