"""Working memory, kept for the next image: a system hands out new pages slowly, one by one.

For an image of half a megapixel that took as long as all the smoothing.
"""

import weakref
from threading import Lock

import numpy as np
from numpy.typing import NDArray

KEPT = 256_000_000  # bytes at most, between calls

_spare: list[NDArray[np.float32]] = []  # the smallest first
_lock = Lock()


def workspace(count: int) -> NDArray[np.float32]:
    """``count`` numbers, not set; the memory is used again when no array refers to it."""
    with _lock:
        fitting = [i for i, buffer in enumerate(_spare) if len(buffer) >= count]
        buffer = _spare.pop(fitting[0]) if fitting else np.empty(count, np.float32)
    # Parts of this array refer to it, and not to the buffer, which is behind a memoryview.
    view = np.frombuffer(buffer.data, np.float32)
    weakref.finalize(view, _give_back, buffer).atexit = False
    return view[:count]


def _give_back(buffer: NDArray[np.float32]) -> None:
    """Kept; where it is too much, the smallest go."""
    with _lock:
        _spare.append(buffer)
        _spare.sort(key=len)
        while _spare and sum(b.nbytes for b in _spare) > KEPT:
            _spare.pop(0)
