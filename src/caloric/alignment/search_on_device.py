"""The search for a template on a device: all windows against all turns is a convolution."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from caloric.alignment import search
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import INSIDE, Correlate
from caloric.descriptor.fields import Pixels
from caloric.gpu import devices

_NUMBERS = 1 << 28  # of products at once


def correlate(
    values: Pixels, columns: Pixels, turns: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    """:func:`caloric.alignment.search.correlate`, which does what does not fit."""
    found = devices.fitting(lambda: _there(values, columns, turns, device), "a search")
    return search.correlate(values, columns, turns) if found is None else found


def _there(
    values: Pixels, columns: Pixels, turns: int, device: Any
) -> tuple[Pixels, NDArray[np.uint8]]:
    channels, count = len(values), columns.shape[1] // turns
    kernels = np.zeros((columns.shape[1], channels, SCHEDULE.grid, SCHEDULE.grid), np.float32)
    kernels[:, :, INSIDE] = columns.T.reshape(columns.shape[1], channels, -1)
    best, which = [], []
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        image = torch.from_numpy(values).to(device)[None]
        some = max(1, _NUMBERS // (turns * values.shape[1] * values.shape[2]))
        for first in range(0, count, some):
            part = kernels[first * turns : (first + some) * turns]
            product = torch.nn.functional.conv2d(image, torch.from_numpy(part).to(device))[0]
            highest, turn = product.unflatten(0, (-1, turns)).max(1)
            best.append(highest.cpu().numpy())
            which.append(turn.to(torch.uint8).cpu().numpy())
    return np.concatenate(best), np.concatenate(which)


def on(device: Any) -> Correlate:
    """By a device."""
    return partial(correlate, device=device)
