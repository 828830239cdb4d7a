"""Grayscale of color images in bytes, in PyTorch; the Triton kernel is in gray_kernels.py."""

import numpy as np
import torch
from torch import Tensor

from caloric.gpu.caches import cached
from caloric.image.pixels import weighted_levels


@cached
def levels(device: torch.device) -> Tensor:
    """Return the weighted values (3, 256) of the bytes of each channel."""
    return torch.tensor(np.stack(weighted_levels()), device=device)


def of_bytes(pixels: Tensor) -> Tensor:
    """Return images (b, h, w, 3) in grayscale (b, h, w), bit-identical to those of the CPU."""
    red, green, blue = (
        table[channel.int()]
        for table, channel in zip(levels(pixels.device), pixels.unbind(3), strict=True)
    )
    return red + green + blue
