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

from caloric.errors import InputError
from caloric.features import Failure, Features
from caloric.gpu import cuda_streams, devices, download, graphs, pipeline, scalespace, upload
from caloric.gpu.cuda_streams import Download
from caloric.gpu.download import DeviceFeatures, Packed, Parts
from caloric.gpu.upload import Image, Kind
from caloric.plan import Plan

log = logging.getLogger("caloric")

AT_ONCE = 32  # images of one kind per batch
_PIXELS = 1 << 26  # per batch
_WAITING = 1 << 28  # pixels that wait for other images of their kind
_ADDRESSABLE = 1 << 31  # elements of a pyramid that the kernels can address
_AHEAD = 2  # batches that the device works on while the results of another are unpacked

Item = tuple[Image, NDArray[np.bool_] | None]  # an image and its mask (h, w)
Result = Features | DeviceFeatures | Failure | None
_Indexed = tuple[int, Item]


@dataclass(frozen=True, eq=False)
class Running:
    """Images of one size that a device works on; ``download`` is of all bytes or of the headers.

    ``stay`` are the bytes that stay on the device.
    """

    packed: Packed
    download: Download
    stay: Tensor | None
    plan: Plan
    size: tuple[int, int]

    def parts(self) -> Parts | None:
        """Return the features of all images on the host; None if there was no room for them.

        Then there will be more room the next time. Of features that stay there are headers alone.
        """
        packed = self.packed if self.stay is None else replace(self.packed, slots=0)
        parts = packed.parts(self.download.wait().numpy())
        if parts.crowded:
            graphs.enlarge(self.size, self.plan)
            return None
        return parts

    def results(self) -> list[Result] | None:
        """Return the features of each image or why there are none; None if there was no room."""
        parts = self.parts()
        if parts is None:
            return None
        counts, ranges, plan = parts.counts.tolist(), parts.ranges, self.plan
        stay = None if self.stay is None else self.packed.parts(self.stay)
        values = () if stay is not None else download.descriptors(parts, plan.output)

        def result(i: int) -> Result:
            try:
                upload.check(ranges[i], plan.recipe.kernel)
            except InputError as error:
                return Failure(str(error))
            if stay is not None:
                return download.on_device(stay, i, counts[i], plan, self.size)
            return download.features(parts, values[i], i, counts[i], plan, self.size)

        return [result(i) for i in range(len(counts))]


def begin(
    pixels: Tensor,
    masks: Tensor | None,
    layout: str,
    size: tuple[int, int],
    plan: Plan,
    stay: bool = False,
) -> Running:
    """Let the device work on images (h, w), in a layout of :func:`upload.to_grey`, and return."""
    most = graphs.capacity(size, plan)

    def work(pixels: Tensor, masks: Tensor | None) -> Packed:
        grey = upload.to_grey(pixels, layout)
        ranges = upload.ranges(pixels, grey, layout, plan.recipe.kernel)
        return download.pack(pipeline.extract(grey, plan, masks, most), ranges)

    packed: Packed = graphs.extraction(work, plan, (layout, most), pixels, masks)
    down = cuda_streams.download(packed.headers() if stay else packed.bytes)
    return Running(packed, down, packed.bytes.clone() if stay else None, plan, size)


def extract_all(
    items: Iterable[_Indexed], plan: Plan, device: Any, stay: bool = False
) -> Iterator[tuple[int, Result]]:
    """Yield (index, features) of images in any order; images of one kind share a batch.

    While the device works on a batch, the next one is gathered and sent, and the results of the
    last are unpacked. A batch that does not fit into device memory is halved; a single image that
    does not fit gives None. With ``stay`` features stay on the device.
    """
    begun: deque[_Begun] = deque()
    for batch in _by_kind(items):
        begun += _begin_fitting(batch, plan, device, stay)
        while len(begun) > _AHEAD:
            yield from _finished(begun.popleft(), plan, device, stay)
    while begun:
        yield from _finished(begun.popleft(), plan, device, stay)


@dataclass(frozen=True, eq=False)
class _Begun:
    """A batch and the work on it; None if a single image does not fit."""

    batch: list[_Indexed]
    running: Running | None


def _finished(begun: _Begun, plan: Plan, device: Any, stay: bool) -> Iterator[tuple[int, Result]]:
    if begun.running is None:
        yield begun.batch[0][0], None
        return
    results = begun.running.results()
    if results is None:  # it is done again, with more room
        for again in _begin_fitting(begun.batch, plan, device, stay):
            yield from _finished(again, plan, device, stay)
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
        full = len(alike) >= min(AT_ONCE, max(1, _PIXELS // (h * w)))
        if full or pixels > _WAITING:
            if not full:
                kind = max(waiting, key=lambda k: len(waiting[k]) * k.size[0] * k.size[1])
            batch = waiting.pop(kind)
            pixels -= len(batch) * kind.size[0] * kind.size[1]
            yield batch
    yield from waiting.values()


def _begin_fitting(batch: list[_Indexed], plan: Plan, device: Any, stay: bool) -> list[_Begun]:
    h, w = Kind.of(batch[0][1][0]).size
    if addressable(h, w, device):
        try:
            return [_Begun(batch, _begin_batch([item for _, item in batch], plan, device, stay))]
        except torch.OutOfMemoryError:
            pass
    with cuda_streams.using(device):
        graphs.forget()
    if len(batch) == 1:
        log.warning("an image of %d x %d does not fit into the device's memory: on the CPU", w, h)
        return [_Begun(batch, None)]
    half = len(batch) // 2
    log.warning(
        "%d images of %d x %d do not fit into the device's memory at once: %d", len(batch), w, h,
        half,
    )  # fmt: skip
    first, second = batch[:half], batch[half:]
    begun = _begin_fitting(first, plan, device, stay)
    return begun + _begin_fitting(second, plan, device, stay)


def _begin_batch(batch: list[Item], plan: Plan, device: Any, stay: bool) -> Running:
    with torch.no_grad(), cuda_streams.using(device):
        pixels = upload.upload([image for image, _ in batch], device)
        kind = Kind.of(batch[0][0])
        masks = None
        if any(mask is not None for _, mask in batch):
            all_masks = [np.ones(kind.size, bool) if mask is None else mask for _, mask in batch]
            masks = upload.upload(all_masks, device)
        layout = "tensors" if kind.tensor else "arrays"
        return begin(pixels, masks, layout, kind.size, plan, stay)


def describe_frames(
    pixels: NDArray[np.float32], maps: NDArray[np.float64], plan: Plan, device: Any
) -> NDArray[Any] | None:
    """Return the descriptors (n, d) of given frames (n, 2, 3); None if the image does not fit."""
    h, w = pixels.shape
    if not addressable(h, w, device):
        return None

    def work() -> NDArray[Any]:
        with torch.no_grad(), cuda_streams.using(device):
            frames = torch.tensor(maps).to(device)
            described = pipeline.describe(upload.upload([pixels], device), frames, plan)
            return np.asarray(described.cpu().numpy())

    return devices.fitting(work, f"an image of {w} x {h}")


def addressable(h: int, w: int, device: Any) -> bool:
    """Return whether the kernels can address the pyramid of an image (h, w)."""
    return not pipeline.fusing(device) or scalespace.pyramid(h, w).total < _ADDRESSABLE
