"""Domain-size pooling as in DSP-SIFT, in closed form: the whole patch is rescaled."""

from dataclasses import dataclass
from typing import ClassVar

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.diffusion import linear_scale
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class DspDomain(AngularKernel):
    """∫ c k_σd(cy − x) N(c; 1, σs²) dc in closed form (not in the paper)::

        K = k̃_σr(β − φ) N(x; y, σd² I + σs² y yᵀ) (σd² + σs² x·y) / (σd² + σs²|y|²)

    DSP-SIFT resamples the patch at several sizes a = 1/c, so that x and σd scale together, whereas
    the paper's diffusion (eq. 22) scales only x. With a Gaussian distribution of the inverse size,
    the integral is ``dsp-both`` with x and y exchanged.
    """

    name: ClassVar[str] = "dsp-domain"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3}

    sigma_s: float

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        return self.angular(beta, phi) * linear_scale(y, x, self.width(x), self.sigma_s)
