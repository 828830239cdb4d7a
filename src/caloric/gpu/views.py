"""Simulated views on the device: all turns of a tilt are one batch (:mod:`caloric.image.views`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import batches, cuda_streams, download, graphs, pipeline, upload
from caloric.gpu.batches import Running
from caloric.gpu.caches import once
from caloric.image import views
from caloric.image.views import View
from caloric.kernels import Kernel
from caloric.options import ExtractOptions
from caloric.types import FloatArray, Mask

_RECORDED = 1 << 26  # rotated pixels: a recorded graph keeps their memory

Uploaded = tuple[Tensor, Tensor | None]  # gray pixels and mask (h, w) on the device


def uploaded(
    image: upload.Image, mask: Mask | None, kernel: Kernel, device: Any
) -> Uploaded | None:
    """Return gray pixels and mask (h, w) of an image on the device; None if they do not fit."""
    try:
        with torch.no_grad(), cuda_streams.using(device):
            wanted = None if mask is None else upload.upload([mask], device)[0]
            return upload.on_device(image, kernel, device), wanted
    except torch.OutOfMemoryError:
        return None


@dataclass(frozen=True, eq=False)
class Begun:
    """Views of one tilt of an image that the device works on.

    ``back`` (n, 2, 3) are the maps from the views to the image; ``again`` begins once more.
    """

    running: list[Running]
    back: FloatArray
    again: Callable[[], "Begun | None"]

    def features(self, size: tuple[int, int]) -> Features | None:
        """Return the features of all views in the image of that size; None if they do not fit.

        Their descriptors may be in the pinned memory of the batch, which is not for keeping.
        """
        arrived = [part.parts() for part in self.running]
        if any(parts is None for parts in arrived):  # there was no room for all candidates
            more = self.again()
            return None if more is None else more.features(size)
        options = self.running[0].options
        maps, scores, values = [], [], []
        begin = 0
        for parts in arrived:
            if parts is None:
                continue
            b, k = parts.scores.shape
            view, slot = np.nonzero(np.arange(k) < parts.counts[:, None])
            rows = view * k + slot
            back = self.back[begin + view]
            begin += b
            own = back[:, :, :2] @ parts.maps.reshape(-1, 2, 3)[rows]
            own[:, :, 2] += back[:, :, 2]
            maps.append(own)
            scores.append(parts.scores.ravel()[rows])
            described = parts.values.reshape(b * k, -1)
            values.append(described if len(rows) == len(described) else described[rows])
        frames = Frames.unchecked(np.concatenate(maps), np.concatenate(scores))
        whole = values[0] if len(values) == 1 else np.concatenate(values)
        return options.features(frames, whole.astype(options.output, copy=False), size)


def begin(
    image: Uploaded, factor: int, turns: list[View], options: ExtractOptions, device: Any
) -> Begun | None:
    """Begin with the views of one tilt of an image (h, w) that is reduced by the factor first.

    None if they do not fit into the memory of the device.
    """

    def again() -> Begun | None:
        return begin(image, factor, turns, options, device)

    gray, _ = image
    small = (gray.shape[0] // factor, gray.shape[1] // factor)
    size = _largest(turns, small)
    if not batches.addressable(*size, device):
        return None
    back = np.stack([views.enlarged(view.to_image(small), factor) for view in turns])
    parts = [turns[start : start + batches.BATCH] for start in range(0, len(turns), batches.BATCH)]
    try:
        with torch.no_grad(), cuda_streams.using(device):
            running = [_begin(image, factor, part, size, options) for part in parts]
            return Begun(running, back, again)
    except torch.OutOfMemoryError:
        return None


def _begin(
    image: Uploaded, factor: int, turns: list[View], size: tuple[int, int], options: ExtractOptions
) -> Running:
    most = graphs.capacity(size, options)

    def work(gray: Tensor, mask: Tensor | None) -> download.Packed:
        pixels, seen = _render(*_reduced(gray, mask, factor), tuple(turns), size, factor)
        batch = pipeline.extract(pixels, options, seen, most)
        return download.pack(
            batch, upload.ranges(pixels, pixels, upload.GRAY, options.recipe.kernel)
        )

    fixed = options.max_features is not None
    recordable = fixed and len(turns) * turns[0].tilt * size[0] * size[1] <= _RECORDED
    key = (options, "views", factor, tuple(turns), most) if recordable else None
    packed = graphs.recorded(work, key, *image)
    return Running(packed, cuda_streams.download(packed.bytes), None, options, size)


def _largest(turns: list[View], size: tuple[int, int]) -> tuple[int, int]:
    """Return a size (h, w) that all views of an image of ``size`` fit into."""
    h, w = zip(*(view.size(size) for view in turns), strict=True)
    return max(h), max(w)


def _reduced(gray: Tensor, mask: Tensor | None, factor: int) -> tuple[Tensor, Tensor | None]:
    """Return the mean of blocks of pixels, and the mask at their middle."""
    if factor == 1:
        return gray, mask
    if mask is not None:
        h, w = (n // factor for n in mask.shape)
        middle = slice(factor // 2, None, factor)
        mask = mask[middle, middle][:h, :w]
    return functional.avg_pool2d(gray[None], factor)[0], mask


def _render(
    gray: Tensor,
    mask: Tensor | None,
    turns: tuple[View, ...],
    view_size: tuple[int, int],
    factor: int,
) -> tuple[Tensor, Tensor]:
    """Return views (n, *view_size) of an image (h, w), and where features may be."""
    h, w = gray.shape
    device, tilt = gray.device, turns[0].tilt
    if tilt == 1:
        return gray[None], (torch.ones_like(gray, dtype=torch.bool) if mask is None else mask)[None]
    taps, back = _taps(tilt, device), _back(turns, (h, w), device)
    reach, (rows, columns) = len(taps) // 2, view_size
    x = torch.arange(-reach, tilt * (columns - 1) + reach + 1, device=device).float()
    y = torch.arange(rows, device=device).float()
    places = [_along(back[:, axis], x, y) for axis in (0, 1)]
    turned = _sampled(gray, *places)
    kernel = taps.view(1, 1, 1, -1)
    blurred = functional.conv2d(turned[:, None], kernel, stride=(1, tilt))[:, 0]
    inner = [p[:, :, reach : len(x) - reach : tilt] for p in places]
    # The margin is that of the image before it was reduced.
    low = (views.MARGIN - (factor - 1) / 2) / factor
    allowed = torch.ones_like(blurred, dtype=torch.bool)
    for place, length in zip(inner, (w, h), strict=True):
        allowed &= (place >= low) & (place <= length - 1 - low)
    if mask is not None:
        allowed &= _sampled(mask.float(), *(p.round() for p in inner)) > 0.5
    return blurred.contiguous(), allowed


@once
def _taps(tilt: int, device: Any) -> Tensor:
    return torch.tensor(views.taps(tilt), device=device)


@once
def _back(turns: tuple[View, ...], size: tuple[int, int], device: Any) -> Tensor:
    """Return the maps (n, 2, 3) from turned views, not yet compressed, to the image."""
    back = [view.to_image(size) * (1 / view.tilt, 1, 1) for view in turns]
    return torch.tensor(np.stack(back), dtype=torch.float32, device=device)


def _along(back: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return one coordinate (n, rows, columns) in the image of what turned views are read from."""
    a, b, c = back[:, :, None, None].unbind(1)
    return a * x[None, None, :] + b * y[None, :, None] + c


def _sampled(image: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return an image (h, w) at places x, y (n, rows, columns), bilinear, as at its edge beyond."""
    h, w = image.shape
    unit = torch.stack([2 * x / max(w - 1, 1) - 1, 2 * y / max(h - 1, 1) - 1], -1)
    return functional.grid_sample(
        image[None, None].expand(len(x), 1, h, w), unit,
        mode="bilinear", padding_mode="border", align_corners=True,
    )[:, 0]  # fmt: skip
