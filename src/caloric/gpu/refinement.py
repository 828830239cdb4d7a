"""Refinement of matches on a device: the steps of :mod:`caloric.matching.refinement`, in batches.

Fields are products with one matrix: filters of rows and columns joined (n, 2 n). Differences from
the CPU are those of float32 sums in another order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.gpu import cuda_streams, devices, graphs
from caloric.gpu.caches import once
from caloric.matching import refinement as plain
from caloric.matching.refinement import SIDE, Outcome
from caloric.types import FloatArray

_BATCH = 1 << 15  # matches at once
_RECORDED = 1 << 12  # fewer are the work of a recorded graph, which holds the memory for them
_SAMPLES = SIDE * SIDE


@dataclass(frozen=True, eq=False)
class _Constants:
    """What does not depend on the matches, on one device."""

    grid: Tensor  # (n, 2)
    root: Tensor  # (2 n,)
    differences: Tensor  # (SIDE, SIDE)
    filters: list[Tensor]  # (n, 2 n) of each blur
    back: list[Tensor]  # (2 n, n)


@once
def _constants(device: Any) -> _Constants:
    joined = []
    for blur in plain.BLURS:
        by = plain.filters(blur)
        # Row-major patches: S P Dᵀ is kron(S, D) of the patch, D P Sᵀ kron(D, S).
        both = np.concatenate([np.kron(by.smooth, by.slope), np.kron(by.slope, by.smooth)])
        joined.append(torch.tensor(both, dtype=torch.float32, device=device))
    return _Constants(
        torch.tensor(plain.GRID, dtype=torch.float32, device=device),
        torch.tensor(np.tile(plain.ROOT, 2), device=device),
        torch.tensor(plain.DIFFERENCES, dtype=torch.float32, device=device),
        [matrix.T.contiguous() for matrix in joined],
        joined,
    )


@dataclass(frozen=True, eq=False)
class _Octaves:
    """An image at 1, 1/2, 1/4, … of its size, one after the other in ``pixels``."""

    pixels: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor
    noise: Tensor  # ()

    def __len__(self) -> int:
        return len(self.starts)


@once
def _places(shapes: tuple[tuple[int, int], ...], device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return where levels of these shapes begin, their heights and their widths."""
    sizes = np.array(shapes)
    counts = sizes.prod(1)
    both = (counts.cumsum() - counts, sizes[:, 0], sizes[:, 1])
    starts, heights, widths = (torch.tensor(v, device=device) for v in both)
    return starts, heights, widths


def _octaves(level: Tensor) -> _Octaves:
    noise = _noise_level(level)
    levels = [level]
    while min(level.shape) >= 32:
        for _ in range(2):  # rows, then columns; sums, because convolutions round to 10 bits
            padded = functional.pad(level.T[None], (2, 2), mode="reflect")[0]
            end = padded.shape[1]
            a, b, c, d, e = (padded[:, i : end - 4 + i : 2] for i in range(5))
            level = (a + e) / 16 + (b + d) / 4 + c * 0.375
        levels.append(level)
    shapes = tuple((v.shape[0], v.shape[1]) for v in levels)
    pixels = torch.cat([v.reshape(-1) for v in levels])
    return _Octaves(pixels, *_places(shapes, pixels.device), noise)


def _noise_level(image: Tensor) -> Tensor:
    bands = plain.bands(image)
    if bands is None:
        return image.new_full((), plain.ROUNDING)
    rough = bands.diff(n=2, dim=1).diff(n=2, dim=2) / 6
    blocks = (rough**2).reshape(len(rough), 8, -1, 8).mean((1, 3)).sqrt().reshape(-1)
    # As np.percentile does, for any number of blocks.
    ordered, at = blocks.sort().values, (len(blocks) - 1) * plain.SMOOTHEST / 100
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(blocks) - 1)]
    found = (low + (high - low) * (at - int(at))) / plain.OF_NOISE
    return found.clamp_min(plain.ROUNDING)


def _sigmas(maps: Tensor) -> Tensor:
    return (maps[:, 0, 0] * maps[:, 1, 1] - maps[:, 0, 1] * maps[:, 1, 0]).abs().sqrt()


def _levels(maps: Tensor, count: int) -> Tensor:
    octave = (_sigmas(maps) * plain.SPACING).clamp_min(1e-9).log2().floor()
    return octave.clamp(0, count - 1).long()


def _patches(image: _Octaves, maps: Tensor, c: _Constants) -> Tensor:
    """Return patches (m, n) around frames (m, 2, 3) float64, bilinear."""
    level = _levels(maps, len(image))
    scaled = maps / (1 << level).double()[:, None, None]
    # From the pixel at the centre, so that float32 is enough.
    centre = scaled[:, :, 2].clamp(-1e7, 1e7).floor()
    xy = scaled[:, :, :2].float() @ c.grid.T + (scaled[:, :, 2] - centre).float()[:, :, None]
    last = torch.stack([image.widths[level], image.heights[level]], 1)[:, :, None]
    corner = centre.long()[:, :, None]
    xy = torch.maximum(torch.minimum(xy, (last - 1 - corner).float()), (-corner).float())
    whole = torch.minimum(xy.floor(), (last - 2 - corner).clamp_min(0 - corner).float())
    u, v = (xy - whole).unbind(1)
    column, row = (whole.long() + corner).unbind(1)
    width = image.widths[level][:, None]
    at = image.starts[level][:, None] + row * width + column
    pixels = image.pixels
    above = torch.lerp(pixels[at], pixels[at + 1], u)
    at += width
    return torch.lerp(above, torch.lerp(pixels[at], pixels[at + 1], u), v)


def _fields(patches: Tensor, by: Tensor, c: _Constants) -> tuple[Tensor, Tensor]:
    """Return √w ∇f over its root mean square (m, 2 n), and the mean square (m,)."""
    values = (patches @ by) * c.root
    power = (values * values).sum(1)
    return values * (power + plain.NOTHING).rsqrt()[:, None], power


def _slopes(template: Tensor, c: _Constants) -> Tensor:
    """Return √w ∂/∂δ of the template's field (m, 6, 2 n): see the plain version."""
    count = len(template)
    gradient = (template / c.root).view(count, 2, SIDE, SIDE)
    across = (gradient @ c.differences.T).view(count, 2, -1)
    down = (c.differences @ gradient).view(count, 2, -1)
    x, y = c.grid.T
    slopes = torch.stack([across * x, across * y, down * x, down * y, across, down], 1)
    gx, gy = gradient.view(count, 2, -1).unbind(1)
    slopes[:, 0, 0] += gx
    slopes[:, 1, 1] += gx
    slopes[:, 2, 0] += gy
    slopes[:, 3, 1] += gy
    slopes = slopes.view(count, 6, -1) * c.root
    along = torch.bmm(slopes, template[:, :, None])
    return slopes - along * template[:, None]


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Return H⁻¹ g (m, 6, k) by Cholesky, written out: a library's batches of 6 x 6 are slower."""
    low: list[list[Tensor]] = []
    for i in range(6):
        row: list[Tensor] = []
        for j in range(i + 1):
            total = matrix[:, i, j]
            for k in range(j):
                total = total - row[k] * (row if i == j else low[j])[k]
            row.append(total.clamp_min(1e-30).sqrt() if i == j else total / low[j][j])
        low.append(row)
    x: list[Tensor] = []
    for i in range(6):
        total = right[:, i]
        for k in range(i):
            total = total - low[i][k][:, None] * x[k]
        x.append(total / low[i][i][:, None])
    for i in range(5, -1, -1):
        for k in range(i + 1, 6):
            x[i] = x[i] - low[k][i][:, None] * x[k]
        x[i] = x[i] / low[i][i][:, None]
    return torch.stack(x, 1)


def _moved(maps: Tensor, step: Tensor) -> Tensor:
    """Return B ∘ δ⁻¹ (m, 2, 3)."""
    s = step.double()
    d = 1 / ((1 + s[:, 0]) * (1 + s[:, 3]) - s[:, 1] * s[:, 2])
    first = torch.stack([(1 + s[:, 3]) * d, -s[:, 1] * d], 1)
    second = torch.stack([-s[:, 2] * d, (1 + s[:, 0]) * d], 1)
    inverse = torch.stack([first, second], 1)
    shift = -(inverse @ s[:, 4:, None])
    linear = maps[:, :, :2]
    return torch.cat([linear @ inverse, linear @ shift + maps[:, :, 2:]], 2)


@dataclass(frozen=True, eq=False)
class _Minimum:
    maps: Tensor
    cost: Tensor
    power: Tensor
    power_a: Tensor
    slopes: Tensor
    hessian: Tensor
    template: Tensor


def _minimised(patches: Tensor, second: _Octaves, b: Tensor, blur: int, c: _Constants) -> _Minimum:
    by = c.filters[blur]
    template, power_a = _fields(patches, by, c)
    slopes = _slopes(template, c)
    hessian = slopes @ slopes.transpose(1, 2)
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    diagonal = diagonal + (plain.RELATIVE * diagonal.sum(1) + plain.LEAST)[:, None]
    damping = torch.full_like(power_a, plain.DAMPING)
    active = torch.ones_like(power_a, dtype=torch.bool)

    def residuals(maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, power = _fields(_patches(second, maps, c), by, c)
        residual = values - template
        return residual, (residual * residual).sum(1), power

    residual, cost, power = residuals(b)
    for _ in range(plain.STEPS[blur]):
        gradient = torch.bmm(slopes, residual[:, :, None])
        damped = hessian + torch.diag_embed(damping[:, None] * diagonal)
        step = _solved(damped, gradient)[:, :, 0].clamp(-plain.LONGEST, plain.LONGEST)
        trial = _moved(b, step)
        new, new_cost, new_power = residuals(trial)
        lower = active & (new_cost < cost)
        b = torch.where(lower[:, None, None], trial, b)
        residual = torch.where(lower[:, None], new, residual)
        cost, power = torch.where(lower, new_cost, cost), torch.where(lower, new_power, power)
        raised = (plain.RISE * damping).clamp_min(plain.RAISED)
        damping = torch.where(lower, damping / plain.FALL, raised)
        active &= ~(lower & (step.abs().amax(1) < plain.SETTLED))
    return _Minimum(b, cost, power, power_a, slopes, hessian, template)


@once
def _noise_of(levels: int, device: Any) -> tuple[Tensor, Tensor]:
    """Return :func:`caloric.matching.refinement.noise_of` of each level, (n,) and (n, 4)."""
    variances, correlations = zip(*(plain.noise_of(i) for i in range(levels)), strict=True)
    both = (np.array(v) for v in (variances, correlations))
    return tuple(torch.tensor(v, device=device) for v in both)


def _covariances(
    end: _Minimum, a: Tensor, images: tuple[_Octaves, _Octaves], c: _Constants
) -> Tensor:
    """Return the covariances (m, 2, 2) of the places, in σ of the second frames."""
    count, device = len(a), a.device
    unit = torch.eye(6, device=device)
    rows = _solved(end.hessian + plain.LEAST * unit, unit[:, 4:].expand(count, 6, 2))
    weights = torch.bmm(rows.transpose(1, 2), end.slopes) * c.root
    shift = (weights @ c.back[-1]).view(count, 2, SIDE, SIDE)
    distance = torch.arange(SIDE, device=device)
    distance = (distance[:, None] - distance).abs()
    total = torch.zeros((count, 2, 2), device=device)
    for maps, power, image in ((a, end.power_a, images[0]), (end.maps, end.power, images[1])):
        octave = _levels(maps, len(image))
        variances, correlations = _noise_of(len(image), device)
        apart = (_sigmas(maps) * plain.SPACING / (1 << octave).double()).clamp_min(plain.FINEST)
        lags = torch.arange(plain.LAGS, device=device) * apart[:, None]
        pixels = correlations[octave]
        seen = pixels[:, :1] * _spline(lags)
        for i in range(1, 4):
            seen = seen + pixels[:, i, None] * (_spline(lags - i) + _spline(lags + i))
        near = distance < plain.LAGS
        matrix = seen.float()[:, distance.clamp_max(plain.LAGS - 1)] * near
        spread = matrix[:, None] @ shift @ matrix[:, None]
        share = variances[octave].float() * image.noise**2
        share = share / (power + plain.NOTHING)
        flat = shift.view(count, 2, -1)
        total += share[:, None, None] * (flat @ spread.reshape(count, 2, -1).transpose(1, 2))
    return total


def _spline(x: Tensor) -> Tensor:
    far = (2 - x.abs()).clamp_min(0) ** 3 / 6
    return far - 4 * (1 - x.abs()).clamp_min(0) ** 3 / 6


def descend(image_a: Any, image_b: Any, a: FloatArray, b: FloatArray, device: Any) -> Outcome:
    """Return what :func:`caloric.matching.refinement.descend` does.

    Images are arrays (h, w) float32.
    """

    def on_device() -> Outcome:
        with torch.no_grad(), cuda_streams.using(device):
            first, second = (torch.as_tensor(v, device=device) for v in (image_a, image_b))
            parts = [
                _refined(first, second, a[i : i + _BATCH], b[i : i + _BATCH])
                for i in range(0, len(a), _BATCH)
            ]
            return Outcome(*(np.concatenate(v) for v in zip(*parts, strict=True)))

    result = devices.fitting(on_device, f"refining {len(a)} matches")
    return (
        plain.descend(np.asarray(image_a), np.asarray(image_b), a, b) if result is None else result
    )


def _refined(first: Tensor, second: Tensor, a: FloatArray, b: FloatArray) -> list[FloatArray]:
    """Return maps, shifts and figures of the matches of a batch."""
    count, device = len(a), first.device
    if count > _RECORDED:
        packed = _packed(first, second, *(torch.tensor(v, device=device) for v in (a, b)))
    else:
        # Graphs are of few sizes: the last match is repeated.
        size = max(256, 1 << (count - 1).bit_length())
        rows = np.minimum(np.arange(size), count - 1)
        frames = (torch.from_numpy(v[rows]).to(device) for v in (a, b))
        packed = graphs.recorded(_packed, ("refinement",), first, second, *frames)
    found = packed[:count].cpu().numpy()
    maps, shifts, figures = np.split(found, (6, 10), 1)
    return [maps.reshape(-1, 2, 3), shifts.reshape(-1, 2, 2), figures]


def _packed(first: Tensor, second: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return maps, shifts and figures of frames (m, 2, 3) in one tensor (m, 13) float64."""
    images = _octaves(first), _octaves(second)
    found = _batch(images, a, b, _constants(first.device))
    return torch.cat([v.double().flatten(1) for v in found], 1)


def _batch(
    images: tuple[_Octaves, _Octaves], a: Tensor, b: Tensor, c: _Constants
) -> tuple[Tensor, Tensor, Tensor]:
    patches = _patches(images[0], a, c)
    moved, hopeful = b, torch.ones(len(b), dtype=torch.bool, device=b.device)
    for blur in range(len(plain.BLURS) - 1):
        end = _minimised(patches, images[1], moved, blur, c)
        moved, hopeful = end.maps, hopeful & (end.cost < plain.HOPELESS)
    last = len(plain.BLURS) - 1
    end = _minimised(patches, images[1], moved, last, c)
    shifts = _covariances(end, a, images, c)
    start, _ = _fields(_patches(images[1], b, c), c.filters[last], c)
    before = ((start - end.template) ** 2).sum(1)
    figures = torch.stack([before, end.cost, end.power_a], 1) * hopeful[:, None]
    return end.maps, shifts, figures
