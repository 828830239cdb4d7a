"""Download: the features of a batch are packed into one block of bytes and copied at once."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import cuda_streams
from caloric.gpu.pipeline import Batch
from caloric.gpu.upload import RANGES, SHARED, TYPES
from caloric.runtime import threads

_HEADER = 8  # float32 per image: number of features, whether the buffer overflowed, ranges
_FRAME = 6  # float64 per frame
_ON_HOST = {on_device: np.dtype(name) for name, on_device in TYPES.items()}


@dataclass(frozen=True, eq=False)
class Parts:
    """The features of b images, up to k each: tensors on the device or arrays on the host.

    Shapes: ``headers`` (b, 8), ``maps`` (b, k, 2, 3), ``scores`` (b, k) and ``values`` (b, k, d).
    """

    headers: Any
    maps: Any
    scores: Any
    values: Any

    def image(self, index: int, count: int) -> tuple[Any, Any, Any]:
        """Return frames, scores and descriptors of the first ``count`` features of an image.

        On the device these are copies, because the next batch reuses the memory.
        """
        parts = (part[index, :count] for part in (self.maps, self.scores, self.values))
        maps, scores, values = (p.clone() if isinstance(p, Tensor) else p for p in parts)
        return maps, scores, values

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of features of each image, on the host."""
        return np.asarray(self.headers[:, 0].astype(np.int64))

    @property
    def overflowed(self) -> bool:
        """Whether the candidate buffer was too small for an image."""
        return bool(self.headers[:, 1].any())

    @property
    def ranges(self) -> NDArray[np.float32]:
        """The result (b, 5) of :func:`caloric.gpu.upload.ranges`, on the host."""
        return np.asarray(self.headers[:, 2 : 2 + RANGES])


@dataclass(frozen=True, eq=False)
class Packed:
    """The packed features of a batch: ``slots`` features for each of ``images`` images."""

    bytes: Tensor
    images: int
    slots: int
    dimension: int
    type: Any

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The number of bytes of headers, frames, scores and descriptors."""
        features = self.images * self.slots
        entries = features * self.dimension * self.type.itemsize
        return 4 * _HEADER * self.images, 8 * _FRAME * features, 4 * features, entries

    def parts(self, data: Any) -> Parts:
        """Return views of the packed bytes, given as a tensor or as an array on the host."""
        on_host, ends = isinstance(data, np.ndarray), [0, *accumulate(self.sizes)]
        b, k = self.images, self.slots
        kinds = (torch.float32, torch.float64, torch.float32, self.type)
        shapes = ((b, _HEADER), (b, k, 2, 3), (b, k), (b, k, self.dimension))
        return Parts(*(
            data[start:end].view(_ON_HOST[kind] if on_host else kind).reshape(shape)
            for start, end, kind, shape in zip(ends, ends[1:], kinds, shapes, strict=False)
        ))  # fmt: skip

    @property
    def layout(self) -> "Packed":
        """The same without the bytes, so that their memory can be used again."""
        return replace(self, bytes=self.bytes.new_empty(0))

    def headers(self) -> Tensor:
        """Return the bytes of the headers."""
        return self.bytes[: self.sizes[0]]


def pack(batch: Batch, ranges: Tensor) -> Packed:
    """Return the features of a batch and the ranges (b, 5) of its images as bytes."""
    (b, k), d, kind = batch.strengths.shape, batch.descriptors.shape[2], batch.descriptors.dtype
    empty = torch.zeros(0, dtype=torch.uint8, device=ranges.device)
    packed = Packed(empty, b, k, d, kind)
    packed = replace(packed, bytes=empty.new_zeros(sum(packed.sizes)))
    parts = packed.parts(packed.bytes)
    parts.headers[:, 0] = (batch.strengths > 0).sum(1)
    parts.headers[:, 1], parts.headers[:, 2 : 2 + RANGES] = batch.overflowed, ranges
    parts.maps.copy_(batch.maps)
    parts.scores.copy_(batch.strengths)
    parts.values.copy_(batch.descriptors)
    return packed


_GROUP = 8  # images whose descriptors share an array, for which NumPy uses huge pages


def descriptors(parts: Parts, kind: str) -> list[NDArray[np.generic]]:
    """Return copies (k, d) of the descriptors of each image.

    Page faults dominate the time of a copy to new memory. A few images share an array, which is
    then large enough for huge pages.
    """
    values = parts.values
    copies: list[NDArray[np.generic]] = []
    for start in range(0, len(values), _GROUP):
        copies += list(np.empty(values[start : start + _GROUP].shape, kind))

    def copy(i: int) -> None:
        np.copyto(copies[i], values[i], casting="unsafe")

    if values.nbytes < SHARED:
        for i in range(len(copies)):
            copy(i)
    else:
        threads.each(copy, range(len(copies)))
    return copies


def frames(maps: NDArray[np.float64], scores: NDArray[np.float32]) -> Frames:
    """Return frames with copies of the given arrays, which share the memory of a batch."""
    return Frames.unchecked(maps.copy(), scores.copy())


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

    @cached_property
    def frames(self) -> Frames:
        """The frames on the host, copied only once."""
        return Frames.unchecked(*_downloaded(self.maps, self.scores))

    def to_host(self) -> Features:
        """Return the same features as NumPy arrays; every call returns the same object."""
        return self._on_host

    @cached_property
    def _on_host(self) -> Features:
        (values,) = _downloaded(self.descriptors)
        values = values.astype(self.about.descriptors.dtype, copy=False)
        return replace(self.about, frames=self.frames, descriptors=values)


def _downloaded(*tensors: Tensor) -> list[NDArray[Any]]:
    """Return copies of tensors as arrays, outside of pinned memory, which is scarce."""
    pending = [cuda_streams.download(values, is_constant=True) for values in tensors]
    return [np.array(download.wait().numpy()) for download in pending]


def to_device(features: Features, device: Any) -> DeviceFeatures:
    """Return a copy of features on a device."""
    parts = (features.frames.maps, features.scores, features.descriptors)
    maps, scores, values = (torch.tensor(part).to(device) for part in parts)
    return DeviceFeatures(maps, scores, values, features[:0])
