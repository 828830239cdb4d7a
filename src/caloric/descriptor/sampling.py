"""Where the density around a frame is measured: points y, the area of each, and its smoothing.

Coordinates are the descriptor's own; ``half_width`` says how many σ of the frame one unit is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from caloric.theory.gaussians import FloatArray


@dataclass(frozen=True)
class Sampling(ABC):
    """What an engine needs to know of a sampling; the points are a subclass's."""

    @property
    @abstractmethod
    def half_width(self) -> float:
        """σ of the frame per unit of the coordinates."""

    @abstractmethod
    def points(self) -> FloatArray:
        """y, shape (p, 2), as (x, y)."""

    @abstractmethod
    def areas(self) -> FloatArray:
        """The area each point stands for, (p,): what turns a sum into an integral over y."""

    @abstractmethod
    def smoothing(self) -> FloatArray:
        """The smoothing at which each point is read, (p,), in units of the coordinates."""

    def farthest(self) -> float:
        """The largest distance of a point from the centre, in its own smoothing."""
        return _farthest(self)


@dataclass(frozen=True)
class SquarePatch(Sampling):
    """size × size pixels that tile [-1, 1]²; y is a pixel's centre, row by row.

    ``reach`` is the half-width in σ of a frame and ``blur`` the smoothing in σ at which a patch is
    cut from an image; patches that a caller brings are taken as they are.
    """

    size: int
    reach: float = 10.0
    blur: float = 1.0

    @property
    def half_width(self) -> float:
        """The reach."""
        return self.reach

    @property
    def pitch(self) -> float:
        """The side of a pixel."""
        return 2 / self.size

    def points(self) -> FloatArray:
        """y, shape (size², 2), as (x, y)."""
        line = (np.arange(self.size) + 0.5) * self.pitch - 1
        return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)

    def areas(self) -> FloatArray:
        """All the same: the area of a pixel."""
        return np.full(self.size**2, self.pitch**2)

    def smoothing(self) -> FloatArray:
        """All the same."""
        return np.full(self.size**2, self.blur / self.reach)


@dataclass(frozen=True)
class Foveated(Sampling):
    """Rings that grow coarser and smoother outwards, lengths in σ of the frame.

    From ``start`` to ``reach`` the pitch is max(finest, growth · r), both between the rings and
    along them, every other ring is turned by half a step, and a point is read at a smoothing of one
    pitch: no point sees finer detail than its neighbours can follow. A ring has a multiple of four
    points, so that the whole has the symmetries of the square and tables are made in an eighth of
    the time.
    """

    reach: float = 30.0
    finest: float = 0.8
    growth: float = 0.15
    start: float = 0.4

    @property
    def half_width(self) -> float:
        """Coordinates are in σ."""
        return 1.0

    def _rings(self) -> list[tuple[float, float, int]]:
        """(radius, pitch, number of points) of each ring."""
        rings = []
        r = self.start
        while r <= self.reach:
            pitch = max(self.finest, self.growth * r)
            rings.append((r, pitch, 4 * max(1, round(np.pi * r / (2 * pitch)))))
            r += pitch
        return rings

    def points(self) -> FloatArray:
        """y ring by ring from the inside."""
        rings = []
        for number, (r, _, count) in enumerate(self._rings()):
            turn = 2 * np.pi * (np.arange(count) + 0.5 * (number % 2)) / count
            rings.append(r * np.stack([np.cos(turn), np.sin(turn)], -1))
        return np.concatenate(rings)

    def areas(self) -> FloatArray:
        """The annulus of a ring, shared by its points."""
        return np.concatenate(
            [np.full(n, 2 * np.pi * r * pitch / n) for r, pitch, n in self._rings()]
        )

    def smoothing(self) -> FloatArray:
        """One pitch."""
        return np.concatenate([np.full(n, pitch) for _, pitch, n in self._rings()])


@lru_cache(maxsize=16)
def _farthest(sampling: Sampling) -> float:
    return float((np.hypot(*sampling.points().T) / sampling.smoothing()).max())
