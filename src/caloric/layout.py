"""Where a descriptor is sampled: the places x and the directions (or levels) β of its entries.

Entries are ordered by place, and within a place by β: entry = place · directions + direction.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from caloric.errors import InputError
from caloric.kernels import Kernel
from caloric.theory.gaussians import FloatArray


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """The places are a subclass's; the directions are equally spaced.

    K is evaluated at each β. When its width in β is small against the spacing of the β, a gradient
    between two of them would be seen by neither: ``average`` blurs K over β by a Gaussian of half
    the spacing. ``"auto"`` does so when the width is below a quarter of the spacing, where less
    than a third of the gradient is left at the worst angle.
    """

    directions: int = 8
    average: bool | Literal["auto"] = "auto"

    @abstractmethod
    def places(self) -> FloatArray:
        """x, shape (n, 2), in the coordinates of the patch: [-1, 1] each way."""

    @property
    def dimension(self) -> int:
        """The number of entries."""
        return len(self.places()) * self.directions

    def bins(self, kernel: Kernel) -> FloatArray:
        """β: 2πk/n for orientations, the centres of n equal parts of [0, 1] for intensities."""
        k = np.arange(self.directions)
        if kernel.feature == "orientation":
            return 2 * np.pi * k / self.directions
        return (k + 0.5) / self.directions

    def blur(self, kernel: Kernel) -> float:
        """The width of the blur over β, 0 for none."""
        span = 2 * np.pi if kernel.feature == "orientation" else 1.0
        spacing = span / self.directions
        averaged = kernel.bandwidth < spacing / 4 if self.average == "auto" else self.average
        return spacing / 2 if averaged else 0.0


@dataclass(frozen=True, kw_only=True)
class Grid(Layout):
    """The centres of cells × cells squares that tile the patch: 4 × 4 × 8 is SIFT's 128."""

    cells: int = 4
    extent: float = 1.0

    def __post_init__(self) -> None:
        """Counts are positive."""
        if self.cells < 1 or self.directions < 1:
            raise InputError("grid: cells and directions must be 1 or more")

    def places(self) -> FloatArray:
        """x row by row, top-left first."""
        line = self.extent * ((2 * np.arange(self.cells) + 1) / self.cells - 1)
        return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class Rings(Layout):
    """Log-polar: ``angles`` places on each ring, every other ring turned by half a step.

    A radius of 0 is one place, the centre. The diffused kernels widen with |x|, and rings that
    spread outwards match that.
    """

    radii: tuple[float, ...] = (0.0, 0.12, 0.28, 0.55)
    angles: int = 8

    def __post_init__(self) -> None:
        """Counts are positive, radii are not negative."""
        if self.angles < 1 or self.directions < 1:
            raise InputError("rings: angles and directions must be 1 or more")
        if len(self.radii) == 0 or min(self.radii) < 0:
            raise InputError("rings: radii must be one or more numbers, 0 or larger")

    def places(self) -> FloatArray:
        """x ring by ring from the first radius, anticlockwise in (x, y) from the +x axis."""
        rings = []
        for number, radius in enumerate(self.radii):
            if radius == 0:
                rings.append(np.zeros((1, 2)))
                continue
            turn = 2 * np.pi * (np.arange(self.angles) + 0.5 * (number % 2)) / self.angles
            rings.append(radius * np.stack([np.cos(turn), np.sin(turn)], -1))
        return np.concatenate(rings)
