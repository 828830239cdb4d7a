"""Reusable working memory.

Operating systems provide new pages slowly: for an image of half a megapixel that took as long as
all the smoothing. Buffers are therefore kept for the next image.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

KEPT = 256_000_000  # bytes kept between calls, at most
_held: list[int] = []  # the limits of running calls, which replace KEPT

# Free buffers by id. Without a lock: the garbage collector may call _give_back at any time, even
# from a thread that is inside one of these functions.
_spare: dict[int, NDArray[np.float32]] = {}


def workspace(count: int) -> NDArray[np.float32]:
    """Return an uninitialized array (count,); its memory is reused once nothing refers to it."""
    fitting = sorted((len(b), key) for key, b in list(_spare.items()) if len(b) >= count)
    # Another thread may have taken one in the meantime.
    taken = (_spare.pop(key, None) for _, key in fitting)
    buffer = next((b for b in taken if b is not None), None)
    if buffer is None:
        buffer = np.empty(count, np.float32)
    # Slices of the view refer to the view and not to the buffer, which a memoryview hides.
    view = np.frombuffer(buffer.data, np.float32)
    weakref.finalize(view, _give_back, buffer).atexit = False
    return view[:count]


@contextmanager
def kept_up_to(size: int) -> Iterator[None]:
    """Keep up to ``size`` bytes within the context: the tiles of an image reuse the same memory."""
    _held.append(size)
    try:
        yield
    finally:
        _held.remove(size)
        _trim()


def _give_back(buffer: NDArray[np.float32]) -> None:
    _spare[id(buffer)] = buffer
    _trim()


def _trim() -> None:
    """Drop the smallest buffers until the limit is met."""
    kept = sorted((b.nbytes, key) for key, b in list(_spare.items()))
    surplus = sum(size for size, _ in kept) - (max(_held) if _held else KEPT)
    for size, key in kept:
        if surplus <= 0:
            return
        _spare.pop(key, None)
        surplus -= size
