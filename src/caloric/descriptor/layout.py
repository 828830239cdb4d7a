"""Layouts: the positions x and the directions (or levels) β of the entries of a descriptor.

Entry ``position · directions + direction`` has this position and direction.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from caloric.errors import InputError
from caloric.kernels import Kernel
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """Base class of layouts: equally spaced directions at the positions that a subclass defines.

    K is evaluated at each β. If it is narrow compared to the spacing of the β, gradients between
    two of them would be missed. K is then blurred over β by a Gaussian to a minimum width, a
    fraction of the spacing: 1/2 with ``average=True``, so that any angle has at least .92 of the
    largest weight; 3/8 with ``"auto"`` (.7), which leaves the usual widths unchanged; 0, no blur,
    with ``False``.
    """

    directions: int = 8
    average: bool | Literal["auto"] = "auto"

    @abstractmethod
    def positions(self) -> FloatArray:
        """Return the positions x (n, 2) in patch coordinates, [-1, 1] on each axis."""

    @property
    def dimension(self) -> int:
        """The number of entries."""
        return len(self.positions()) * self.directions

    def bins(self, kernel: Kernel) -> FloatArray:
        """Return β (n,): 2πk/n for orientations, (k + 1/2)/n for intensities."""
        k = np.arange(self.directions)
        if kernel.feature == "orientation":
            return 2 * np.pi * k / self.directions
        return (k + 0.5) / self.directions

    def blur(self, kernel: Kernel) -> float:
        """Return the width of the blur over β, or 0."""
        span = 2 * np.pi if kernel.feature == "orientation" else 1.0
        spacing = span / self.directions
        fraction = {"auto": 0.375, True: 0.5, False: 0.0}[self.average]
        missing = (fraction * spacing) ** 2 - kernel.bandwidth**2
        return float(np.sqrt(max(missing, 0)))


def _check_count(value: object, what: str) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"{what} must be a positive integer, got {value!r}")


def _check(layout: Layout) -> None:
    _check_count(layout.directions, "layout: directions")
    if layout.average not in (True, False, "auto"):
        raise InputError(f"layout: average must be True, False or 'auto', got {layout.average!r}")


@dataclass(frozen=True, kw_only=True)
class Grid(Layout):
    """The centers of ``cells`` × ``cells`` squares that tile the patch, as in SIFT (4 × 4 × 8)."""

    cells: int = 4
    extent: float = 1.0

    def __post_init__(self) -> None:
        """Check that counts are positive integers and the extent is positive."""
        _check(self)
        _check_count(self.cells, "grid: cells")
        if not (isinstance(self.extent, numbers.Real) and 0 < self.extent < np.inf):
            raise InputError(f"grid: extent must be a positive number, got {self.extent!r}")

    def positions(self) -> FloatArray:
        """Return x (cells², 2) row by row, top-left first."""
        line = self.extent * ((2 * np.arange(self.cells) + 1) / self.cells - 1)
        return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class Rings(Layout):
    """A log-polar layout: rings of positions, every other ring rotated by half a step.

    ``angles`` is the number of positions on each ring, or one number per ring; a radius of 0 is a
    single position. The spacing of the rings increases with |x|, as does the width of the diffused
    kernels.
    """

    radii: tuple[float, ...] = (0.0, 0.12, 0.28, 0.55)
    angles: int | tuple[int, ...] = 8

    def __post_init__(self) -> None:
        """Check that counts are positive integers, and radii distinct and not negative."""
        _check(self)
        try:
            radii = tuple(float(r) for r in self.radii)
        except TypeError:
            raise InputError(f"rings: radii must be numbers, got {self.radii!r}") from None
        if not radii or not all(0 <= r < np.inf for r in radii) or len(set(radii)) < len(radii):
            raise InputError(
                f"rings: radii must be distinct numbers, 0 or more, got {self.radii!r}"
            )
        given = self.angles
        angles = tuple(given) if isinstance(given, Sequence) else (given,) * len(radii)
        for count in angles:
            _check_count(count, "rings: angles")
        if len(angles) != len(radii):
            raise InputError(f"rings: {len(radii)} radii but {len(angles)} values in angles")
        object.__setattr__(self, "radii", radii)
        object.__setattr__(self, "angles", angles)

    def positions(self) -> FloatArray:
        """Return x (n, 2) ring by ring in the order of radii, each from +x towards +y."""
        rings = []
        for number, (radius, count) in enumerate(zip(self.radii, self._counts, strict=True)):
            if radius == 0:
                rings.append(np.zeros((1, 2)))
                continue
            angle = 2 * np.pi * (np.arange(count) + 0.5 * (number % 2)) / count
            rings.append(radius * np.stack([np.cos(angle), np.sin(angle)], -1))
        return np.concatenate(rings)

    @property
    def _counts(self) -> tuple[int, ...]:
        assert isinstance(self.angles, tuple)
        return self.angles
