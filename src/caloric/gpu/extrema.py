"""Extrema of a batch: candidates, their sub-pixel refinement, and the strongest of each image.

Each extremum has a key: the bits of its strength followed by those of its pixel index. Sorting the
keys orders extrema by strength, then by pixel, and makes duplicates adjacent.
"""

import torch
from torch import Tensor

from caloric.detector import extrema
from caloric.gpu.pyramid import LAYERS, Octave, Peaks, Pyramid
from caloric.image.scalespace import FIRST, SCALES


def candidates(octave: Octave, layers: Tensor, limit: float) -> Tensor:
    """Return image, layer, row, column (n, 4) of 3 x 3 x 3 maxima of |D| in layers (b, 6, h, w)."""
    d = (layers[:, 1:] - layers[:, :-1]).abs()
    if min(octave.height, octave.width) < 3:
        return torch.zeros((0, 4), dtype=torch.int64, device=layers.device)
    around = torch.nn.functional.max_pool3d(d.unsqueeze(1), 3, stride=1).squeeze(1)
    inner = d[:, 1:-1, 1:-1, 1:-1]
    lowest = torch.nextafter(torch.tensor(limit, dtype=d.dtype), torch.tensor(1.0, dtype=d.dtype))
    at = torch.nonzero((inner == around) & (inner >= lowest.to(d.device)))
    return at + torch.tensor([0, 1, 1, 1], device=at.device)


def _fit(layers: Tensor, at: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return D at candidates (n, 4), its gradient (3) and Hessian (6), each (n,) in float64."""
    image, layer, row, column = at.T

    def d(s: int, y: int, x: int) -> Tensor:
        r, c = row + y, column + x
        return (layers[image, layer + s + 1, r, c] - layers[image, layer + s, r, c]).double()

    return extrema.differences(d)


def refine(
    pyramid: Pyramid, octave: Octave, layers: Tensor, at: Tensor, contrast: float, edge: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return image (n,), key (n,) and position (n, 3) of candidates that converge and pass."""
    h, w = octave.height, octave.width
    images, keys, positions = [], [], []
    for fit in range(extrema.FITS):
        value, gradient, hessian = _fit(layers, at)
        regular, offsets = extrema.solved(gradient, hessian)
        offset = torch.stack(offsets)
        right = extrema.step(offset[0], at[:, 3], w)
        down = extrema.step(offset[1], at[:, 2], h)
        moving = regular & ((right != 0) | (down != 0)) & (fit + 1 < extrema.FITS)
        still = regular & ~moving & (offset.abs() < extrema.ACCEPTED).all(0)
        peak = (value + 0.5 * (torch.stack(gradient) * offset).sum(0)).abs()
        good = still & extrema.passing(peak, hessian, contrast, edge)
        x = (at[:, 3] + offset[0]) * octave.step + octave.origin
        y = (at[:, 2] + offset[1]) * octave.step + octave.origin
        sigma = FIRST * octave.step * 2.0 ** ((at[:, 1] + offset[2]) / SCALES)
        good &= (
            (x >= -0.5) & (x <= pyramid.size[1] - 0.5) & (y >= -0.5) & (y <= pyramid.size[0] - 0.5)
        )
        pixel = octave.offset + (at[:, 1] * h + at[:, 2]) * w + at[:, 3]
        strength = peak.float().view(torch.int32).long()
        images.append(at[good, 0])
        keys.append(((strength << 32) | (0xFFFFFFFF - pixel))[good])
        positions.append(torch.stack([x, y, sigma], 1)[good])
        at = (at + torch.stack([0 * right, 0 * right, down, right], 1))[moving]
        if len(at) == 0:
            break
    return torch.cat(images), torch.cat(keys), torch.cat(positions)


def find(
    rows: Tensor,
    pyramid: Pyramid,
    contrast: float,
    edge: float,
    capacity: int = 0,
    sizes: Tensor | None = None,
) -> Peaks:
    """Return the extrema of pyramids ``rows`` (b, total) of images as large as their layout.

    ``capacity`` and ``sizes`` are for the Triton kernels.
    """
    b = len(rows)
    parts = []
    for octave in pyramid.octaves:
        layers = rows[:, octave.offset : octave.offset + octave.count]
        layers = layers.view(b, LAYERS, octave.height, octave.width)
        at = candidates(octave, layers, 0.5 * contrast / SCALES)
        if len(at):
            parts.append(refine(pyramid, octave, layers, at, contrast, edge))
    if not parts:
        empty = torch.zeros((b, 0, 3), dtype=torch.float64, device=rows.device)
        return Peaks(empty[..., 0].long(), empty, torch.zeros(b, device=rows.device).long())
    image, key, position = (torch.cat(column) for column in zip(*parts, strict=True))
    counts = torch.bincount(image, minlength=b)
    max_count = int(counts.max())
    slot = torch.arange(len(image), device=rows.device)
    order = torch.argsort(image, stable=True)
    slot = slot - (counts.cumsum(0) - counts)[image[order]]
    keys = torch.zeros((b, max_count), dtype=torch.int64, device=rows.device)
    positions = torch.zeros((b, max_count, 3), dtype=torch.float64, device=rows.device)
    keys[image[order], slot] = key[order]
    positions[image[order], slot] = position[order]
    return Peaks(keys, positions, counts)


def ranks(mask: Tensor) -> Tensor:
    """Return the number (b, n) of true entries before each true entry (b, n), in its row.

    PyTorch counts the entries of one long row much faster than those of several.
    """
    total = mask.reshape(-1).cumsum(0).view(mask.shape)
    return total - total[:, :1] + mask[:, :1].long() - 1


def strongest(peaks: Peaks, count: int) -> tuple[Tensor, Tensor]:
    """Return positions (b, count, 3), strengths (b, count) of the strongest extrema of each image.

    The strength of an empty slot is 0.
    """
    keys, index = peaks.keys.sort(1, descending=True)
    new = keys > 0
    new[:, 1:] &= keys[:, 1:] != keys[:, :-1]
    # Duplicates and the surplus go to an extra slot, which is dropped.
    slot = torch.where(new, ranks(new), count).clamp_max(count)
    shape = (len(keys), count + 1)
    positions = peaks.positions.new_zeros((*shape, 3))
    strengths = torch.zeros(shape, device=keys.device)
    chosen = peaks.positions.gather(1, index.unsqueeze(2).expand(-1, -1, 3))
    positions.scatter_(1, slot.unsqueeze(2).expand(-1, -1, 3), chosen)
    strengths.scatter_(1, slot, (keys >> 32).to(torch.int32).view(torch.float32))
    return positions[:, :count].contiguous(), strengths[:, :count].contiguous()
