"""One Gaussian scale space of an image: where extrema are looked for, and descriptors read.

Octaves of levels a third of an octave apart. The first octave is the image at twice its size, so
that smoothing starts at 0.8 pixels; pixel i of an octave lies at i · step + offset in the image.
Enlarging puts two pixels a quarter to either side of each old one: all new pixels are then equally
blurred, where every second one would be sharp if old pixels were kept, and extrema at the finest
scales repeat better for it. Shrinking takes every second pixel and keeps the offset.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.theory.gaussians import FloatArray

Image32 = NDArray[np.float32]

SCALES = 3
FIRST = 1.6  # smoothing of an octave's first level, in its own pixels
CAMERA = 0.5  # smoothing that an image is taken to have already, in its pixels
# OpenCV's resampling addresses pixels with 16 bits; such an image starts at its own size.
WIDEST = 32766


@dataclass(frozen=True, eq=False)
class Level:
    """The image smoothed by ``sigma``; pixel i lies at i · ``step`` + ``offset``. In pixels."""

    pixels: Image32
    sigma: float
    step: float
    offset: float

    @cached_property
    def gradient(self) -> Image32:
        """(h, w, 2): ∂f/∂x and ∂f/∂y per pixel of the image, central differences."""
        scale = 0.5 / self.step
        dx = cv2.Sobel(self.pixels, cv2.CV_32F, 1, 0, ksize=1, scale=scale)
        dy = cv2.Sobel(self.pixels, cv2.CV_32F, 0, 1, ksize=1, scale=scale)
        return np.asarray(cv2.merge([dx, dy]), np.float32)


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
class ScaleSpace:
    """``octaves[o][i]`` has smoothing 1.6 · 2^(i/3) in pixels of octave o; i runs to SCALES + 2."""

    octaves: tuple[tuple[Level, ...], ...]
    size: tuple[int, int]

    def ladder(self) -> Ladder:
        """Each smoothing from the first octave that has it: half the memory of the whole."""
        steps = [level for octave in self.octaves for level in octave[:SCALES]]
        return Ladder((*steps, *self.octaves[-1][SCALES:]), self.size)


def octave_and_layer(sigma: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which octave a frame of σ is from, 0 for the enlarged image, and which layer, 1 to 3."""
    steps = np.asarray(np.rint(SCALES * np.log2(2 / FIRST * sigma)), np.int64)
    octave = np.maximum((steps - 1) // SCALES, 0)
    return octave, steps - SCALES * octave


def _blur(pixels: Image32, sigma: float) -> Image32:
    # The default reach of OpenCV for float images, 4σ each way.
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101))


def build(grey: Image32) -> ScaleSpace:
    """The scale space of a grey float32 image (h, w) with values 0 to 1."""
    h, w = grey.shape
    enlarge = 2 * max(h, w) <= WIDEST
    step, offset = (0.5, -0.25) if enlarge else (1.0, 0.0)
    pixels = grey
    if enlarge:
        pixels = np.asarray(cv2.resize(grey, (2 * w, 2 * h), interpolation=cv2.INTER_LINEAR))
    base = _blur(pixels, np.sqrt(FIRST**2 - (CAMERA / step) ** 2))
    factors = FIRST * 2.0 ** (np.arange(SCALES + 3) / SCALES)
    octaves = []
    while True:
        levels = [base]
        for before, after in pairwise(factors):
            levels.append(_blur(levels[-1], np.sqrt(after**2 - before**2)))
        octaves.append(
            tuple(
                Level(p, f * step, step, offset)
                for p, f in zip(levels, factors.tolist(), strict=True)
            )
        )
        base = np.ascontiguousarray(levels[SCALES][::2, ::2])
        step *= 2
        if min(base.shape) < 8:
            return ScaleSpace(tuple(octaves), (h, w))
