"""Transfers between host and device: pixels and features, each in one copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu.pipeline import Batch
from caloric.image.pixels import check_levels, is_tensor, rec601, source
from caloric.plan import Plan
from caloric.runtime import threads

Pixels = NDArray[np.float32]


def grey_pixels(image: Any, device: Any) -> Pixels | Tensor:
    """Return the grey pixels (h, w) of an image, on the device if it is a tensor.

    A tensor has the shape (h, w), (1, h, w) or (3, h, w).
    """
    if not is_tensor(image):
        pixels = source(image)
        return pixels.read(*(slice(0, n) for n in pixels.size))
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[0] not in (1, 3)):
        shape = tuple(image.shape)
        raise InputError(f"image: a tensor (h, w), (1, h, w) or (3, h, w), not {shape}")
    try:
        return grey(image.to(device))
    except torch.OutOfMemoryError:
        raise MemoryError from None


def grey(image: Tensor) -> Tensor:
    """Return the grey pixels of a tensor: :func:`caloric.image.pixels.to_grey`, channels first."""
    if image.dtype == torch.uint8:
        pixels = image.float() / 255
    elif image.is_floating_point():
        pixels = image.float()
        if not bool(torch.isfinite(pixels).all()):
            raise InputError("image: NaN or infinite pixels; replace them first")
        if pixels.numel():
            check_levels(float(pixels.min()), float(pixels.max()))
    elif image.dtype == torch.bool:
        pixels = image.float()
    elif image.dtype == torch.uint16:
        pixels = image.float() / 65535
    else:
        raise InputError(
            f"image: a tensor of {image.dtype}; use uint8, uint16, bool, or floats in [0, 1]"
        )
    if pixels.ndim == 2:
        return pixels
    if len(pixels) == 1:
        return pixels[0]
    return rec601(*pixels)


def stack(images: Sequence[Pixels | Tensor], device: Any) -> Tensor:
    """Return images (h, w) of one size as a tensor (b, h, w) on the device."""
    if all(isinstance(image, torch.Tensor) for image in images):
        return torch.stack([torch.as_tensor(image).to(device) for image in images])
    host = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def to_host(batch: Batch, plan: Plan, size: tuple[int, int]) -> list[Features]:
    """Return the features of the images (h, w) of a batch, copied all at once."""
    b, k = batch.strengths.shape
    parts = (batch.maps, batch.strengths, batch.descriptors)
    flat = torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])
    if flat.is_cuda:
        pinned = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
        pinned.copy_(flat, non_blocking=True)
        torch.cuda.current_stream(flat.device).synchronize()
        flat = pinned
    cuts = np.cumsum([part.numel() * part.element_size() for part in parts])[:-1]
    maps, strengths, values = np.split(flat.numpy(), cuts)
    kind = np.uint8 if batch.descriptors.dtype == torch.uint8 else np.float32
    maps = maps.view(np.float64).reshape(b, k, 2, 3)
    strengths = strengths.view(np.float32).reshape(b, k)
    values = values.view(kind).reshape(b, k, batch.descriptors.shape[2])

    def features(i: int) -> Features:
        count = int(np.count_nonzero(strengths[i] > 0))
        frames = Frames(maps[i, :count], strengths[i, :count].copy())
        return plan.features(frames, values[i, :count].astype(plan.output), size)

    return threads.each(features, range(b))
