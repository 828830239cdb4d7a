"""DSP-SIFT without sampling, first closed form: only the inner exponential linearized."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.gaussians import stretched_gaussian
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DspInner(AngularKernel):
    """[e^s k_σd(y − (1+s)x) ⋆ k_σs](0) in closed form (eqs. 4 and 24, Proposition 1)::

        K = k̃_σr(β − φ) e^{σs²/2} N(y; (1 + σs²) x, σd² I + σs² x xᵀ)

    The printed forms are equal to this one but divide by |x|; here x = 0 needs no special case
    (erratum 8). e^s times a Gaussian in s is that Gaussian shifted by σs², so K is a Gaussian
    shifted outwards and stretched along x.
    """

    name: ClassVar[str] = "dsp-inner"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3}

    sigma_s: float

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        variance = self.sigma_s**2
        stretched = stretched_gaussian(y - (1 + variance) * x, x, self.width(x), self.sigma_s)
        return np.asarray(self.angular(beta, phi) * np.exp(variance / 2) * stretched)
