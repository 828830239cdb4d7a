"""Features on their way from a device: one row of bytes per image, copied in one piece."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu.images import RANGES
from caloric.gpu.pipeline import Batch
from caloric.plan import Plan

_HEADER = 8  # float32: number of features, whether the capacity was too small, ranges
_RANGES = slice(2, 2 + RANGES)
_ALIGNED = 16  # bytes


@dataclass(frozen=True, eq=False)
class Packed:
    """``rows`` (b, bytes) of up to ``slots`` features with descriptors of ``dimension``."""

    rows: Tensor
    slots: int
    dimension: int
    type: str

    @property
    def cuts(self) -> tuple[int, int, int, int]:
        """Where in a row the frames, strengths and descriptors begin, and where they end."""
        frames = 4 * _HEADER
        strengths = frames + 48 * self.slots
        values = strengths + 4 * self.slots
        return frames, strengths, values, values + self.slots * self.dimension * self.size

    @property
    def size(self) -> int:
        """Bytes of an entry of a descriptor."""
        return np.dtype(self.type).itemsize


def pack(batch: Batch, ranges: Tensor) -> Packed:
    """Return the features of a batch and the ranges (b, 5) of its images as rows of bytes."""
    (b, k), d = batch.strengths.shape, batch.descriptors.shape[2]
    kind = "uint8" if batch.descriptors.dtype == torch.uint8 else "float32"
    rows = torch.zeros((b, 0), dtype=torch.uint8, device=batch.maps.device)
    frames, strengths, values, end = Packed(rows, k, d, kind).cuts
    rows = rows.new_zeros((b, end + -end % _ALIGNED))
    header = rows[:, :frames].view(torch.float32)
    header[:, 0] = (batch.strengths > 0).sum(1)
    header[:, 1], header[:, _RANGES] = batch.crowded, ranges
    if k:
        rows[:, frames:strengths].view(torch.float64).copy_(batch.maps.flatten(1))
        rows[:, strengths:values].view(torch.float32).copy_(batch.strengths)
        rows[:, values:end].view(batch.descriptors.dtype).copy_(batch.descriptors.flatten(1))
    return Packed(rows, k, d, kind)


@dataclass(frozen=True, eq=False)
class Header:
    """What the device says about an image: its features, and whether they may be used.

    ``crowded``: the capacity was too small; ``ranges``: see :func:`caloric.gpu.images.ranges`.
    """

    count: int
    crowded: bool
    ranges: NDArray[np.float32]

    @classmethod
    def of(cls, row: NDArray[np.uint8]) -> "Header":
        """Return the header of a row."""
        numbers = row[: 4 * _HEADER].view(np.float32)
        return cls(int(numbers[0]), bool(numbers[1]), numbers[_RANGES])


def headers(packed: Packed) -> Tensor:
    """Return the beginning of each row (b, bytes), which :meth:`Header.of` reads."""
    return packed.rows[:, : 4 * _HEADER].contiguous()


def features(
    row: NDArray[np.uint8], packed: Packed, count: int, plan: Plan, size: tuple[int, int]
) -> Features:
    """Return the ``count`` features of an image (h, w) from its row on the host."""
    frames, strengths, values, end = packed.cuts
    maps = row[frames:strengths].view(np.float64).reshape(-1, 2, 3)
    scores = row[strengths:values].view(np.float32)
    entries = row[values:end].view(packed.type).reshape(-1, packed.dimension)
    kept = Frames(maps[:count], scores[:count])
    return plan.features(kept, entries[:count].astype(plan.output), size)


@dataclass(frozen=True, eq=False)
class DeviceFeatures:
    """:class:`caloric.Features` whose arrays are tensors on a device.

    ``maps`` (n, 2, 3) float64, ``scores`` (n,) float32 and ``descriptors`` (n, d).
    """

    maps: Tensor
    scores: Tensor
    descriptors: Tensor
    about: Features

    def __len__(self) -> int:
        """Return the number of features."""
        return len(self.maps)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        return f"DeviceFeatures({len(self)} of {self.about.descriptor!r}, {self.maps.device})"

    def to_host(self) -> Features:
        """Return the same features as NumPy arrays."""
        frames = Frames(self.maps.cpu().numpy(), self.scores.cpu().numpy())
        values = self.descriptors.cpu().numpy().astype(self.about.descriptors.dtype, copy=False)
        return replace(self.about, frames=frames, descriptors=values)


def on_device(
    row: Tensor, packed: Packed, count: int, plan: Plan, size: tuple[int, int]
) -> DeviceFeatures:
    """Return the ``count`` features of an image (h, w) from its row on the device."""
    frames, strengths, values, end = packed.cuts
    kind: Any = torch.uint8 if packed.type == "uint8" else torch.float32
    return DeviceFeatures(
        row[frames:strengths].view(torch.float64).view(-1, 2, 3)[:count].clone(),
        row[strengths:values].view(torch.float32)[:count].clone(),
        row[values:end].view(kind).view(-1, packed.dimension)[:count].clone(),
        plan.empty(size),
    )


def sent(features: Features, device: Any) -> DeviceFeatures:
    """Return features of the host on a device."""
    parts = (features.frames.maps, features.scores, features.descriptors)
    maps, scores, values = (torch.tensor(part).to(device) for part in parts)
    return DeviceFeatures(maps, scores, values, features[:0])
