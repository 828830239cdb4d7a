"""Images of any size: the scale space tile by tile, each with all around it that its features see.

A tile's octaves are windows on the octaves of the whole image, wide enough that all that is read
for a feature inside the tile is what it would be in the whole. From octave 2 on they are smoothed
from first layers that are kept, 4/3 of a byte for each pixel of the image; where that is more than
the memory allowed, in a temporary file.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
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
from caloric.theory.gaussians import FloatArray

MEMORY = 500_000_000  # bytes
_PER_PIXEL = 170  # bytes for each of the image's pixels in a tile, its surroundings included
_LEAST = 256  # pixels along a side of a tile: its surroundings would be most of a smaller one
_LARGEST = 8192  # the same; OpenCV's resampling addresses pixels with 16 bits
_MOVES = 12  # pixels that a candidate may move, or its neighbours reach

Read = Callable[[slice, slice], Image32]


@dataclass(frozen=True)
class Tile:
    """A part of the image: rows ``top`` to ``bottom``, columns ``left`` to ``right``."""

    top: int
    bottom: int
    left: int
    right: int
    size: tuple[int, int]

    def owns(self, xy: FloatArray) -> NDArray[np.bool_]:
        """Which places (n, 2) are the tile's: each is exactly one's, also beyond the image."""
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
        """Rows and columns of an octave that hold the tile and a margin of its pixels."""
        ranges = ((self.top, self.bottom, shape[0]), (self.left, self.right, shape[1]))
        rows, columns = (
            slice(max(int(a / step) - margin, 0), min(math.ceil(b / step) + margin, end))
            for a, b, end in ranges
        )
        return rows, columns


def halo(farthest: float) -> int:
    """Pixels of an octave around a tile that are read, ``farthest`` the largest ratio of a sample's
    distance to its smoothing."""
    smoothest = FIRST * 2 ** ((SCALES - 0.5) / SCALES)  # that is read from an octave and no later
    return max(math.ceil(farthest * smoothest) + 3, _MOVES)


def spaces(
    read: Read,
    size: tuple[int, int],
    around: int,
    memory: int = MEMORY,
    wanted: Callable[[Tile], bool] = lambda tile: True,
) -> Iterator[tuple[Tile, ScaleSpace]]:
    """The scale space of an image of ``size`` (h, w), as tiles that need about ``memory`` bytes.

    ``read`` gives the grey pixels of rows and columns; ``around`` is the halo. Tiles that are not
    ``wanted`` are left out.
    """
    h, w = size
    tiles = _cut(size, memory)
    if len(tiles) == 1:
        yield tiles[0], build(read(slice(0, h), slice(0, w)))
        return
    with kept_up_to(memory):
        yield from _windows(read, tiles, around, memory, wanted)


def _windows(
    read: Read, tiles: list[Tile], around: int, memory: int, wanted: Callable[[Tile], bool]
) -> Iterator[tuple[Tile, ScaleSpace]]:
    """Of each tile the windows on all octaves."""
    bases = _bases(read, tiles, memory)
    last = octave(Base(np.ascontiguousarray(bases[-1]), FIRST, float(2 ** len(bases))))
    for tile in filter(wanted, tiles):
        windows = _finest(read, tile, around)
        for i, base in enumerate(bases[:-1]):
            step, margin = 2.0 ** (i + 1), reach(FIRST) + around
            rows, columns = tile.window(step, margin, base.shape)
            windows.append(Base(base[rows, columns], FIRST, step, (columns.start, rows.start)))
        # What is larger than the last octave is read from it at any distance: it is whole.
        # Nothing here refers to it when the next one is made: its memory is used again.
        yield tile, ScaleSpace((*octaves(windows), last), tile.size)


def _cut(size: tuple[int, int], memory: int) -> list[Tile]:
    """Equal tiles, as few as the memory allows."""
    h, w = size
    # One so thin that it has no octave 2 is whole: of its last octave everything may be read.
    fits = h * w * _PER_PIXEL <= memory and max(h, w) <= _LARGEST
    if fits or (min(h, w) + 1) // 2 < SMALLEST:
        return [Tile(0, h, 0, w, size)]
    side = min(max(_LEAST, int(math.sqrt(memory / _PER_PIXEL))), _LARGEST)
    # Even edges: every second pixel of a tile is then every second one of the image.
    rows, columns = (
        [2 * round(i * n / 2 / math.ceil(n / side)) for i in range(math.ceil(n / side))] + [n]
        for n in size
    )
    return [
        Tile(top, bottom, left, right, size)
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
    ]


def _finest(read: Read, tile: Tile, around: int) -> list[Base]:
    """Of octaves 0 and 1, which are made from the image itself."""
    rows, columns = tile.window(1.0, reach(SHARP) + around, tile.size)
    grey = read(rows, columns)
    # Two pixels of octave 0 for each, and one more for the interpolation between them.
    margin = (reach(2 * CAMERA) + around) // 2 + 2
    near = tile.window(1.0, margin, tile.size)
    top, left = near[0].start - rows.start, near[1].start - columns.start
    part = grey[top : near[0].stop - rows.start, left : near[1].stop - columns.start]
    return [
        enlarged(part, (near[1].start, near[0].start)),
        Base(grey, SHARP, 1.0, (columns.start, rows.start)),
    ]


def _bases(read: Read, tiles: list[Tile], memory: int) -> list[Image32]:
    """The first layers of octaves 2, 3 ... of the whole image."""
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
    """Every second pixel of layer SCALES of an octave that starts from smoothing ``first``."""
    shape = ((size[0] + 1) // 2, (size[1] + 1) // 2)
    result = _room(shape, memory)
    for tile in tiles:
        rows, columns = tile.window(1.0, reach(first, SCALES), size)
        layers = octave(Base(read(rows, columns), first, 1.0, last=SCALES)).pixels
        top, left = tile.top - rows.start, tile.left - columns.start
        inner = layers[SCALES, top : tile.bottom - rows.start, left : tile.right - columns.start]
        part = inner[::2, ::2]
        row, column = tile.top // 2, tile.left // 2
        result[row : row + part.shape[0], column : column + part.shape[1]] = part
    return result


def _room(shape: tuple[int, int], memory: int) -> Image32:
    if 4 * shape[0] * shape[1] <= memory:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile() as file:
        try:
            # Room that is promised: writing to a map of a full disk would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
            return np.memmap(file, np.float32, "r+" if file.seek(0, 2) else "w+", shape=shape)
        except OSError as error:
            raise InputError(
                f"no room for {4 * shape[0] * shape[1]:,} bytes in {tempfile.gettempdir()} "
                f"({error.strerror}); set TMPDIR to another folder, or allow more memory"
            ) from None
