"""Samplings: the points y at which the density around a frame is measured.

Coordinates are those of the descriptor; ``half_width`` is the length of one unit in σ of the frame.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from caloric.types import FloatArray


@dataclass(frozen=True)
class Sampling(ABC):
    """Base class of samplings; a subclass defines the points, their areas and their smoothing."""

    @property
    @abstractmethod
    def half_width(self) -> float:
        """The length of one unit of the coordinates, in σ of the frame."""

    @abstractmethod
    def points(self) -> FloatArray:
        """Return y (p, 2), as (x, y)."""

    @abstractmethod
    def areas(self) -> FloatArray:
        """Return the area (p,) that each point represents in an integral over y."""

    @abstractmethod
    def smoothing(self) -> FloatArray:
        """Return the smoothing (p,) at which each point is read, in units of the coordinates."""

    def farthest(self) -> float:
        """Return the largest ratio of a point's distance from the center to its smoothing."""
        return _farthest(self)


@dataclass(frozen=True)
class SquarePatch(Sampling):
    """The centers of ``size`` × ``size`` pixels that tile [-1, 1]², row by row.

    ``reach`` is the half-width in σ of a frame, and ``blur`` the smoothing in σ at which a patch is
    read from an image. Patches passed by the caller are not smoothed.
    """

    size: int
    reach: float = 10.0
    blur: float = 1.0

    @property
    def half_width(self) -> float:
        """The reach, in σ of the frame."""
        return self.reach

    @property
    def pitch(self) -> float:
        """The side of a pixel."""
        return 2 / self.size

    def points(self) -> FloatArray:
        """Return y (size², 2), as (x, y)."""
        line = (np.arange(self.size) + 0.5) * self.pitch - 1
        return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)

    def areas(self) -> FloatArray:
        """Return the area of a pixel for every point, (size²,)."""
        return np.full(self.size**2, self.pitch**2)

    def smoothing(self) -> FloatArray:
        """Return the same smoothing for every point, (size²,)."""
        return np.full(self.size**2, self.blur / self.reach)


@dataclass(frozen=True)
class Foveated(Sampling):
    """Rings whose spacing and smoothing increase outwards, with lengths in σ of the frame.

    From ``start`` to ``reach`` the pitch is max(finest, growth · r), both between the rings and
    along them. Every other ring is rotated by half a step. The smoothing of a point is one pitch,
    which prevents aliasing. The number of points of a ring is a multiple of four, so that the
    sampling has the symmetries of the square and computing a table takes an eighth of the time.
    """

    reach: float = 30.0
    finest: float = 0.8
    growth: float = 0.15
    start: float = 0.4

    @property
    def half_width(self) -> float:
        """1, because coordinates are in σ of the frame."""
        return 1.0

    def _rings(self) -> list[tuple[float, float, int]]:
        """Return (radius, pitch, number of points) of each ring."""
        rings = []
        r = self.start
        while r <= self.reach:
            pitch = max(self.finest, self.growth * r)
            rings.append((r, pitch, 4 * max(1, round(np.pi * r / (2 * pitch)))))
            r += pitch
        return rings

    def points(self) -> FloatArray:
        """Return y (p, 2) ring by ring, the innermost first."""
        rings = []
        for number, (r, _, count) in enumerate(self._rings()):
            angle = 2 * np.pi * (np.arange(count) + 0.5 * (number % 2)) / count
            rings.append(r * np.stack([np.cos(angle), np.sin(angle)], -1))
        return np.concatenate(rings)

    def areas(self) -> FloatArray:
        """Return the area of each ring divided by its number of points, (p,)."""
        return np.concatenate(
            [np.full(n, 2 * np.pi * r * pitch / n) for r, pitch, n in self._rings()]
        )

    def smoothing(self) -> FloatArray:
        """Return the pitch of the ring of each point, (p,)."""
        return np.concatenate([np.full(n, pitch) for _, pitch, n in self._rings()])


@lru_cache(maxsize=16)
def _farthest(sampling: Sampling) -> float:
    return float((np.hypot(*sampling.points().T) / sampling.smoothing()).max())
