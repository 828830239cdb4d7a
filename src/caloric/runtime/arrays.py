"""Arithmetic that is written once for NumPy arrays and torch tensors.

Such functions take their operations from :func:`namespace`. They pass axes by position, because
NumPy calls them ``axis`` and PyTorch ``dim``.
"""

from typing import Any

import numpy as np

from caloric.types import ArrayOrTensor


def namespace(values: ArrayOrTensor) -> Any:
    """Return the module, numpy or torch, whose functions take ``values``."""
    if isinstance(values, np.ndarray):
        return np
    import torch

    return torch


def percentile(values: ArrayOrTensor, percent: float) -> ArrayOrTensor:
    """Return a percentile of all values, interpolated linearly, without copying it to the host."""
    if isinstance(values, np.ndarray):
        return np.percentile(values, percent)
    # torch.quantile is limited to 16 million values.
    ordered, at = values.reshape(-1).sort().values, (values.numel() - 1) * percent / 100
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    return low + (high - low) * (at - int(at))
