"""Distribution fields diffused over affine transformations (future work in the paper)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from caloric.kernels.base import IntensityKernel, Parameters
from caloric.theory.gaussians import gaussian_2d
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DistributionFieldHeat(IntensityKernel):
    """Eq. 8 diffused over τ(x) = Ax + b, exactly (not in the paper)::

        K = k_σl(l − f(y)) k_{√(σd² + σa²|x|²)}(y − x)

    An intensity does not rotate with the image, so only the position is blurred: Ax + b is normal
    with mean x and variance σd² + σa²|x|². The blur increases with eccentricity.
    """

    name: ClassVar[str] = "distribution-field-heat"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.2, "sigma_a": 0.3, "sigma_l": 0.08}

    sigma_a: float

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(l, x; f, y)."""
        width = np.hypot(self.width(x), self.sigma_a * np.hypot(x[..., 0], x[..., 1]))
        return self.level(beta, phi) * gaussian_2d(y - x, width)
