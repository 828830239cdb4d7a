"""Extraction in batches of images of the same size, halved until they fit into device memory."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.features import Features
from caloric.gpu import devices, graphs, host, pipeline, scalespace
from caloric.gpu.host import Pixels
from caloric.plan import Plan

log = logging.getLogger("caloric")

AT_ONCE = 32  # images of one size per batch
_PIXELS = 1 << 26  # per batch
_WAITING = 1 << 28  # pixels that wait for other images of their size
_ADDRESSABLE = 1 << 31  # elements of a pyramid that the kernels can address

Item = tuple[Pixels | Tensor, NDArray[np.bool_] | None]  # grey pixels (h, w), mask
_Indexed = tuple[int, Item]
_device_lock = RLock()


@contextmanager
def using(device: Any) -> Iterator[None]:
    """Select the device for one thread at a time, because recorded graphs share their outputs."""
    with _device_lock, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        yield


def extract_all(
    items: Iterable[_Indexed], plan: Plan, device: Any
) -> Iterator[tuple[int, Features | None]]:
    """Yield (index, features) of images in any order; images of the same size share a batch.

    The device processes a batch while the next one is gathered. A batch that does not fit into
    device memory is halved; a single image that does not fit gives None.
    """
    with ThreadPoolExecutor(1, "caloric-device") as worker:
        running: Future[list[tuple[int, Features | None]]] | None = None
        for batch in _by_size(items):
            # Submitted before the last results are handed over: the device does not wait for that.
            submitted = worker.submit(_extract_fitting, batch, plan, device)
            if running is not None:
                yield from running.result()
            running = submitted
        if running is not None:
            yield from running.result()


def _by_size(items: Iterable[_Indexed]) -> Iterator[list[_Indexed]]:
    """Yield batches of one size when they are full or too many pixels wait, then the rest."""
    waiting: dict[tuple[int, ...], list[_Indexed]] = {}
    pixels = 0
    for item in items:
        h, w = item[1][0].shape
        same_size = waiting.setdefault((h, w), [])
        same_size.append(item)
        pixels += h * w
        full = len(same_size) >= min(AT_ONCE, max(1, _PIXELS // (h * w)))
        if full or pixels > _WAITING:
            size = (h, w) if full else max(waiting, key=lambda s: len(waiting[s]) * s[0] * s[1])
            batch = waiting.pop(size)
            pixels -= len(batch) * size[0] * size[1]
            yield batch
    yield from waiting.values()


def _extract_fitting(
    batch: list[_Indexed], plan: Plan, device: Any
) -> list[tuple[int, Features | None]]:
    indices = [index for index, _ in batch]
    h, w = batch[0][1][0].shape
    if addressable(h, w, device):
        try:
            results = _extract_batch([item for _, item in batch], plan, device)
            return list(zip(indices, results, strict=True))
        except torch.OutOfMemoryError:
            pass
    with _device_lock:
        graphs.forget()
    if len(batch) == 1:
        log.warning("an image of %d x %d does not fit into the device's memory: on the CPU", w, h)
        return [(indices[0], None)]
    half = len(batch) // 2
    log.warning(
        "%d images of %d x %d do not fit into the device's memory at once: %d", len(batch), w, h,
        half,
    )  # fmt: skip
    first, second = batch[:half], batch[half:]
    return _extract_fitting(first, plan, device) + _extract_fitting(second, plan, device)


def _extract_batch(batch: list[Item], plan: Plan, device: Any) -> list[Features]:
    with torch.no_grad(), using(device):
        pixels = host.stack([image for image, _ in batch], device)
        masks = None
        if any(mask is not None for _, mask in batch):
            all_masks = [
                np.ones(image.shape, bool) if mask is None else mask for image, mask in batch
            ]
            masks = torch.from_numpy(np.stack(all_masks)).to(device)
        result = graphs.run(pixels, plan, masks)
        return host.to_host(result, plan, (pixels.shape[1], pixels.shape[2]))


def describe_frames(
    pixels: Pixels, maps: NDArray[np.float64], plan: Plan, device: Any
) -> NDArray[Any] | None:
    """Return the descriptors (n, d) of given frames (n, 2, 3); None if the image does not fit."""
    h, w = pixels.shape
    if not addressable(h, w, device):
        return None

    def work() -> NDArray[Any]:
        with torch.no_grad(), using(device):
            frames = torch.tensor(maps).to(device)
            described = pipeline.describe(host.stack([pixels], device), frames, plan)
            return np.asarray(described.cpu().numpy())

    return devices.fitting(work, f"an image of {w} x {h}")


def addressable(h: int, w: int, device: Any) -> bool:
    """Return whether the kernels can address the pyramid of an image (h, w)."""
    return not pipeline.fusing(device) or scalespace.pyramid(h, w).total < _ADDRESSABLE
