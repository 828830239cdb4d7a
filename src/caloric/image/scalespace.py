"""The Gaussian scale space of an image, for detecting extrema and computing descriptors.

The levels of an octave are a third of an octave apart. Octave 1 has the size of the image. Octave 0
has twice that size, and its smoothing starts at 0.8 pixels. Octaves from 2 on take every second
pixel of the previous one. The pixels of octave 0 are interpolated at ±1/4 pixel from the pixels of
the image, so that all are equally blurred. If the original pixels were kept, every second one would
be sharper, and extrema at the finest scales would be less repeatable.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.runtime import memory, native, threads
from caloric.types import FloatArray

Image32 = NDArray[np.float32]

SCALES = 3
FIRST = 1.6  # smoothing of an octave's first level, in pixels of the octave
CAMERA = 0.5  # assumed smoothing of the input image, in its pixels
# Octave 1 assumes a sharp image, so its variance is 1/4 larger than nominal. Interpolation adds
# 3/16 to that of octave 0, which is not accounted for. With both, consecutive octaves agree, and
# extrema of photographs are slightly more repeatable.
SHARP = 0.0
SMALLEST = 8  # pixels: minimum length of the shorter side of an octave
_FACTORS = tuple((FIRST * 2.0 ** (np.arange(SCALES + 3) / SCALES)).tolist())


@dataclass(frozen=True, eq=False)
class Level:
    """The image smoothed by ``sigma``, or a window of it.

    Pixel (i, j) is at (corner + (j, i)) · ``step`` + ``origin``. The ``corner`` of the window is an
    integer, so that a value read at a position does not depend on the window.
    """

    pixels: Image32
    sigma: float
    step: float
    origin: float
    corner: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class Ladder:
    """The levels from which descriptors are read, a third of an octave apart."""

    levels: tuple[Level, ...]
    size: tuple[int, int]

    def nearest(self, sigma: FloatArray) -> NDArray[np.intp]:
        """Return the index of the level whose smoothing is nearest to each σ, in log scale."""
        first = self.levels[0].sigma
        index = np.rint(SCALES * np.log2(np.maximum(sigma, 1e-12) / first))
        return np.asarray(np.clip(index, 0, len(self.levels) - 1), np.intp)


@dataclass(frozen=True, eq=False)
class Octave:
    """``pixels`` (SCALES + 3, h, w): layer i has a smoothing of 1.6 · 2^(i/3) of its pixels."""

    pixels: NDArray[np.float32]
    step: float
    corner: tuple[int, int] = (0, 0)

    @property
    def origin(self) -> float:
        """The image coordinate of the first pixel of the whole octave."""
        return -0.25 if self.step < 1 else 0.0

    @property
    def levels(self) -> tuple[Level, ...]:
        """The layers as :class:`Level` objects."""
        layers = zip(self.pixels, _FACTORS[: len(self.pixels)], strict=True)
        grid = self.step, self.origin, self.corner
        return tuple(Level(p, f * self.step, *grid) for p, f in layers)


@dataclass(frozen=True, eq=False)
class ScaleSpace:
    """The octaves of an image of ``size`` (h, w), each at half the resolution of the previous."""

    octaves: tuple[Octave, ...]
    size: tuple[int, int]

    def ladder(self) -> Ladder:
        """Return the levels, each from the first octave that has its smoothing."""
        steps = [level for octave in self.octaves for level in octave.levels[:SCALES]]
        return Ladder((*steps, *self.octaves[-1].levels[SCALES:]), self.size)


def octave_and_layer(sigma: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the octave (0 is the enlarged image) and the layer (1 to 3) of frames of scale σ."""
    steps = np.asarray(np.rint(SCALES * np.log2(2 / FIRST * sigma)), np.int64)
    octave = np.maximum((steps - 1) // SCALES, 0)
    return octave, steps - SCALES * octave


@lru_cache(maxsize=64)
def taps(sigma: float) -> Image32:
    """Return the taps of a Gaussian filter of radius 4σ; one tap for σ = 0."""
    radius = (round(8 * sigma + 1) | 1) // 2 if sigma else 0
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / (sigma or 1)) ** 2)
    result = np.asarray(weights / weights.sum(), np.float32)
    result.setflags(write=False)
    return result


def _blur(pixels: Image32, sigma: float, result: Image32) -> None:
    """Write the pixels, smoothed by ``sigma`` with mirrored borders, to ``result``."""
    weights, height = taps(sigma), len(pixels)
    reach, border = len(weights) // 2, cv2.BORDER_REFLECT_101

    def strip(rows: range) -> None:
        # Include the rows around the strip that the filter reads.
        top, bottom = max(rows.start - reach, 0), min(rows.stop + reach, height)
        if len(rows) == height:
            cv2.sepFilter2D(pixels, -1, weights, weights, dst=result, borderType=border)
            return
        part = memory.workspace((bottom - top) * pixels.shape[1]).reshape(bottom - top, -1)
        cv2.sepFilter2D(pixels[top:bottom], -1, weights, weights, dst=part, borderType=border)
        result[rows.start : rows.stop] = part[rows.start - top : rows.stop - top]

    threads.each(strip, _shares(height))


def _shares(height: int) -> list[range]:
    """Return one strip of rows per thread; the result does not depend on the strips."""
    return threads.strips(height, max(128, -(-height // threads.count())))


@lru_cache(maxsize=16)
def steps(first: float, last: int = SCALES + 2) -> tuple[float, ...]:
    """Return the σ of the blur from each layer to the next, up to ``last``; 0 is a copy."""
    before = (first, *_FACTORS)
    return tuple(
        math.sqrt(max(factor**2 - previous**2, 0.0))
        for previous, factor in zip(before, _FACTORS[: last + 1], strict=False)
    )


def reach(first: float, last: int = SCALES + 2) -> int:
    """Return the distance, in pixels, up to which the last layer of an octave reads its base."""
    return sum(len(taps(sigma)) // 2 for sigma in steps(first, last) if sigma)


@dataclass(frozen=True, eq=False)
class Base:
    """The input of an octave: an image of smoothing ``first``, in pixels of the octave.

    The octave has a pixel size of ``step``, layers up to ``last``, and, if ``enlarged``, twice as
    many rows and columns as the image. ``corner`` is the position of a window in the whole octave.
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
        """The filter taps of each layer."""
        return [taps(sigma) for sigma in steps(self.first, self.last)]


def enlarged(gray: Image32, corner: tuple[int, int] = (0, 0)) -> Base:
    """Return the base of octave 0 of an image, or of a window of it that starts at ``corner``."""
    return Base(gray, 2 * CAMERA, 0.5, (2 * corner[0], 2 * corner[1]), enlarged=True)


def octaves(bases: Sequence[Base]) -> list[Octave]:
    """Return the octaves of independent bases, computed together on all threads."""
    results = []
    for base in bases:
        h, w = base.shape
        layers = memory.workspace((base.last + 1) * h * w).reshape(-1, h, w)
        results.append(Octave(layers, base.step, base.corner))
    core = native.core()
    if core is None:
        for base, result in zip(bases, results, strict=True):
            _smooth(base, result.pixels)
        return results
    tasks = [
        (base, result.pixels, rows)
        for base, result in zip(bases, results, strict=True)
        for rows in _shares(base.shape[0])
    ]

    def strip(task: tuple[Base, NDArray[np.float32], range]) -> None:
        base, layers, rows = task
        core.octave(base.pixels, base.enlarged, layers, base.weights, rows.start, rows.stop)

    threads.each(strip, tasks)
    return results


def octave(base: Base) -> Octave:
    """Return the octave of a single base."""
    return octaves([base])[0]


def _smooth(base: Base, layers: NDArray[np.float32]) -> None:
    """Write the layers of an octave without the compiled core."""
    before = _enlarged(base.pixels) if base.enlarged else base.pixels
    for layer, sigma in zip(layers, steps(base.first, base.last), strict=True):
        if sigma:
            _blur(before, sigma, layer)
        else:
            np.copyto(layer, before)
        before = layer


def _enlarged(pixels: Image32) -> Image32:
    """Return the image (2h, 2w) interpolated at ±1/4 pixel, along rows first, then columns.

    OpenCV's resize is not used because on some processors it rounds differently near row ends.
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


def build(gray: Image32, last: int = SCALES + 2) -> ScaleSpace:
    """Return the scale space of a grayscale float32 image (h, w) in [0, 1].

    All octaves but the coarsest have layers up to ``last``; its ladder needs those up to SCALES.
    """

    def limited(base: Base) -> Base:
        is_coarsest = (min(base.shape) + 1) // 2 < SMALLEST
        return base if is_coarsest else replace(base, last=last)

    bases = [limited(enlarged(gray))]
    if min(gray.shape) >= SMALLEST:
        bases.append(limited(Base(gray, SHARP, 1.0)))
    results = octaves(bases)
    while results[-1].step >= 1:
        half = results[-1].pixels[SCALES, ::2, ::2]
        if min(half.shape) < SMALLEST:
            break
        base = Base(np.ascontiguousarray(half), FIRST, 2 * results[-1].step)
        results.append(octave(limited(base)))
    return ScaleSpace(tuple(results), (gray.shape[0], gray.shape[1]))
