"""Triton kernel for grayscale; the PyTorch implementation is in gray.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu import gray

_BLOCK = 1024  # pixels of a program


@triton.jit(do_not_specialize=["count"])
def _sum(pixels, levels, result, count, BLOCK: tl.constexpr):
    """Store the sum of the weighted values of three channels, in the order of the CPU."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    red = tl.load(pixels + 3 * at, mask=inside, other=0).to(tl.int32)
    green = tl.load(pixels + 3 * at + 1, mask=inside, other=0).to(tl.int32)
    blue = tl.load(pixels + 3 * at + 2, mask=inside, other=0).to(tl.int32)
    total = tl.load(levels + red) + tl.load(levels + 256 + green)
    tl.store(result + at, total + tl.load(levels + 512 + blue), mask=inside)


def of_bytes(pixels: Tensor) -> Tensor:
    """Return :func:`caloric.gpu.gray.of_bytes`."""
    result = torch.empty(pixels.shape[:3], device=pixels.device)
    count = result.numel()
    _sum[(triton.cdiv(count, _BLOCK),)](
        pixels.contiguous(), gray.levels(pixels.device), result, count, BLOCK=_BLOCK
    )
    return result
