"""Operations that work on both NumPy arrays and PyTorch tensors.

Code for both takes its functions from :func:`namespace` and passes axes by position, because
NumPy calls them ``axis`` and PyTorch ``dim``.
"""

from typing import Any

import numpy as np

from caloric.types import ArrayOrTensor


def namespace(values: ArrayOrTensor) -> Any:
    """Return the module, numpy or torch, that ``values`` belong to."""
    if isinstance(values, np.ndarray):
        return np
    import torch

    return torch


def percentile(values: ArrayOrTensor, percent: float) -> ArrayOrTensor:
    """Return a percentile of all values, interpolated linearly, without copying it to the host."""
    if isinstance(values, np.ndarray):
        return np.percentile(values, percent)
    # torch.quantile is limited to 16 million values.
    ordered, rank = values.reshape(-1).sort().values, (values.numel() - 1) * percent / 100
    low, high = ordered[int(rank)], ordered[min(int(rank) + 1, len(ordered) - 1)]
    return low + (high - low) * (rank - int(rank))


def inner(a: ArrayOrTensor, b: ArrayOrTensor, axis: int) -> ArrayOrTensor:
    """Return the sums of products of two matrices along an axis."""
    if isinstance(a, np.ndarray):  # without storing the products
        return np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", a, b)
    return (a * b).sum(axis)


def at_least(values: ArrayOrTensor, low: float) -> ArrayOrTensor:
    """Return max(x, low), in NumPy faster than clip."""
    if isinstance(values, np.ndarray):
        return np.maximum(values, values.dtype.type(low))
    return values.clamp_min(low)


def positive_root(values: ArrayOrTensor) -> ArrayOrTensor:
    """Return √max(x, 0), whose derivative is 0 where x ≤ 0."""
    if isinstance(values, np.ndarray):
        return np.sqrt(np.maximum(values, 0))
    positive, xp = values > 0, namespace(values)
    return xp.where(positive, xp.where(positive, values, 1.0).sqrt(), 0.0)


def median(values: ArrayOrTensor) -> float:
    """Return the median of all values."""
    return float(np.median(values) if isinstance(values, np.ndarray) else percentile(values, 50))


def empty(shape: tuple[int, ...], like: ArrayOrTensor) -> ArrayOrTensor:
    """Return an uninitialized array or tensor with the data type and device of ``like``."""
    return np.empty(shape, like.dtype) if isinstance(like, np.ndarray) else like.new_empty(shape)


def exact(value: ArrayOrTensor) -> ArrayOrTensor:
    """Return a sum of an array as float64; that of a tensor unchanged, to save a kernel launch."""
    return np.float64(value) if isinstance(value, np.generic | np.ndarray) else value
