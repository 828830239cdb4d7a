"""Simulated views on the device: all turns of a tilt are one batch (:mod:`caloric.image.views`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from caloric.features import Features
from caloric.gpu import batches, images, streams
from caloric.gpu.batches import Running
from caloric.gpu.images import GREY
from caloric.image import views
from caloric.image.views import View
from caloric.kernels import Kernel
from caloric.plan import Plan


def uploaded(image: images.Image, kernel: Kernel, device: Any) -> Tensor | None:
    """Return the grey pixels (h, w) of an image on the device; None if it does not fit."""
    try:
        with torch.no_grad(), streams.using(device):
            return images.on_device(image, kernel, device)
    except torch.OutOfMemoryError:
        return None


@dataclass(frozen=True, eq=False)
class Begun:
    """Views of one tilt of an image that the device works on."""

    running: list[Running]
    again: Callable[[], "Begun | None"]

    def results(self) -> list[Features] | None:
        """Return the features of the views in their own coordinates; None if they do not fit."""
        found: list[Features] = []
        for part in self.running:
            results = part.results()
            if results is None:  # there was no room for all candidates
                more = self.again()
                return None if more is None else more.results()
            found += [result for result in results if isinstance(result, Features)]
        return found


def begin(
    grey: Tensor,
    mask: NDArray[np.bool_] | None,
    factor: int,
    turns: list[View],
    plan: Plan,
    device: Any,
) -> Begun | None:
    """Begin with the views of one tilt of an image (h, w) that is reduced by the factor first.

    None if they do not fit into the memory of the device.
    """

    def again() -> Begun | None:
        return begin(grey, mask, factor, turns, plan, device)

    try:
        with torch.no_grad(), streams.using(device):
            pixels, seen = _render(*_reduced(grey, mask, factor), turns, factor)
            h, w = pixels.shape[1:]
            if not batches.addressable(h, w, device):
                return None
            parts = [slice(s, s + batches.AT_ONCE) for s in range(0, len(turns), batches.AT_ONCE)]
            running = [batches.begin(pixels[p], seen[p], GREY, (h, w), plan) for p in parts]
            return Begun(running, again)
    except torch.OutOfMemoryError:
        return None


def _reduced(
    grey: Tensor, mask: NDArray[np.bool_] | None, factor: int
) -> tuple[Tensor, NDArray[np.bool_] | None]:
    """Return the mean of blocks of pixels, and the mask at their middle."""
    if factor == 1:
        return grey, mask
    if mask is not None:
        h, w = (n // factor for n in mask.shape)
        middle = slice(factor // 2, None, factor)
        mask = np.ascontiguousarray(mask[middle, middle][:h, :w])
    return functional.avg_pool2d(grey[None], factor)[0], mask


def _render(
    grey: Tensor, mask: NDArray[np.bool_] | None, turns: list[View], factor: int
) -> tuple[Tensor, Tensor]:
    """Return views (n, h, w) of an image (h, w), and where features may be, (n, h, w)."""
    size = (grey.shape[0], grey.shape[1])
    if turns[0].tilt == 1:
        allowed = np.ones(size, bool) if mask is None else mask
        return grey[None], torch.from_numpy(allowed)[None].to(grey.device)
    sizes = [view.size(size) for view in turns]
    rows, columns = (max(s[i] for s in sizes) for i in range(2))
    tilt, taps = turns[0].tilt, torch.from_numpy(views.taps(turns[0].tilt)).to(grey.device)
    reach = len(taps) // 2
    x = torch.arange(-reach, tilt * (columns - 1) + reach + 1, device=grey.device)
    y = torch.arange(rows, device=grey.device)
    back = np.stack([view.to_image(size) * (1 / tilt, 1, 1) for view in turns])
    places = _places(torch.from_numpy(back).to(grey), x.to(grey), y.to(grey))
    turned = _sampled(grey, places)
    kernel = taps.view(1, 1, 1, -1)
    blurred = functional.conv2d(turned[:, None], kernel, stride=(1, tilt))[:, 0]
    inner = places[:, :, reach : len(x) - reach : tilt]
    # The margin is that of the image before it was reduced.
    low = (views.MARGIN - (factor - 1) / 2) / factor
    high = torch.tensor([size[1], size[0]]).to(inner) - 1 - low
    allowed = ((inner >= low) & (inner <= high)).all(-1)
    if mask is not None:
        wanted = torch.from_numpy(mask).to(grey)
        allowed &= _sampled(wanted, inner.round()) > 0.5
    return blurred.contiguous(), allowed


def _places(back: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the places (n, rows, columns, 2) in the image that turned views are read from."""
    along_x = back[:, None, None, :, 0] * x[None, None, :, None]
    along_y = back[:, None, None, :, 1] * y[None, :, None, None]
    return along_x + along_y + back[:, None, None, :, 2]


def _sampled(image: Tensor, places: Tensor) -> Tensor:
    """Return an image (h, w) at places (n, rows, columns, 2), bilinear, as at its edge beyond."""
    h, w = image.shape
    unit = 2 * places / torch.tensor([max(w - 1, 1), max(h - 1, 1)]).to(places) - 1
    images = image[None, None].expand(len(places), 1, h, w)
    return functional.grid_sample(
        images, unit, mode="bilinear", padding_mode="border", align_corners=True
    )[:, 0]
