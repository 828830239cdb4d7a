"""The scale space of an image of any size, computed tile by tile.

The octaves of a tile are windows of the octaves of the whole image, with margins wide enough that
features do not depend on the tiles. The first layers of octaves 2, 3 … are stored for the whole
image, 4/3 of a byte per image pixel; above the memory limit, in a temporary file.
"""

import math
import numbers
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import Source
from caloric.image.scalespace import (
    CAMERA,
    FIRST,
    SCALES,
    SHARP,
    SMALLEST,
    Base,
    Image32,
    ScaleSpace,
    build,
    enlarged,
    octave,
    octaves,
    reach,
)
from caloric.runtime.memory import kept_up_to
from caloric.types import FloatArray

MEMORY = 500_000_000  # bytes
_PER_PIXEL = 170  # bytes per image pixel of a tile, including margins
_MIN_SIDE = 256  # pixels: smaller tiles would be mostly margin
_MAX_SIDE = 8192  # pixels: OpenCV's remap has 16-bit coordinates
_MOVES = 12  # pixels around an extremum that its refinement may read

Read = Callable[[slice, slice], Image32]


@dataclass(frozen=True)
class Tile:
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right`` of an image of ``size``."""

    top: int
    bottom: int
    left: int
    right: int
    size: tuple[int, int]

    def owns(self, xy: FloatArray) -> NDArray[np.bool_]:
        """Return a mask of the positions (n, 2) that belong to this tile; each belongs to one.

        Positions outside the image belong to the nearest tile.
        """
        h, w = self.size
        inside = np.ones(len(xy), bool)
        for value, low, high, end in (
            (xy[:, 0], self.left, self.right, w),
            (xy[:, 1], self.top, self.bottom, h),
        ):
            inside &= (value >= low) | (low == 0)
            inside &= (value < high) | (high == end)
        return inside

    def window(self, step: float, margin: int, shape: tuple[int, int]) -> tuple[slice, slice]:
        """Return the rows and columns of an octave that cover the tile and a margin in pixels."""
        ranges = ((self.top, self.bottom, shape[0]), (self.left, self.right, shape[1]))
        rows, columns = (
            slice(max(int(a / step) - margin, 0), min(math.ceil(b / step) + margin, end))
            for a, b, end in ranges
        )
        return rows, columns


def checked_memory(memory: int) -> int:
    """Return a number of bytes as an integer; raise InputError if it is not positive."""
    is_number = isinstance(memory, numbers.Real) and not isinstance(memory, bool)
    if not is_number or not 0 < memory < np.inf:
        raise InputError(f"memory must be a positive number of bytes, got {memory!r}")
    return int(memory)


def halo(farthest: float) -> int:
    """Return the margin around a tile, in pixels of an octave.

    ``farthest`` is the largest ratio of a sample's distance to its smoothing.
    """
    smoothest = FIRST * 2 ** ((SCALES - 0.5) / SCALES)  # largest smoothing read from an octave
    return max(math.ceil(farthest * smoothest) + 3, _MOVES)


class KeptSource(Source):
    """A source that keeps its scale space, unless the image is larger than one tile."""

    @cached_property
    def space(self) -> ScaleSpace:
        """The scale space of the whole image."""
        return build(self.whole())


def scale_spaces(
    image: Source,
    margin: int,
    memory: int = MEMORY,
    select: Callable[[Tile], bool] = lambda tile: True,
    last: int = SCALES + 2,
) -> Iterator[tuple[Tile, ScaleSpace]]:
    """Yield the selected tiles of an image and their scale spaces.

    Each needs about ``memory`` bytes. ``margin`` is the result of :func:`halo`, and ``last`` the
    last layer that is needed of all octaves but the coarsest.
    """
    tiles = _cut(image.size, memory)
    if len(tiles) == 1:
        yield tiles[0], image.space if isinstance(image, KeptSource) else build(image.whole(), last)
        return
    with kept_up_to(memory):
        yield from _windows(image.read, tiles, margin, memory, select, last)


def _windows(
    read: Read,
    tiles: list[Tile],
    margin: int,
    memory: int,
    select: Callable[[Tile], bool],
    last: int,
) -> Iterator[tuple[Tile, ScaleSpace]]:
    bases = _bases(read, tiles, memory)
    coarsest = octave(Base(np.ascontiguousarray(bases[-1]), FIRST, float(2 ** len(bases))))
    for tile in filter(select, tiles):
        windows = _finest(read, tile, margin)
        for i, base in enumerate(bases[:-1]):
            step = 2.0 ** (i + 1)
            rows, columns = tile.window(step, reach(FIRST) + margin, base.shape)
            windows.append(Base(base[rows, columns], FIRST, step, (columns.start, rows.start)))
        windows = [replace(window, last=last) for window in windows]
        # The coarsest octave is not cut, because large features read it at any distance. No
        # variable refers to the scale space after the yield, so that its memory can be reused.
        yield tile, ScaleSpace((*octaves(windows), coarsest), tile.size)


def _cut(size: tuple[int, int], memory: int) -> list[Tile]:
    """Return as few tiles of equal size as the memory allows."""
    h, w = size
    # An image too thin for octave 2 is not cut, because its last octave must not be.
    fits = h * w * _PER_PIXEL <= memory and max(h, w) <= _MAX_SIDE
    if fits or (min(h, w) + 1) // 2 < SMALLEST:
        return [Tile(0, h, 0, w, size)]
    side = min(max(_MIN_SIDE, int(math.sqrt(memory / _PER_PIXEL))), _MAX_SIDE)
    # Tiles start at even pixels, so that subsampling takes the same pixels as in the whole image.
    rows, columns = (
        [2 * round(i * n / 2 / math.ceil(n / side)) for i in range(math.ceil(n / side))] + [n]
        for n in size
    )
    return [
        Tile(top, bottom, left, right, size)
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
    ]


def _finest(read: Read, tile: Tile, margin: int) -> list[Base]:
    """Return the bases of octaves 0 and 1, which are computed from the image itself."""
    rows, columns = tile.window(1.0, reach(SHARP) + margin, tile.size)
    gray = read(rows, columns)
    # Octave 0 has two pixels per image pixel; the interpolation needs one more.
    inner = tile.window(1.0, (reach(2 * CAMERA) + margin) // 2 + 2, tile.size)
    top, left = inner[0].start - rows.start, inner[1].start - columns.start
    part = gray[top : inner[0].stop - rows.start, left : inner[1].stop - columns.start]
    return [
        enlarged(part, (inner[1].start, inner[0].start)),
        Base(gray, SHARP, 1.0, (columns.start, rows.start)),
    ]


def _bases(read: Read, tiles: list[Tile], memory: int) -> list[Image32]:
    """Return the first layers of octaves 2, 3 … of the whole image."""
    size = tiles[0].size
    bases = [_halved(read, size, SHARP, tiles, memory)]
    while (min(bases[-1].shape) + 1) // 2 >= SMALLEST:
        above = bases[-1]

        def part(rows: slice, columns: slice, above: Image32 = above) -> Image32:
            return above[rows, columns]

        shape = (above.shape[0], above.shape[1])
        bases.append(_halved(part, shape, FIRST, _cut(shape, memory), memory))
    return bases


def _halved(
    read: Read, size: tuple[int, int], first: float, tiles: list[Tile], memory: int
) -> Image32:
    """Return every second pixel of layer SCALES of an octave with base smoothing ``first``."""
    shape = ((size[0] + 1) // 2, (size[1] + 1) // 2)
    result = _allocate(shape, memory)
    for tile in tiles:
        rows, columns = tile.window(1.0, reach(first, SCALES), size)
        layers = octave(Base(read(rows, columns), first, 1.0, last=SCALES)).pixels
        top, left = tile.top - rows.start, tile.left - columns.start
        inner = layers[SCALES, top : tile.bottom - rows.start, left : tile.right - columns.start]
        part = inner[::2, ::2]
        row, column = tile.top // 2, tile.left // 2
        result[row : row + part.shape[0], column : column + part.shape[1]] = part
    return result


def _allocate(shape: tuple[int, int], memory: int) -> Image32:
    """Return an uninitialized image, in a temporary file if it exceeds ``memory`` bytes."""
    if 4 * shape[0] * shape[1] <= memory:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:
        try:
            # Reserve the space: writing to a memory map on a full disk kills the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
            return np.memmap(file, np.float32, "r+" if file.seek(0, 2) else "w+", shape=shape)
        except OSError as error:
            raise InputError(
                f"cannot store {4 * shape[0] * shape[1]:,} bytes in {tempfile.gettempdir()} "
                f"({error.strerror}); set TMPDIR to another directory, or increase memory"
            ) from None
