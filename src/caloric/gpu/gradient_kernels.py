"""Triton kernels for the gradients of patches; formulas are in refinement_steps.py.

A program filters the rows of a patch, then its columns, with the few entries of the filters that
are not zero. This is faster than the product with one matrix for whole patches, which PyTorch
computes in refinement.py.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu.caches import cached
from caloric.gpu.patch_kernels import SAMPLES, WIDTH
from caloric.matching import refinement_steps as steps


@triton.jit
def _samples(SIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Return the indices, rows and columns of samples, and which of them exist."""
    at = tl.arange(0, WIDTH)
    return at, at // SIDE, at % SIDE, at < SIDE * SIDE


@triton.jit
def _apply(
    patches, smooth, slope, gradients, SIDE: tl.constexpr, WIDTH: tl.constexpr, REACH: tl.constexpr
):
    """Store ∂f/∂x = S P Dᵀ and ∂f/∂y = D P Sᵀ of a patch P."""
    number = tl.program_id(0).to(tl.int64)
    at, row, column, inside = _samples(SIDE, WIDTH)
    P = patches + number * (SIDE * SIDE) + row * SIDE
    out = gradients + number * (2 * SIDE * SIDE)
    x, y = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for shift in tl.static_range(-REACH, REACH + 1):
        k = column + shift
        valid = inside & (k >= 0) & (k < SIDE)
        value = tl.load(P + k, mask=valid, other=0.0)
        x += value * tl.load(slope + column * SIDE + k, mask=valid, other=0.0)
        y += value * tl.load(smooth + column * SIDE + k, mask=valid, other=0.0)
    tl.store(out + at, x, mask=inside)
    tl.store(out + SIDE * SIDE + at, y, mask=inside)
    tl.debug_barrier()  # wait until all threads have stored the first pass
    x, y = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for shift in tl.static_range(-REACH, REACH + 1):
        k = row + shift
        valid = inside & (k >= 0) & (k < SIDE)
        value = out + k * SIDE + column
        across = tl.load(value, mask=valid, other=0.0)
        down = tl.load(value + SIDE * SIDE, mask=valid, other=0.0)
        x += across * tl.load(smooth + row * SIDE + k, mask=valid, other=0.0)
        y += down * tl.load(slope + row * SIDE + k, mask=valid, other=0.0)
    tl.debug_barrier()  # wait until all threads have read the first pass: it is overwritten below
    tl.store(out + at, x, mask=inside)
    tl.store(out + SIDE * SIDE + at, y, mask=inside)


@triton.jit
def _adjoin(
    weights, smooth, slope, pixels, SIDE: tl.constexpr, WIDTH: tl.constexpr, REACH: tl.constexpr
):
    """Store the weights Sᵀ X D + Dᵀ Y S of pixels, given those of gradients, X and Y.

    ``weights`` is overwritten.
    """
    number = tl.program_id(0).to(tl.int64)
    at, row, column, inside = _samples(SIDE, WIDTH)
    given = weights + number * (2 * SIDE * SIDE)
    x, y = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for shift in tl.static_range(-REACH, REACH + 1):
        k = column + shift
        valid = inside & (k >= 0) & (k < SIDE)
        value = given + row * SIDE + k
        across = tl.load(value, mask=valid, other=0.0)
        down = tl.load(value + SIDE * SIDE, mask=valid, other=0.0)
        x += across * tl.load(slope + k * SIDE + column, mask=valid, other=0.0)
        y += down * tl.load(smooth + k * SIDE + column, mask=valid, other=0.0)
    tl.debug_barrier()  # wait until all threads have read the weights: they are overwritten below
    tl.store(given + at, x, mask=inside)
    tl.store(given + SIDE * SIDE + at, y, mask=inside)
    tl.debug_barrier()  # wait until all threads have stored the first pass
    total = tl.zeros((WIDTH,), tl.float32)
    for shift in tl.static_range(-REACH, REACH + 1):
        k = row + shift
        valid = inside & (k >= 0) & (k < SIDE)
        value = given + k * SIDE + column
        across = tl.load(value, mask=valid, other=0.0)
        down = tl.load(value + SIDE * SIDE, mask=valid, other=0.0)
        total += across * tl.load(smooth + k * SIDE + row, mask=valid, other=0.0)
        total += down * tl.load(slope + k * SIDE + row, mask=valid, other=0.0)
    tl.store(pixels + number * (SIDE * SIDE) + at, total, mask=inside)


@dataclass(frozen=True, eq=False)
class Filters:
    """Row and column filters on a device: a :class:`refinement_steps.Gradient`.

    ``smooth`` and ``slope`` (SIDE, SIDE) are zero farther than ``reach`` from the diagonal.
    """

    smooth: Tensor
    slope: Tensor
    reach: int

    def apply(self, patches: Tensor) -> Tensor:
        """Return the gradients (m, 2 n) of patches (m, n)."""
        gradients = torch.empty((len(patches), 2 * SAMPLES), device=patches.device)
        _apply[(len(patches),)](
            patches, self.smooth, self.slope, gradients, SIDE=steps.SIDE, WIDTH=WIDTH,
            REACH=self.reach,
        )  # fmt: skip
        return gradients

    def adjoint(self, weights: Tensor) -> Tensor:
        """Return the weights (m, k, n) of pixels, given weights (m, k, 2 n) of gradients.

        ``weights`` is overwritten.
        """
        m, k, _ = weights.shape
        pixels = torch.empty((m, k, SAMPLES), device=weights.device)
        _adjoin[(m * k,)](
            weights, self.smooth, self.slope, pixels, SIDE=steps.SIDE, WIDTH=WIDTH,
            REACH=self.reach,
        )  # fmt: skip
        return pixels


@cached
def filters(device: torch.device) -> tuple[Filters, ...]:
    """Return the filters for each of ``refinement_steps.BLURS``."""
    to = partial(torch.tensor, device=device)
    result = []
    for by in map(steps.filters, steps.BLURS):
        row, column = np.nonzero(by.slope)
        result.append(Filters(to(by.smooth), to(by.slope), int(np.abs(row - column).max())))
    return tuple(result)
