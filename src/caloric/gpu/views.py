"""Simulated views on a device (:mod:`caloric.image.views`); the views of a tilt are a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import batches, cuda_streams, devices, download, graphs, pipeline, upload
from caloric.gpu.batches import PendingBatch
from caloric.gpu.caches import cached
from caloric.image import views
from caloric.image.views import View
from caloric.kernels import Kernel
from caloric.options import ExtractOptions
from caloric.types import FloatArray, Mask

_RECORDED = 1 << 26  # rotated pixels of a recorded graph, at most: it holds memory for them

Uploaded = tuple[Tensor, Tensor | None]  # grayscale pixels and mask (h, w) on the device


def uploaded(
    image: upload.Image, mask: Mask | None, kernel: Kernel, device: Any
) -> Uploaded | None:
    """Return grayscale pixels and mask (h, w) on the device; None if they do not fit."""

    def work() -> Uploaded:
        with torch.no_grad(), cuda_streams.using(device):
            allowed = None if mask is None else upload.upload([mask], device)[0]
            pixels, layout = upload.on_device(image, device), upload.Kind.of(image).layout
            gray = upload.to_gray(pixels, layout)
            if kernel.feature == "intensity":
                upload.check(upload.ranges(pixels, gray, layout, kernel)[0].cpu().numpy(), kernel)
            return gray[0], allowed

    return devices.unless_out_of_memory(work, batches.described(*upload.Kind.of(image).size))


@dataclass(frozen=True, eq=False)
class PendingViews:
    """Views of one tilt of an image, in flight on the device.

    ``to_image`` (n, 2, 3) are the maps from the views to the image. ``retry`` queues the views
    again.
    """

    pending: list[PendingBatch]
    to_image: FloatArray
    retry: Callable[[], "PendingViews | None"]

    def features(self, size: tuple[int, int]) -> Features | None:
        """Return the features of all views in the image of ``size``; None if they do not fit.

        The descriptors may be in the pinned memory of the batch: copy them to keep them.
        """
        results = [batch.parts() for batch in self.pending]
        if any(parts is None for parts in results):  # a candidate buffer overflowed
            retried = self.retry()
            return None if retried is None else retried.features(size)
        options = self.pending[0].options
        maps, scores, values = [], [], []
        first = 0
        for parts in results:
            if parts is None:
                continue
            b, k = parts.scores.shape
            view, slot = np.nonzero(np.arange(k) < parts.counts[:, None])
            rows = view * k + slot
            to_image = self.to_image[first + view]
            first += b
            frame_maps = to_image[:, :, :2] @ parts.maps.reshape(-1, 2, 3)[rows]
            frame_maps[:, :, 2] += to_image[:, :, 2]
            maps.append(frame_maps)
            scores.append(parts.scores.ravel()[rows])
            described = parts.values.reshape(b * k, parts.values.shape[2])
            values.append(described if len(rows) == len(described) else described[rows])
        frames = Frames.unchecked(np.concatenate(maps), np.concatenate(scores))
        descriptors = values[0] if len(values) == 1 else np.concatenate(values)
        return options.features(frames, descriptors.astype(options.output, copy=False), size)


def begin(
    image: Uploaded, factor: int, turns: list[View], options: ExtractOptions, device: Any
) -> PendingViews | None:
    """Queue the views of one tilt of an image (h, w), which is first reduced by ``factor``.

    Return None if they do not fit into device memory.
    """

    def retry() -> PendingViews | None:
        return begin(image, factor, turns, options, device)

    gray, _ = image
    small = (gray.shape[0] // factor, gray.shape[1] // factor)
    size = _largest(turns, small)
    if not batches.is_addressable(*size, device):
        return None
    to_image = np.stack([views.to_full_size(view.to_image(small), factor) for view in turns])
    parts = [turns[start : start + batches.BATCH] for start in range(0, len(turns), batches.BATCH)]

    def work() -> PendingViews:
        with torch.no_grad(), cuda_streams.using(device):
            pending = [_begin(image, factor, part, size, options) for part in parts]
            return PendingViews(pending, to_image, retry)

    what = batches.described(*gray.shape)
    if turns[0].tilt > 1:
        what = f"views with tilt {turns[0].tilt} of {what}"
    return devices.unless_out_of_memory(work, what, partial(graphs.restore_capacity, size, options))


def _begin(
    image: Uploaded, factor: int, turns: list[View], size: tuple[int, int], options: ExtractOptions
) -> PendingBatch:
    capacity = graphs.capacity(size, options)

    def work(gray: Tensor, mask: Tensor | None) -> download.Packed:
        pixels, allowed = _render(*_reduced(gray, mask, factor), tuple(turns), size, factor)
        batch = pipeline.extract(pixels, options, allowed, capacity)
        return download.pack(
            batch, upload.ranges(pixels, pixels, upload.GRAY, options.recipe.kernel)
        )

    fixed = options.max_features is not None
    recordable = fixed and len(turns) * turns[0].tilt * size[0] * size[1] <= _RECORDED
    key = (options, "views", factor, tuple(turns), capacity) if recordable else None
    packed = graphs.recorded(work, key, *image)
    copy = cuda_streams.download(packed.bytes)
    return PendingBatch(packed.layout, copy, None, options, size, capacity, ())


def _largest(turns: list[View], size: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest size (h, w) that holds all views of an image of ``size``."""
    h, w = zip(*(view.size(size) for view in turns), strict=True)
    return max(h), max(w)


def _reduced(gray: Tensor, mask: Tensor | None, factor: int) -> tuple[Tensor, Tensor | None]:
    """Return the means of blocks of pixels, and the mask at their centers."""
    if factor == 1:
        return gray, mask
    if mask is not None:
        h, w = (n // factor for n in mask.shape)
        centers = slice(factor // 2, None, factor)
        mask = mask[centers, centers][:h, :w]
    return functional.avg_pool2d(gray[None], factor)[0], mask


def _render(
    gray: Tensor,
    mask: Tensor | None,
    turns: tuple[View, ...],
    view_size: tuple[int, int],
    factor: int,
) -> tuple[Tensor, Tensor]:
    """Return views (n, *view_size) of an image (h, w), and where features are allowed."""
    h, w = gray.shape
    device, tilt = gray.device, turns[0].tilt
    if tilt == 1:
        return gray[None], (torch.ones_like(gray, dtype=torch.bool) if mask is None else mask)[None]
    taps, to_image = _taps(tilt, device), _to_image(turns, (h, w), device)
    reach, (rows, columns) = len(taps) // 2, view_size
    x = torch.arange(-reach, tilt * (columns - 1) + reach + 1, device=device).float()
    y = torch.arange(rows, device=device).float()
    positions = [_coordinate(to_image[:, axis], x, y) for axis in (0, 1)]
    rotated = _sampled(gray, *positions)
    kernel = taps.view(1, 1, 1, -1)
    blurred = functional.conv2d(rotated[:, None], kernel, stride=(1, tilt))[:, 0]
    inner = [p[:, :, reach : len(x) - reach : tilt] for p in positions]
    # The margin is in pixels of the image before reduction.
    low = (views.MARGIN - (factor - 1) / 2) / factor
    allowed = torch.ones_like(blurred, dtype=torch.bool)
    for coordinate, length in zip(inner, (w, h), strict=True):
        allowed &= (coordinate >= low) & (coordinate <= length - 1 - low)
    if mask is not None:
        allowed &= _sampled(mask.float(), *(p.round() for p in inner)) > 0.5
    return blurred.contiguous(), allowed


@cached
def _taps(tilt: int, device: Any) -> Tensor:
    return torch.tensor(views.taps(tilt), device=device)


@cached
def _to_image(turns: tuple[View, ...], size: tuple[int, int], device: Any) -> Tensor:
    """Return the maps (n, 2, 3) from rotated views, before compression, to the image."""
    maps = [view.to_image(size) * (1 / view.tilt, 1, 1) for view in turns]
    return torch.tensor(np.stack(maps), dtype=torch.float32, device=device)


def _coordinate(to_image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return one image coordinate (n, rows, columns) of the pixels of rotated views."""
    a, b, c = to_image[:, :, None, None].unbind(1)
    return a * x[None, None, :] + b * y[None, :, None] + c


def _sampled(image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return an image (h, w) interpolated at x, y (n, rows, columns); borders are replicated."""
    h, w = image.shape
    unit = torch.stack([2 * x / max(w - 1, 1) - 1, 2 * y / max(h - 1, 1) - 1], -1)
    return functional.grid_sample(
        image[None, None].expand(len(x), 1, h, w), unit,
        mode="bilinear", padding_mode="border", align_corners=True,
    )[:, 0]  # fmt: skip
