"""Where the density of a patch is measured: the points y and the area each stands for."""

from dataclasses import dataclass

import numpy as np

from caloric.theory.gaussians import FloatArray


@dataclass(frozen=True)
class SquarePatch:
    """size × size pixels that tile [-1, 1]²; y is a pixel's centre, row by row."""

    size: int

    @property
    def pitch(self) -> float:
        """The side of a pixel."""
        return 2 / self.size

    def points(self) -> FloatArray:
        """y, shape (size², 2), as (x, y)."""
        line = (np.arange(self.size) + 0.5) * self.pitch - 1
        return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)

    def area(self) -> float:
        """The area of a pixel: what turns a sum over pixels into an integral over y."""
        return self.pitch**2
