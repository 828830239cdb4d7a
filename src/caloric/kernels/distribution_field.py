"""Distribution fields: the histogram of intensity instead of gradient orientation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from caloric.kernels.base import IntensityKernel
from caloric.theory.gaussians import FloatArray, gaussian_2d


@dataclass(frozen=True, kw_only=True)
class DistributionField(IntensityKernel):
    """h_DF (eq. 8), with β the level l and φ the intensity f(y)::

        K = k_σl(l − f(y)) k_σd(y − x)

    A histogram of intensities around each x, blurred in place and in level. It needs no gradient,
    and does not forgive a change of light.
    """

    name: ClassVar[str] = "distribution-field"

    def __call__(self, beta: ArrayLike, x: ArrayLike, phi: ArrayLike, y: ArrayLike) -> FloatArray:
        """K(l, x; f, y)."""
        offset = np.asarray(y, np.float64) - np.asarray(x, np.float64)
        return self.level(beta, phi) * gaussian_2d(offset, self.width(x))
