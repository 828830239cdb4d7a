"""Extraction in batches, halved until they fit into device memory.

Images of a batch have the same size, or similar sizes that share a layout: see
:mod:`caloric.gpu.pyramid`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.errors import Failure, InputError
from caloric.features import Features
from caloric.gpu import backend, cuda_streams, devices, download, graphs, pipeline, upload
from caloric.gpu.cuda_streams import Download
from caloric.gpu.download import DeviceFeatures, Packed, Parts
from caloric.gpu.pyramid import pyramid
from caloric.gpu.upload import Image, Kind
from caloric.options import ExtractOptions
from caloric.types import Mask

log = logging.getLogger("caloric")

BATCH = 32  # images per batch, at most
_PIXELS = 1 << 26  # per batch, at most
_WAITING = 1 << 28  # pixels of incomplete batches, at most
_ADDRESSABLE = 1 << 32  # elements of a pyramid: the keys of extrema hold 32-bit indices
_IN_FLIGHT = 2  # batches queued on the device while the results of another are unpacked

Item = tuple[Image, Mask | None]  # an image and its mask (h, w)
Result = Features | DeviceFeatures | Failure | None
_Indexed = tuple[int, Item]


@dataclass(frozen=True, eq=False)
class PendingBatch:
    """A batch of images in flight on a device; ``size`` is that of their layout.

    ``copy`` downloads all bytes, or only the headers if the features stay on the device as
    ``resident``. ``packed`` has the layout of these bytes, and ``capacity`` is the size of the
    candidate buffer.
    """

    packed: Packed
    copy: Download
    resident: Tensor | None
    options: ExtractOptions
    size: tuple[int, int]
    capacity: int
    image_sizes: tuple[tuple[int, int], ...]

    def parts(self) -> Parts | None:
        """Return the features of all images on the host; None if the candidate buffer overflowed.

        A retry uses a larger buffer. If the features stay on the device, only the headers are
        returned.
        """
        packed = self.packed if self.resident is None else replace(self.packed, slots=0)
        parts = packed.parts(self.copy.wait().numpy())
        if parts.overflowed:
            graphs.enlarge(self.size, self.options, self.capacity)
            return None
        return parts

    def results(self) -> list[Result] | None:
        """Return the features or a Failure for each image; None if the buffer overflowed.

        Features that should stay on the device are None if they do not fit.
        """
        parts = self.parts()
        if parts is None:
            return None
        counts, ranges, options = parts.counts.tolist(), parts.ranges, self.options
        resident = None if self.resident is None else self.packed.parts(self.resident)
        values = () if resident is not None else download.descriptors(parts, options.output)
        is_full = False  # after a failed attempt, no further one is made

        def result(i: int) -> Result:
            nonlocal is_full
            try:
                upload.check(ranges[i], options.recipe.kernel)
            except InputError as error:
                return Failure(str(error))
            size = self.image_sizes[i]
            if resident is not None:
                copy = partial(resident.image, i, counts[i])
                part = None if is_full else devices.unless_out_of_memory(copy, described(*size))
                is_full = part is None
                return None if part is None else DeviceFeatures(*part, options.empty(size))
            maps, scores, _ = parts.image(i, counts[i])
            return options.features(download.frames(maps, scores), values[i][: counts[i]], size)

        return [result(i) for i in range(len(self.image_sizes))]


def begin(
    batch: list[Item], options: ExtractOptions, device: Any, keep_on_device: bool
) -> PendingBatch:
    """Upload images that share a layout, and queue their extraction on the device."""
    images = [image for image, _ in batch]
    kind, image_sizes = Kind.of(images[0]), tuple(Kind.of(image).size for image in images)
    group, octaves = _Group.of(batch[0], options, device), None
    # Few different numbers of images, so that recorded graphs are used again: each holds the memory
    # of its batch. An image without pixels takes hardly any time.
    count = min(1 << (len(images) - 1).bit_length(), _limit(group.kind))
    if group.is_shared and (len(set(image_sizes)) > 1 or count > len(images)):
        kind, octaves = group.kind, group.octaves
    layout, size = kind.layout, kind.size
    capacity = graphs.capacity(size, options)

    def work(pixels: Tensor, masks: Tensor | None, sizes: Tensor | None) -> Packed:
        gray = upload.to_gray(pixels, layout)
        ranges = upload.ranges(pixels, gray, layout, options.recipe.kernel)
        features = pipeline.extract(gray, options, masks, capacity, sizes, octaves)
        return download.pack(features, ranges)

    with torch.no_grad(), cuda_streams.using(device):
        sizes = None
        if octaves is None:
            pixels = upload.upload(images, device)
        else:
            pixels = upload.upload_padded(images, kind, count, device)
            padded = (*image_sizes, *[(0, 0)] * (count - len(images)))
            sizes = upload.as_tensor(np.array(padded, np.int32), device)
        masks = None
        if any(mask is not None for _, mask in batch):
            filled = [np.ones(size, bool) if mask is None else mask for _, mask in batch]
            masks = upload.upload(filled, device)
        key = None if options.max_features is None else (options, layout, capacity, octaves)
        packed: Packed = graphs.recorded(work, key, pixels, masks, sizes)
        copy = cuda_streams.download(packed.headers() if keep_on_device else packed.bytes)
        resident = packed.bytes.clone() if keep_on_device else None
        return PendingBatch(packed.layout, copy, resident, options, size, capacity, image_sizes)


def queue_of(
    item: Item, options: ExtractOptions, device: Any, keep_on_device: bool
) -> Callable[[], PendingBatch | None]:
    """Return a function that queues an image and returns its batch.

    It returns None if the image does not fit into device memory.
    """
    size = Kind.of(item[0]).size
    if not is_addressable(*size, device):
        return lambda: None
    work = partial(begin, [item], options, device, keep_on_device)
    restore = partial(graphs.restore_capacity, size, options)
    return partial(devices.unless_out_of_memory, work, described(*size), restore)


def repeatable(
    queue: Callable[[], PendingBatch | None], queued: PendingBatch | None
) -> Callable[[], Result]:
    """Return a function to call, once, for the features of the image that is ``queued``.

    They are a Failure if the image has invalid values, and None if it does not fit into device
    memory. The image is queued again if the candidate buffer overflows.
    """
    attempts = [queued]

    def result() -> Result:
        while (pending := attempts.pop()) is not None:
            results = pending.results()
            if results is not None:
                return results[0]
            del pending  # a larger candidate buffer may need its memory
            attempts.append(queue())
        return None

    return result


def extract_all(
    items: Iterable[_Indexed], options: ExtractOptions, device: Any, keep_on_device: bool = False
) -> Iterator[tuple[int, Result]]:
    """Yield (index, features) of images in any order; images of similar sizes share a batch.

    While the device processes a batch, the next one is collected and uploaded, and the results of
    the previous one are unpacked. A batch that does not fit into device memory is halved; the
    result of a single image that does not fit is None. With ``keep_on_device`` features are not
    downloaded.
    """
    in_flight: deque[_InFlight] = deque()
    for batch in _grouped(items, options, device):
        in_flight += _begin_or_split(batch, options, device, keep_on_device)
        while len(in_flight) > _IN_FLIGHT:
            yield from _results(in_flight.popleft(), options, device, keep_on_device)
    while in_flight:
        yield from _results(in_flight.popleft(), options, device, keep_on_device)


@dataclass(frozen=True, eq=False)
class _InFlight:
    """A batch and its extraction; None for a single image that does not fit."""

    batch: list[_Indexed]
    pending: PendingBatch | None


def _results(
    entry: _InFlight, options: ExtractOptions, device: Any, keep_on_device: bool
) -> Iterator[tuple[int, Result]]:
    batch, pending = entry.batch, entry.pending
    if pending is None:
        yield batch[0][0], None
        return
    results = pending.results()
    del entry, pending  # others may need their memory, above all a larger candidate buffer
    if results is None:
        retries = deque(_begin_or_split(batch, options, device, keep_on_device))
        while retries:
            yield from _results(retries.popleft(), options, device, keep_on_device)
        return
    yield from zip((index for index, _ in batch), results, strict=True)


@dataclass(frozen=True)
class _Group:
    """What images of a batch have in common: their kind, and the number of their octaves.

    The kind is enlarged if images of different sizes can share a batch.
    """

    kind: Kind
    octaves: int
    is_shared: bool

    @classmethod
    def of(cls, item: Item, options: ExtractOptions, device: Any) -> "_Group":
        """Return the group of an image."""
        image, mask = item
        kind = Kind.of(image)
        octaves = len(pyramid(*kind.size).octaves)
        enlarged = kind.enlarged() if kind.is_integer_array else kind
        can_share = backend.of(device).compiled and mask is None and _limit(enlarged) > 1
        # The range of an image is checked only for floats and for kernels of intensities.
        can_share &= options.recipe.kernel.feature != "intensity"
        return cls(enlarged if can_share else kind, octaves, can_share)


def _limit(kind: Kind) -> int:
    """Return the largest number of images of a kind in a batch."""
    return min(BATCH, max(1, _PIXELS // kind.pixels))


def _grouped(
    items: Iterable[_Indexed], options: ExtractOptions, device: Any
) -> Iterator[list[_Indexed]]:
    """Yield batches when they are full or too many pixels wait, then the incomplete ones."""
    waiting: dict[_Group, list[_Indexed]] = {}
    pixels = 0
    for item in items:
        group = _Group.of(item[1], options, device)
        waiting.setdefault(group, []).append(item)
        pixels += group.kind.pixels
        full = len(waiting[group]) >= _limit(group.kind)
        if full or pixels > _WAITING:
            if not full:
                group = max(waiting, key=lambda g: len(waiting[g]) * g.kind.pixels)
            batch = waiting.pop(group)
            pixels -= len(batch) * group.kind.pixels
            yield batch
    yield from waiting.values()


def _begin_or_split(
    batch: list[_Indexed], options: ExtractOptions, device: Any, keep_on_device: bool
) -> list[_InFlight]:
    items = [item for _, item in batch]
    if len(batch) == 1:
        return [_InFlight(batch, queue_of(items[0], options, device, keep_on_device)())]
    with suppress(torch.OutOfMemoryError):
        return [_InFlight(batch, begin(items, options, device, keep_on_device))]
    graphs.clear()  # outside of the block: see :func:`devices.unless_out_of_memory`
    h, w = Kind.of(items[0][0]).size
    half = len(batch) // 2
    log.warning(
        "%d images of %d x %d do not fit into device memory: retrying in batches of %d",
        len(batch), w, h, half,
    )  # fmt: skip
    first, second = batch[:half], batch[half:]
    started = _begin_or_split(first, options, device, keep_on_device)
    return started + _begin_or_split(second, options, device, keep_on_device)


def describe_frames(
    pixels: NDArray[np.float32],
    maps: NDArray[np.float64],
    options: ExtractOptions,
    device: Any,
) -> NDArray[Any] | None:
    """Return the descriptors (n, d) of frames (n, 2, 3); None if the image does not fit."""
    h, w = pixels.shape
    if not is_addressable(h, w, device):
        return None

    def work() -> NDArray[Any]:
        with torch.no_grad(), cuda_streams.using(device):
            frames = torch.tensor(maps).to(device)
            described = pipeline.describe(upload.upload([pixels], device), frames, options)
            return np.asarray(described.cpu().numpy())

    return devices.unless_out_of_memory(work, described(h, w))


def described(h: int, w: int) -> str:
    """Return the description of an image in log messages."""
    return f"an image of {w} x {h}"


def is_addressable(h: int, w: int, device: Any) -> bool:
    """Return whether the backend can address all elements of the pyramid of an image (h, w).

    If not, log that the CPU takes over.
    """
    result = not backend.of(device).compiled or pyramid(h, w).total < _ADDRESSABLE
    if not result:
        log.warning("%s is too large for the device; using the CPU", described(h, w))
    return result
