"""DSP-SIFT without sampling, second closed form: both exponentials linearized."""

from dataclasses import dataclass
from typing import ClassVar

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.diffusion import linear_scale
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DspBoth(AngularKernel):
    """[(1+s) k_σd(y − (1+s)x) ⋆ k_σs](0) in closed form (eqs. 5 and 25 to 30, corrected)::

        K = k̃_σr(β − φ) N(y; x, σd² I + σs² x xᵀ) (σd² + σs² x·y) / (σd² + σs²|x|²)

    The paper prints σs instead of σs² in the numerator (erratum 4); its introduction also has an
    incorrect sign, |x + y|, and a second k_σd (erratum 3). K is the exact diffusion over a scale a
    that enters linearly, a ~ N(1, σs²), including negative a: it is slightly negative for
    x·y < −σd²/σs².
    """

    name: ClassVar[str] = "dsp-both"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3}

    sigma_s: float

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        return self.angular(beta, phi) * linear_scale(x, y, self.width(x), self.sigma_s)
