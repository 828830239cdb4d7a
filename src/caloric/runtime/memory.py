"""Working memory, kept for the next image: a system hands out new pages slowly, one by one.

For an image of half a megapixel that took as long as all the smoothing.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

KEPT = 256_000_000  # bytes at most, between calls
_held: list[int] = []  # bytes that calls at work were allowed; more than KEPT, or less

# By id. No lock: arrays die whenever the garbage collector says, also while one is looked for here.
_spare: dict[int, NDArray[np.float32]] = {}


def workspace(count: int) -> NDArray[np.float32]:
    """``count`` numbers, not set; the memory is used again when no array refers to it."""
    fitting = sorted((len(b), key) for key, b in list(_spare.items()) if len(b) >= count)
    # Another thread may have taken one meanwhile.
    taken = (_spare.pop(key, None) for _, key in fitting)
    buffer = next((b for b in taken if b is not None), None)
    if buffer is None:
        buffer = np.empty(count, np.float32)
    # Parts of this array refer to it, and not to the buffer, which is behind a memoryview.
    view = np.frombuffer(buffer.data, np.float32)
    weakref.finalize(view, _give_back, buffer).atexit = False
    return view[:count]


@contextmanager
def kept_up_to(size: int) -> Iterator[None]:
    """While the tiles of an image are worked on: they use the same ``size`` bytes in turn."""
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
    """Where it is too much, the smallest go."""
    kept = sorted((b.nbytes, key) for key, b in list(_spare.items()))
    surplus = sum(size for size, _ in kept) - (max(_held) if _held else KEPT)
    for size, key in kept:
        if surplus <= 0:
            return
        _spare.pop(key, None)
        surplus -= size
