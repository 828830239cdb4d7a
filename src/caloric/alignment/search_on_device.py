"""The search for a template on a device: comparing windows with templates is a convolution."""

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

_NUMBERS = 1 << 28  # products per block


def correlate(
    values: Pixels, columns: Pixels, turns: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    """Return :func:`caloric.alignment.search.correlate`, which is also the fallback."""
    result = devices.unless_out_of_memory(
        lambda: _correlate_on_device(values, columns, turns, device), "a search"
    )
    return search.correlate(values, columns, turns) if result is None else result


def _correlate_on_device(
    values: Pixels, columns: Pixels, turns: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    channels, count = len(values), columns.shape[1] // turns
    kernels = np.zeros((columns.shape[1], channels, SCHEDULE.grid, SCHEDULE.grid), np.float32)
    kernels[:, :, INSIDE] = columns.T.reshape(columns.shape[1], channels, -1)
    best, which = [], []
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        image = torch.from_numpy(values).to(device)[None]
        block = max(1, _NUMBERS // (turns * values.shape[1] * values.shape[2]))
        for first in range(0, count, block):
            part = kernels[first * turns : (first + block) * turns]
            product = torch.nn.functional.conv2d(image, torch.from_numpy(part).to(device))[0]
            highest, turn = product.unflatten(0, (-1, turns)).max(1)
            best.append(highest.cpu().numpy())
            which.append(turn.to(torch.uint8).cpu().numpy())
    return np.concatenate(best), np.concatenate(which)


def on(device: Any) -> Correlate:
    """Return :func:`correlate` for a device."""
    return partial(correlate, device=device)
