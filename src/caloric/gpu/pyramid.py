"""Types of all backends: the memory layout of scale spaces, extrema, and measurements.

A row of a tensor (b, total) holds the scale space of one image: six layers per octave, octave after
octave. A level is an offset, a height and a width, so that one kernel can read all levels.

Images of different sizes can share a layout that is larger than all of them: each is at the top
left of the layout's image, and Triton kernels take the sizes of the images as data.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from caloric.descriptor.sampling import Sampling
from caloric.gpu.caches import cached
from caloric.image import scalespace
from caloric.image.scalespace import FIRST, SCALES, SMALLEST
from caloric.kernels import Kernel

LAYERS = SCALES + 3


@dataclass(frozen=True)
class Octave:
    """The six layers (6, h, w) of an octave: their offset in a row, and their pixel grid.

    Pixel i is at ``step`` · i + ``origin`` in the image. ``first`` is the smoothing of the base of
    the octave, in its pixels.
    """

    offset: int
    height: int
    width: int
    step: float
    origin: float
    first: float

    @property
    def count(self) -> int:
        """The number of elements of the octave."""
        return LAYERS * self.height * self.width


@dataclass(frozen=True)
class Pyramid:
    """The octaves of an image of ``size`` (h, w); the first is of the image enlarged by 2."""

    size: tuple[int, int]
    octaves: tuple[Octave, ...]

    @property
    def total(self) -> int:
        """The number of elements of all octaves."""
        last = self.octaves[-1]
        return last.offset + last.count

    @property
    def levels(self) -> list[tuple[int, Octave]]:
        """Offset and octave of each level, as in :class:`caloric.image.scalespace.Ladder`."""
        levels = []
        for octave in self.octaves:
            layers = LAYERS if octave is self.octaves[-1] else SCALES
            plane = octave.height * octave.width
            levels += [(octave.offset + i * plane, octave) for i in range(layers)]
        return levels


@lru_cache(maxsize=256)
def pyramid(height: int, width: int, count: int | None = None) -> Pyramid:
    """Return the pyramid of images (height, width), with ``count`` octaves if it is given."""
    octaves = [Octave(0, 2 * height, 2 * width, 0.5, -0.25, 2 * scalespace.CAMERA)]
    h, w, first, step = height, width, scalespace.SHARP, 1.0
    while min(h, w) >= SMALLEST and len(octaves) != count:
        last = octaves[-1]
        octaves.append(Octave(last.offset + last.count, h, w, step, 0.0, first))
        h, w, first, step = (h + 1) // 2, (w + 1) // 2, FIRST, 2 * step
    return Pyramid((height, width), tuple(octaves))


@cached
def full_sizes(layout: Pyramid, count: int, device: Any) -> Tensor:
    """Return the sizes (count, 2) of images that are as large as their layout (cached)."""
    return torch.tensor([layout.size] * count, dtype=torch.int32, device=device)


@dataclass(frozen=True, eq=False)
class Peaks:
    """Up to c extrema per image.

    ``keys`` (b, c) are int64, 0 for an empty slot; ``positions`` (b, c, 3) are x, y and σ in pixels
    of the image, in float64; ``counts`` (b,) are the numbers of candidates.
    """

    keys: Tensor
    positions: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Measurement:
    """What is measured around a frame: angular harmonics up to ``order`` at each sample.

    ``power`` is the exponent of the gradient magnitude.
    """

    sampling: Sampling
    kernel: Kernel
    power: float
    order: int


@dataclass(frozen=True)
class FrameBlock:
    """Consecutive frames of a batch: frame i is in image (``start`` + i) // ``per_image``."""

    start: int
    per_image: int
