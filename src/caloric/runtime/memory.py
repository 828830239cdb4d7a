"""Reusable working memory.

Allocating new pages is slow: for a half-megapixel image it took as long as all the smoothing.
Buffers are therefore kept for the next image.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

KEPT = 256_000_000  # maximum number of bytes kept between calls
_limits: list[int] = []  # limits of the contexts of kept_up_to, which replace KEPT

# Free buffers by id. There is no lock: the garbage collector may call _release at any time, even
# in a thread that is running one of these functions.
_free: dict[int, NDArray[np.float32]] = {}


def workspace(count: int) -> NDArray[np.float32]:
    """Return an uninitialized array (count,); its memory is reused once nothing refers to it."""
    candidates = sorted((len(b), key) for key, b in list(_free.items()) if len(b) >= count)
    # Another thread may have taken one in the meantime.
    taken = (_free.pop(key, None) for _, key in candidates)
    buffer = next((b for b in taken if b is not None), None)
    if buffer is None:
        buffer = np.empty(count, np.float32)
    # The base of a slice is this view and not the buffer, because of the memoryview between them.
    view = np.frombuffer(buffer.data, np.float32)
    weakref.finalize(view, _release, buffer).atexit = False
    return view[:count]


@contextmanager
def kept_up_to(size: int) -> Iterator[None]:
    """Keep up to ``size`` bytes within the context, so that the tiles of an image reuse memory."""
    _limits.append(size)
    try:
        yield
    finally:
        _limits.remove(size)
        _trim()


def _release(buffer: NDArray[np.float32]) -> None:
    _free[id(buffer)] = buffer
    _trim()


def _trim() -> None:
    """Drop the smallest buffers until the limit is met."""
    kept = sorted((b.nbytes, key) for key, b in list(_free.items()))
    surplus = sum(size for size, _ in kept) - (max(_limits) if _limits else KEPT)
    for size, key in kept:
        if surplus <= 0:
            return
        _free.pop(key, None)
        surplus -= size
