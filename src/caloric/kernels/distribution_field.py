"""Distribution fields: histograms of intensity instead of gradient orientation."""

from dataclasses import dataclass
from typing import ClassVar

from caloric.kernels.base import IntensityKernel, Parameters
from caloric.theory.gaussians import gaussian_2d
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DistributionField(IntensityKernel):
    """h_DF (eq. 8), with β the level l and φ the intensity f(y)::

        K = k_σl(l − f(y)) k_σd(y − x)

    A histogram of the intensities around each x, blurred in position and level. It uses no
    gradients and is not robust to changes of illumination.
    """

    name: ClassVar[str] = "distribution-field"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.2, "sigma_l": 0.08}

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(l, x; f, y)."""
        return self.level(beta, phi) * gaussian_2d(y - x, self.width(x))
