"""One Gaussian scale space of an image: where extrema are looked for, and descriptors read.

Octaves of levels a third of an octave apart. Octave 1 is the image at its own size; octave 0, where
smoothing starts at 0.8 pixels, the image at twice its size; from octave 2 on, every second pixel of
the octave before. Enlarging puts two pixels a quarter to either side of each old one: all new
pixels are then equally blurred, where every second one would be sharp if old pixels were kept, and
extrema at the finest scales repeat better for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.runtime import memory, native, threads
from caloric.theory.gaussians import FloatArray

Image32 = NDArray[np.float32]

SCALES = 3
FIRST = 1.6  # smoothing of an octave's first level, in its own pixels
CAMERA = 0.5  # smoothing that an image is taken to have already, in its pixels
# The image at its own size is taken as sharp: octave 1 is then smoothed by a variance of 1/4 more
# than it says. Enlarging adds 3/16 to octave 0 that nothing accounts for either, and with both the
# octaves go on where the one before ends; on photographs extrema repeat a little better for it.
SHARP = 0.0
SMALLEST = 8  # pixels along the shorter side of an octave
_FACTORS = tuple((FIRST * 2.0 ** (np.arange(SCALES + 3) / SCALES)).tolist())


@dataclass(frozen=True, eq=False)
class Level:
    """The image smoothed by ``sigma``, or a window on that.

    Pixel (i, j) lies at (corner + (j, i)) · ``step`` + ``origin``, ``corner`` where the window is:
    whole numbers, so that what is read at a place is the same in any window.
    """

    pixels: Image32
    sigma: float
    step: float
    origin: float
    corner: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Ladder:
    """One level every third of an octave: what descriptors are read from."""

    levels: tuple[Level, ...]
    size: tuple[int, int]

    def nearest(self, sigma: FloatArray) -> NDArray[np.intp]:
        """Which level is nearest in log-smoothing to each σ (pixels)."""
        first = self.levels[0].sigma
        wanted = np.rint(SCALES * np.log2(np.maximum(sigma, 1e-12) / first))
        return np.asarray(np.clip(wanted, 0, len(self.levels) - 1), np.intp)


@dataclass(frozen=True, eq=False)
class Octave:
    """``pixels`` (SCALES + 3, h, w): layer i has smoothing 1.6 · 2^(i/3) of its own pixels."""

    pixels: NDArray[np.float32]
    step: float
    corner: tuple[int, int] = (0, 0)

    @property
    def origin(self) -> float:
        """Where the first pixel of the whole octave lies; the enlarged image's lie in between."""
        return -0.25 if self.step < 1 else 0.0

    @property
    def levels(self) -> tuple[Level, ...]:
        """The layers one by one."""
        layers = zip(self.pixels, _FACTORS, strict=True)
        where = self.step, self.origin, self.corner
        return tuple(Level(p, f * self.step, *where) for p, f in layers)


@dataclass(frozen=True, eq=False)
class ScaleSpace:
    """The octaves of an image of ``size`` (h, w), each at half the resolution of the one before."""

    octaves: tuple[Octave, ...]
    size: tuple[int, int]

    def ladder(self) -> Ladder:
        """Each smoothing from the first octave that has it."""
        steps = [level for octave in self.octaves for level in octave.levels[:SCALES]]
        return Ladder((*steps, *self.octaves[-1].levels[SCALES:]), self.size)


def octave_and_layer(sigma: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which octave a frame of σ is from, 0 for the enlarged image, and which layer, 1 to 3."""
    steps = np.asarray(np.rint(SCALES * np.log2(2 / FIRST * sigma)), np.int64)
    octave = np.maximum((steps - 1) // SCALES, 0)
    return octave, steps - SCALES * octave


@lru_cache(maxsize=64)
def taps(sigma: float) -> Image32:
    """A Gaussian at whole pixels, to 4σ each way, of sum 1; an odd number of taps, 1 for σ = 0."""
    radius = (round(8 * sigma + 1) | 1) // 2 if sigma else 0
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / (sigma or 1)) ** 2)
    result = np.asarray(weights / weights.sum(), np.float32)
    result.setflags(write=False)
    return result


def _blur(pixels: Image32, sigma: float, result: Image32) -> None:
    """Smoothed further; at the rim the image is its own mirror."""
    weights, height = taps(sigma), len(pixels)
    reach, border = len(weights) // 2, cv2.BORDER_REFLECT_101

    def strip(rows: range) -> None:
        # With the rows around it that it needs; at the rim there are none.
        top, bottom = max(rows.start - reach, 0), min(rows.stop + reach, height)
        if len(rows) == height:
            cv2.sepFilter2D(pixels, -1, weights, weights, dst=result, borderType=border)
            return
        part = memory.workspace((bottom - top) * pixels.shape[1]).reshape(bottom - top, -1)
        cv2.sepFilter2D(pixels[top:bottom], -1, weights, weights, dst=part, borderType=border)
        result[rows.start : rows.stop] = part[rows.start - top : rows.stop - top]

    threads.each(strip, _shares(height))


def _shares(height: int) -> list[range]:
    """A strip for each thread: no pixel depends on which strip it is in."""
    return threads.strips(height, max(128, -(-height // threads.count())))


@lru_cache(maxsize=16)
def steps(first: float, last: int = SCALES + 2) -> tuple[float, ...]:
    """By how much each layer up to ``last`` is smoothed from the one before, 0 for not at all."""
    before = (first, *_FACTORS)
    return tuple(
        math.sqrt(max(factor**2 - had**2, 0.0))
        for had, factor in zip(before, _FACTORS[: last + 1], strict=False)
    )


def reach(first: float, last: int = SCALES + 2) -> int:
    """How many pixels away the last layer of an octave still depends on its base."""
    return sum(len(taps(sigma)) // 2 for sigma in steps(first, last) if sigma)


@dataclass(frozen=True, eq=False)
class Base:
    """What an octave is made from: an image of smoothing ``first``, in the octave's pixels.

    The octave has pixels of ``step`` and layers up to ``last``; with ``enlarged`` it has twice as
    many rows and columns. ``corner`` is where the image lies in the octave, if it is a window.
    """

    pixels: Image32
    first: float
    step: float
    corner: tuple[int, int] = (0, 0)
    last: int = SCALES + 2
    enlarged: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the octave."""
        times = 2 if self.enlarged else 1
        return times * self.pixels.shape[0], times * self.pixels.shape[1]

    @property
    def weights(self) -> list[Image32]:
        """The taps of each layer."""
        return [taps(sigma) for sigma in steps(self.first, self.last)]


def enlarged(grey: Image32, corner: tuple[int, int] = (0, 0)) -> Base:
    """Of octave 0 of an image, or of a window on it that begins at ``corner``."""
    return Base(grey, 2 * CAMERA, 0.5, (2 * corner[0], 2 * corner[1]), enlarged=True)


def octaves(bases: Sequence[Base]) -> list[Octave]:
    """Octaves that do not depend on each other, the strips of all of them shared by the threads."""
    made = []
    for base in bases:
        h, w = base.shape
        layers = memory.workspace((base.last + 1) * h * w).reshape(-1, h, w)
        made.append(Octave(layers, base.step, base.corner))
    core = native.core()
    if core is None:
        for base, result in zip(bases, made, strict=True):
            _smooth(base, result.pixels)
        return made
    work = [
        (base, result.pixels, rows)
        for base, result in zip(bases, made, strict=True)
        for rows in _shares(base.shape[0])
    ]

    def strip(one: tuple[Base, NDArray[np.float32], range]) -> None:
        base, layers, rows = one
        core.octave(base.pixels, base.enlarged, layers, base.weights, rows.start, rows.stop)

    threads.each(strip, work)
    return made


def octave(base: Base) -> Octave:
    """A single one."""
    return octaves([base])[0]


def _smooth(base: Base, layers: NDArray[np.float32]) -> None:
    """The layers of an octave, without the core."""
    before = _enlarged(base.pixels) if base.enlarged else base.pixels
    for layer, sigma in zip(layers, steps(base.first, base.last), strict=True):
        if sigma:
            _blur(before, sigma, layer)
        else:
            np.copyto(layer, before)
        before = layer


def _enlarged(pixels: Image32) -> Image32:
    """Twice the size, two pixels a quarter to either side of each old one: across, then down.

    OpenCV has it too, but on some processors rounds pixels differently near the end of a row.
    """
    h, w = pixels.shape
    result = memory.workspace(4 * h * w).reshape(2 * h, 2 * w)

    def double(lines: Image32, target: Image32) -> None:
        quarter = np.diff(lines, axis=0)
        quarter *= np.float32(0.25)
        target[0], target[-1] = lines[0], lines[-1]
        np.add(lines[:-1], quarter, out=target[1:-1:2])
        np.subtract(lines[1:], quarter, out=target[2::2])

    def strip(rows: range) -> None:
        top, bottom = max(rows.start - 1, 0), min(rows.stop + 1, h)
        wide = np.empty((bottom - top, 2 * w), np.float32)
        double(pixels[top:bottom].T, wide.T)
        part = np.empty((2 * (bottom - top), 2 * w), np.float32)
        double(wide, part)
        result[2 * rows.start : 2 * rows.stop] = part[2 * (rows.start - top) :][: 2 * len(rows)]

    threads.each(strip, threads.strips(h))
    return result


def build(grey: Image32) -> ScaleSpace:
    """The scale space of a grey float32 image (h, w) with values 0 to 1."""
    bases = [enlarged(grey)]
    if min(grey.shape) >= SMALLEST:
        bases.append(Base(grey, SHARP, 1.0))
    made = octaves(bases)
    while made[-1].step >= 1:
        half = made[-1].pixels[SCALES, ::2, ::2]
        if min(half.shape) < SMALLEST:
            break
        made.append(octave(Base(np.ascontiguousarray(half), FIRST, 2 * made[-1].step)))
    return ScaleSpace(tuple(made), (grey.shape[0], grey.shape[1]))
