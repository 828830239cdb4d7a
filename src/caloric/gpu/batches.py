"""Extraction in batches of images of one kind, halved until they fit into device memory."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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

BATCH = 32  # images of one kind per batch
_PIXELS = 1 << 26  # per batch
_WAITING = 1 << 28  # pixels that wait for other images of their kind
_ADDRESSABLE = 1 << 31  # elements of a pyramid that the Triton kernels can address
_IN_FLIGHT = 2  # batches that the device works on while the results of another are unpacked

Item = tuple[Image, Mask | None]  # an image and its mask (h, w)
Result = Features | DeviceFeatures | Failure | None
_Indexed = tuple[int, Item]


@dataclass(frozen=True, eq=False)
class Running:
    """Images of one size that a device works on; ``copy`` is of all bytes or of the headers.

    ``resident`` are the bytes that stay on the device.
    """

    packed: Packed
    copy: Download
    resident: Tensor | None
    options: ExtractOptions
    size: tuple[int, int]

    def parts(self) -> Parts | None:
        """Return the features of all images on the host; None if the candidate buffer overflowed.

        The retry uses a larger one. Of features that stay on the device there are headers only.
        """
        packed = self.packed if self.resident is None else replace(self.packed, slots=0)
        parts = packed.parts(self.copy.wait().numpy())
        if parts.crowded:
            graphs.enlarge(self.size, self.options)
            return None
        return parts

    def results(self) -> list[Result] | None:
        """Return the features of each image, or a Failure; None if the buffer overflowed."""
        parts = self.parts()
        if parts is None:
            return None
        counts, ranges, options = parts.counts.tolist(), parts.ranges, self.options
        resident = None if self.resident is None else self.packed.parts(self.resident)
        values = () if resident is not None else download.descriptors(parts, options.output)

        def result(i: int) -> Result:
            try:
                upload.check(ranges[i], options.recipe.kernel)
            except InputError as error:
                return Failure(str(error))
            if resident is not None:
                part = resident.image(i, counts[i])
                return DeviceFeatures(*part, options.empty(self.size))
            maps, scores, _ = parts.image(i, counts[i])
            return options.features(
                download.frames(maps, scores), values[i][: counts[i]], self.size
            )

        return [result(i) for i in range(len(counts))]


def begin(batch: list[Item], options: ExtractOptions, device: Any, stay: bool) -> Running:
    """Upload images of one kind, and queue their extraction on the device."""
    kind = Kind.of(batch[0][0])
    layout, size = kind.layout, kind.size
    capacity = graphs.capacity(size, options)

    def work(pixels: Tensor, masks: Tensor | None) -> Packed:
        gray = upload.to_gray(pixels, layout)
        ranges = upload.ranges(pixels, gray, layout, options.recipe.kernel)
        return download.pack(pipeline.extract(gray, options, masks, capacity), ranges)

    with torch.no_grad(), cuda_streams.using(device):
        pixels = upload.upload([image for image, _ in batch], device)
        masks = None
        if any(mask is not None for _, mask in batch):
            filled = [np.ones(size, bool) if mask is None else mask for _, mask in batch]
            masks = upload.upload(filled, device)
        key = None if options.max_features is None else (options, layout, capacity)
        packed: Packed = graphs.recorded(work, key, pixels, masks)
        copy = cuda_streams.download(packed.headers() if stay else packed.bytes)
        return Running(packed, copy, packed.bytes.clone() if stay else None, options, size)


def extract_one(item: Item, options: ExtractOptions, device: Any, stay: bool = False) -> Result:
    """Return the features of one image; None if it does not fit into device memory."""
    h, w = Kind.of(item[0]).size
    while addressable(h, w, device):
        try:
            results = begin([item], options, device, stay).results()
        except torch.OutOfMemoryError:
            break
        if results is not None:
            return results[0]
    _release(device)
    _log_misfit(h, w)
    return None


def extract_all(
    items: Iterable[_Indexed], options: ExtractOptions, device: Any, stay: bool = False
) -> Iterator[tuple[int, Result]]:
    """Yield (index, features) of images in any order; images of one kind share a batch.

    While the device works on a batch, the next one is gathered and uploaded, and the results of the
    previous one are unpacked. A batch that does not fit into device memory is halved; a single
    image that does not fit gives None. With ``stay`` features stay on the device.
    """
    in_flight: deque[_Begun] = deque()
    for batch in _by_kind(items):
        in_flight += _begin_fitting(batch, options, device, stay)
        while len(in_flight) > _IN_FLIGHT:
            yield from _finished(in_flight.popleft(), options, device, stay)
    while in_flight:
        yield from _finished(in_flight.popleft(), options, device, stay)


@dataclass(frozen=True, eq=False)
class _Begun:
    """A batch and the work on it; None if a single image does not fit."""

    batch: list[_Indexed]
    running: Running | None


def _finished(
    begun: _Begun, options: ExtractOptions, device: Any, stay: bool
) -> Iterator[tuple[int, Result]]:
    if begun.running is None:
        yield begun.batch[0][0], None
        return
    results = begun.running.results()
    if results is None:  # repeat with a larger buffer
        for again in _begin_fitting(begun.batch, options, device, stay):
            yield from _finished(again, options, device, stay)
        return
    yield from zip((index for index, _ in begun.batch), results, strict=True)


def _by_kind(items: Iterable[_Indexed]) -> Iterator[list[_Indexed]]:
    """Yield batches of one kind when they are full or too many pixels wait, then the rest."""
    waiting: dict[Kind, list[_Indexed]] = {}
    pixels = 0
    for item in items:
        kind = Kind.of(item[1][0])
        h, w = kind.size
        alike = waiting.setdefault(kind, [])
        alike.append(item)
        pixels += h * w
        full = len(alike) >= min(BATCH, max(1, _PIXELS // (h * w)))
        if full or pixels > _WAITING:
            if not full:
                kind = max(waiting, key=lambda k: len(waiting[k]) * k.size[0] * k.size[1])
            batch = waiting.pop(kind)
            pixels -= len(batch) * kind.size[0] * kind.size[1]
            yield batch
    yield from waiting.values()


def _begin_fitting(
    batch: list[_Indexed], options: ExtractOptions, device: Any, stay: bool
) -> list[_Begun]:
    h, w = Kind.of(batch[0][1][0]).size
    if addressable(h, w, device):
        try:
            return [_Begun(batch, begin([item for _, item in batch], options, device, stay))]
        except torch.OutOfMemoryError:
            pass
    _release(device)
    if len(batch) == 1:
        _log_misfit(h, w)
        return [_Begun(batch, None)]
    half = len(batch) // 2
    log.warning(
        "%d images of %d x %d do not fit into the device's memory at once: %d", len(batch), w, h,
        half,
    )  # fmt: skip
    first, second = batch[:half], batch[half:]
    begun = _begin_fitting(first, options, device, stay)
    return begun + _begin_fitting(second, options, device, stay)


def _release(device: Any) -> None:
    with cuda_streams.using(device):
        graphs.forget()


def _log_misfit(h: int, w: int) -> None:
    log.warning("an image of %d x %d does not fit into the device's memory: on the CPU", w, h)


def describe_frames(
    pixels: NDArray[np.float32],
    maps: NDArray[np.float64],
    options: ExtractOptions,
    device: Any,
) -> NDArray[Any] | None:
    """Return the descriptors (n, d) of given frames (n, 2, 3); None if the image does not fit."""
    h, w = pixels.shape
    if not addressable(h, w, device):
        return None

    def work() -> NDArray[Any]:
        with torch.no_grad(), cuda_streams.using(device):
            frames = torch.tensor(maps).to(device)
            described = pipeline.describe(upload.upload([pixels], device), frames, options)
            return np.asarray(described.cpu().numpy())

    return devices.fitting(work, f"an image of {w} x {h}")


def addressable(h: int, w: int, device: Any) -> bool:
    """Return whether the Triton kernels, if used, can address the pyramid of an image (h, w)."""
    return not backend.of(device).compiled or pyramid(h, w).total < _ADDRESSABLE
