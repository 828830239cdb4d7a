"""Orientations and affine shapes of the frames of a batch."""

import torch
from torch import Tensor

from caloric.detector import affine_shape, orientation
from caloric.gpu import pooling
from caloric.gpu.reader import Reader

_MOST = orientation.ORDER  # a harmonic series of this order has no more peaks


def peaks(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the angles (n, 12) of the peaks of each row, strongest first, and which are valid.

    Peaks of at least 0.8 of the highest are valid, as in
    :func:`caloric.detector.orientation.dominant`; a row without a peak has the angle 0.
    """
    h = histogram
    before, after = h.roll(1, 1), h.roll(-1, 1)
    highest = h.amax(1, keepdim=True)
    peak = (h > before) & (h >= after) & (h >= orientation.SECOND * highest)
    value, at = torch.where(peak, h, -torch.inf).topk(_MOST, 1)
    left, middle, right = (v.gather(1, at).double() for v in (before, h, after))
    offset = orientation.peak_offset(left, middle, right)
    counts = value > -torch.inf
    angles = torch.where(counts, (at + offset) * (2 * torch.pi / h.shape[1]), 0.0)
    counts[:, 0] = True
    return angles, counts


def turned(
    reader: Reader, maps: Tensor, strengths: Tensor, room: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return one frame per dominant orientation of frames (b, k, 2, 3) with strengths (b, k).

    The results are frames (b, room, 2, 3), strengths (b, room) and the number of orientations (b,),
    which may be larger than ``room``. If ``room`` is None it is set to the largest number, which
    synchronizes with the device.
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
    # The surplus goes to one more slot, which is dropped.
    slot = torch.where(counts, counts.cumsum(1) - 1, room).clamp_max(room)
    source = torch.zeros((b, room + 1), dtype=torch.int64, device=maps.device)
    source.scatter_(1, slot, torch.arange(k * _MOST, device=maps.device).expand(b, -1))
    source = source[:, :room]
    valid = torch.arange(room, device=maps.device) < wanted[:, None]
    angle, frame_index = angles.view(b, -1).gather(1, source), source // _MOST
    c, s = angle.cos(), angle.sin()
    rotation = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    chosen = (
        maps.view(b, k, 6).gather(1, frame_index.unsqueeze(2).expand(-1, -1, 6)).view(b, room, 2, 3)
    )
    frames = torch.cat([chosen[..., :2] @ rotation, chosen[..., 2:]], -1)
    return (
        torch.where(valid[..., None, None], frames, 0.0),
        torch.where(valid, strengths.gather(1, frame_index), 0.0),
        wanted,
    )


def adapted(reader: Reader, maps: Tensor) -> Tensor:
    """Return frames (n, 2, 3) with their shapes adapted: :func:`affine_shape.adapt`."""
    sigma, centers = maps[:, 0, 0].view(-1, 1, 1), maps[..., 2:]
    ones = torch.ones(len(maps), dtype=torch.float64, device=maps.device)
    round_ = (ones, torch.zeros_like(ones), ones)
    shape = round_
    active = ones > 0
    settled = ~active
    for _ in range(affine_shape.STEPS):
        moment = reader.second_moments(_with_shape(sigma, shape, centers))
        done = active & (affine_shape.anisotropy(*moment) < affine_shape.ROUND)
        settled |= done
        active = active & ~done & ~affine_shape.singular(*moment)
        moved = affine_shape.adapted_shape(shape, moment)
        shape = _where(active, moved, shape)
        active &= ~affine_shape.too_long(*moved)
    good = settled & ~affine_shape.too_long(*shape)
    shape = affine_shape.unit_power(*_where(good, shape, round_), affine_shape.STRENGTH)
    return _with_shape(sigma, shape, centers)


def _where(
    condition: Tensor, yes: tuple[Tensor, Tensor, Tensor], no: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    a, b, c = (torch.where(condition, y, n) for y, n in zip(yes, no, strict=True))
    return a, b, c


def _with_shape(sigma: Tensor, shape: tuple[Tensor, Tensor, Tensor], centers: Tensor) -> Tensor:
    a, b, c = shape
    rows = [torch.stack([a, b], -1), torch.stack([b, c], -1)]
    return torch.cat([sigma * torch.stack(rows, -2), centers], -1)
