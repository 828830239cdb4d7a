"""Orientations and affine shapes of the frames of a batch."""

import torch
from torch import Tensor

from caloric.detector import affine_shape, orientation
from caloric.gpu import extrema, pooling
from caloric.gpu.reader import Reader

_MAX_PEAKS = orientation.ORDER  # of a harmonic series of this order


def peaks(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the angles (n, 12) of the peaks of each row, strongest first, and which are valid.

    Valid peaks reach 0.8 of the highest, as in :func:`caloric.detector.orientation.dominant`. A row
    without a peak has the angle 0.
    """
    h = histogram
    before, after = h.roll(1, 1), h.roll(-1, 1)
    highest = h.amax(1, keepdim=True)
    peak = (h > before) & (h >= after) & (h >= orientation.SECOND * highest)
    value, at = torch.where(peak, h, -torch.inf).topk(_MAX_PEAKS, 1)
    left, middle, right = (v.gather(1, at).double() for v in (before, h, after))
    offset = orientation.peak_offset(left, middle, right)
    valid = value > -torch.inf
    angles = torch.where(valid, (at + offset) * (2 * torch.pi / h.shape[1]), 0.0)
    valid[:, 0] = True
    return angles, valid


def oriented(
    reader: Reader, maps: Tensor, strengths: Tensor, slots: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return frames (b, k, 2, 3) with strengths (b, k) in their dominant and further orientations.

    The results are frames (b, slots, 2, 3), strengths (b, slots) and the number of orientations
    (b,), which may exceed ``slots``. If ``slots`` is None it is set to the largest number, which
    synchronizes with the device. The order is that of :func:`caloric.detector.detection.frames`.
    """
    b, k = strengths.shape
    table = pooling.table(
        orientation.KERNEL, orientation.LAYOUT, orientation.SAMPLING, orientation.ORDER,
        maps.device, torch.float32,
    )  # fmt: skip
    histogram = reader.pooled(
        maps.view(-1, 2, 3), orientation.SAMPLING, orientation.KERNEL, 1.0, table
    )
    angles, is_peak = peaks(histogram)
    is_peak &= strengths.view(-1, 1) > 0
    is_peak = _dominant_first(is_peak.view(b, k, _MAX_PEAKS))
    origin = torch.arange(k * _MAX_PEAKS, device=maps.device).view(1, k, _MAX_PEAKS)
    counts = is_peak.sum(1)
    if slots is None:
        slots = int(counts.max())
    # The surplus goes to an extra slot, which is dropped.
    slot = torch.where(is_peak, extrema.ranks(is_peak), slots).clamp_max(slots)
    source = torch.zeros((b, slots + 1), dtype=torch.int64, device=maps.device)
    source.scatter_(1, slot, _dominant_first(origin).expand(b, -1))
    source = source[:, :slots]
    valid = torch.arange(slots, device=maps.device) < counts[:, None]
    angle, frame_index = angles.view(b, -1).gather(1, source), source // _MAX_PEAKS
    c, s = angle.cos(), angle.sin()
    rotation = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    chosen = (
        maps.view(b, k, 6)
        .gather(1, frame_index.unsqueeze(2).expand(-1, -1, 6))
        .view(b, slots, 2, 3)
    )
    frames = torch.cat([chosen[..., :2] @ rotation, chosen[..., 2:]], -1)
    return (
        torch.where(valid[..., None, None], frames, 0.0),
        torch.where(valid, strengths.gather(1, frame_index), 0.0),
        counts,
    )


def _dominant_first(peaks: Tensor) -> Tensor:
    """Return (b, k · p) from (b, k, p): the first of each row, then the rest."""
    return torch.cat([peaks[:, :, 0], peaks[:, :, 1:].flatten(1)], 1)


def adapted(reader: Reader, maps: Tensor) -> Tensor:
    """Return frames (n, 2, 3) with adapted shapes: see :func:`affine_shape.adapt`."""
    sigma, centers = maps[:, 0, 0].view(-1, 1, 1), maps[..., 2:]
    ones = torch.ones(len(maps), dtype=torch.float64, device=maps.device)
    round_ = (ones, torch.zeros_like(ones), ones)
    shape = round_
    active = ones > 0
    converged = ~active
    for _ in range(affine_shape.STEPS):
        moment = reader.second_moments(_with_shape(sigma, shape, centers))
        done = active & (affine_shape.anisotropy(*moment) < affine_shape.ROUND)
        converged |= done
        active = active & ~done & ~affine_shape.singular(*moment)
        updated = affine_shape.adapted_shape(shape, moment)
        shape = _where(active, updated, shape)
        active &= ~affine_shape.too_long(*updated)
    good = converged & ~affine_shape.too_long(*shape)
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
