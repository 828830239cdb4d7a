"""The steps of :mod:`caloric.matching.refinement_steps` in PyTorch."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.gpu.caches import cached
from caloric.matching import refinement_steps
from caloric.matching.refinement_steps import BLURS, Tables

# Columns of outcomes, see :class:`caloric.matching.refinement.Outcome`; Triton kernels store them.
MAPS, SHIFTS, TOTAL_SHIFTS, STATISTICS = slice(0, 6), slice(6, 10), slice(10, 14), slice(14, 17)
_TAPS = (1 / 16, 1 / 4, 3 / 8, 1 / 4, 1 / 16)  # of cv2.pyrDown


@cached
def taps(device: Any) -> Tensor:
    """Return the filter (5,) of :func:`halved`."""
    return torch.tensor(_TAPS, device=device)


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
def tables(device: Any) -> Tables:
    """Return the tables of the steps on a device."""
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
class Octaves(refinement_steps.Image):
    """An image (h, w) at 1, 1/2, 1/4, … of its size on a device."""

    shape: tuple[int, int]
    pixels: Tensor  # of all levels, concatenated
    starts: Tensor  # index of the first pixel of each level
    heights: Tensor
    widths: Tensor

    def image(self) -> Tensor:
        """Return the image (h, w)."""
        h, w = self.shape
        return self.pixels[: h * w].view(h, w)

    def patches(self, maps: Tensor) -> Tensor:
        """Return patches (m, n) around frames (m, 2, 3), interpolated bilinearly."""
        level, _ = refinement_steps.octaves(maps, len(self.starts))
        scaled = maps / self.spacings[level][:, None, None]
        # Relative to the pixel at the center, so that float32 is accurate enough.
        center = scaled[:, :, 2].clamp(-1e7, 1e7).floor()
        grid = tables(maps.device).grid
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
def level_tables(shapes: tuple[tuple[int, int], ...], device: Any) -> dict[str, Tensor]:
    """Return the attributes of :class:`Octaves` that depend only on the sizes (h, w) of levels."""
    sizes = np.array(shapes)
    counts = sizes.prod(1)
    spacings, variances, correlations = refinement_steps.level_noise(len(shapes))
    by_name = {
        "spacings": spacings, "variances": variances, "correlations": correlations,
        "starts": counts.cumsum() - counts, "heights": sizes[:, 0], "widths": sizes[:, 1],
    }  # fmt: skip
    return {name: torch.tensor(v, device=device) for name, v in by_name.items()}


def halved(level: Tensor) -> Tensor:
    """Return an image (h, w) at half its size, blurred as by cv2.pyrDown."""
    first, second, middle = _TAPS[:3]
    for _ in range(2):  # along y, then x; by sums, because convolutions may use TF32
        padded = functional.pad(level.T[None], (2, 2), mode="reflect")[0]
        end = padded.shape[1]
        a, b, c, d, e = (padded[:, i : end - 4 + i : 2] for i in range(5))
        level = (a + e) * first + (b + d) * second + c * middle
    return level


def refined(images: tuple[Octaves, Octaves], a: Tensor, b: Tensor) -> Tensor:
    """Return the outcomes (m, 17) of frames (m, 2, 3), with the columns above."""
    parts = refinement_steps.descend(images, a, b, tables(a.device))
    return torch.cat([v.double().flatten(1) for v in parts], 1)
