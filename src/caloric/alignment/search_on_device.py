"""The search for a template on a device, where windows are compared by convolution."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from caloric.alignment import search
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import INSIDE, Correlate
from caloric.gpu import devices
from caloric.types import Pixels

_MAX_PRODUCTS = 1 << 28  # products per block


def correlate(
    values: Pixels, columns: Pixels, rotations: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    """Return the same as :func:`caloric.alignment.search.correlate`, to which it falls back."""
    result = devices.unless_out_of_memory(
        lambda: _correlate_on_device(values, columns, rotations, device), "a search"
    )
    return search.correlate(values, columns, rotations) if result is None else result


def _correlate_on_device(
    values: Pixels, columns: Pixels, rotations: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    channels, count = len(values), columns.shape[1] // rotations
    kernels = np.zeros((columns.shape[1], channels, SCHEDULE.grid, SCHEDULE.grid), np.float32)
    kernels[:, :, INSIDE] = columns.T.reshape(columns.shape[1], channels, -1)
    scores, best_rotation = [], []
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        image = torch.from_numpy(values).to(device)[None]
        block = max(1, _MAX_PRODUCTS // (rotations * values.shape[1] * values.shape[2]))
        for first in range(0, count, block):
            part = kernels[first * rotations : (first + block) * rotations]
            product = torch.nn.functional.conv2d(image, torch.from_numpy(part).to(device))[0]
            highest, index = product.unflatten(0, (-1, rotations)).max(1)
            scores.append(highest.cpu().numpy())
            best_rotation.append(index.to(torch.uint8).cpu().numpy())
    return np.concatenate(scores), np.concatenate(best_rotation)


def for_device(device: Any) -> Correlate:
    """Return :func:`correlate` bound to a device."""
    return partial(correlate, device=device)
