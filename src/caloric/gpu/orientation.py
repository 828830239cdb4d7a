"""Directions and shapes of the frames of a batch, in as many slots as there were."""

import torch
from torch import Tensor

from caloric.detector import affine_shape, orientation
from caloric.gpu import pooling
from caloric.gpu.reader import Reader

_MOST = orientation.ORDER  # a series of that order has no more peaks


def peaks(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """The angles (n, 12) of each row's peaks, the strongest first, and which of them count.

    As :func:`caloric.detector.orientation.dominant`: those of at least 0.8 of the highest, angle 0
    where there is none.
    """
    h = histogram
    before, after = h.roll(1, 1), h.roll(-1, 1)
    highest = h.amax(1, keepdim=True)
    peak = (h > before) & (h >= after) & (h >= orientation.SECOND * highest)
    value, at = torch.where(peak, h, -torch.inf).topk(_MOST, 1)
    left, middle, right = (v.gather(1, at).double() for v in (before, h, after))
    bend = left - 2 * middle + right
    offset = 0.5 * (left - right) / torch.where(bend == 0, 1.0, bend)
    counts = value > -torch.inf
    angles = torch.where(counts, (at + offset) * (2 * torch.pi / h.shape[1]), 0.0)
    counts[:, 0] = True
    return angles, counts


def turned(
    reader: Reader, maps: Tensor, strengths: Tensor, room: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One frame for each direction of frames (b, k, 2, 3) with strengths (b, k): frames
    (b, room, 2, 3) and strengths (b, room), and how many there would be (b,).

    ``room`` None: as many as there are, for which the device is waited for.
    """
    b, k = strengths.shape
    table = pooling.table(
        orientation.KERNEL, orientation.LAYOUT, orientation.SAMPLING, orientation.ORDER,
        maps.device, torch.float32,
    )  # fmt: skip
    histogram = reader.pooled(
        maps.view(-1, 2, 3), orientation.SAMPLING, orientation.KERNEL, 1.0, table
    )
    angles, counts = peaks(histogram)
    counts &= strengths.view(-1, 1) > 0
    counts = counts.view(b, -1)
    wanted = counts.sum(1)
    if room is None:
        room = int(wanted.max())
    # One more slot than is kept takes all that there is no room for.
    slot = torch.where(counts, counts.cumsum(1) - 1, room).clamp_max(room)
    source = torch.zeros((b, room + 1), dtype=torch.int64, device=maps.device)
    source.scatter_(1, slot, torch.arange(k * _MOST, device=maps.device).expand(b, -1))
    source = source[:, :room]
    there = torch.arange(room, device=maps.device) < wanted[:, None]
    angle, of = angles.view(b, -1).gather(1, source), source // _MOST
    c, s = angle.cos(), angle.sin()
    rotation = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    own = maps.view(b, k, 6).gather(1, of.unsqueeze(2).expand(-1, -1, 6)).view(b, room, 2, 3)
    frames = torch.cat([own[..., :2] @ rotation, own[..., 2:]], -1)
    return (
        torch.where(there[..., None, None], frames, 0.0),
        torch.where(there, strengths.gather(1, of), 0.0),
        wanted,
    )


def _anisotropy(m: Tensor) -> Tensor:
    trace = m[:, 0, 0] + m[:, 1, 1]
    spread = torch.hypot(m[:, 0, 0] - m[:, 1, 1], 2 * m[:, 0, 1])
    return torch.where(trace > 0, spread / torch.where(trace > 0, trace, 1.0), 0.0)


def _power(m: Tensor, exponent: float) -> Tensor:
    """A power of symmetric matrices (n, 2, 2), of determinant 1, by their axes."""
    a, b, c = m[:, 0, 0], m[:, 0, 1], m[:, 1, 1]
    mean, half = (a + c) / 2, (a - c) / 2
    radius = torch.hypot(half, b)
    unit = torch.where(radius > 0, radius, 1.0)
    large, small = mean + radius, (mean - radius).clamp_min(1e-30)
    by = (large / small) ** (exponent / 2)  # of the long axis; its inverse of the short one
    mid, swing = (by + 1 / by) / 2, (by - 1 / by) / 2
    cos, sin = half / unit * swing, b / unit * swing
    rows = [torch.stack([mid + cos, sin], -1), torch.stack([sin, mid - cos], -1)]
    return torch.stack(rows, -2)


def adapted(reader: Reader, maps: Tensor) -> Tensor:
    """Frames (n, 2, 3) with their shapes adapted: :func:`caloric.affine_shape.adapt`."""
    sigma = maps[:, 0, 0].view(-1, 1, 1)
    eye = torch.eye(2, device=maps.device, dtype=torch.float64)
    shapes = eye.repeat(len(maps), 1, 1)
    active = torch.ones(len(maps), dtype=torch.bool, device=maps.device)
    settled = torch.zeros_like(active)
    for _ in range(affine_shape.STEPS):
        current = torch.cat([sigma * shapes, maps[..., 2:]], -1)
        m = reader.second_moments(current).double()
        done = active & (_anisotropy(m) < affine_shape.ROUND)
        settled |= done
        active = active & ~done
        a, b, c = m[:, 0, 0], m[:, 0, 1], m[:, 1, 1]
        determinant, trace = a * c - b * b, a + c
        active &= determinant > 1e-12 * trace * trace
        product = shapes @ _power(m, -0.5)
        # Made symmetric again, so that it stays upright: (P P^T)^(1/2).
        upright = _power(product @ product.transpose(1, 2), 0.5)
        shapes = torch.where(active[:, None, None], upright, shapes)
        a, b, c = upright[:, 0, 0], upright[:, 0, 1], upright[:, 1, 1]
        radius = torch.hypot((a - c) / 2, b)
        mean = (a + c) / 2
        active &= mean + radius < affine_shape.LONGEST * (mean - radius)
    a, b, c = shapes[:, 0, 0], shapes[:, 0, 1], shapes[:, 1, 1]
    radius, mean = torch.hypot((a - c) / 2, b), (a + c) / 2
    good = settled & (mean + radius < affine_shape.LONGEST * (mean - radius))
    shapes = torch.where(good[:, None, None], shapes, eye)
    return torch.cat([sigma * shapes, maps[..., 2:]], -1)
