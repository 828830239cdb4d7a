"""Domain-size pooling as it is practised, without sampling: the whole patch is rescaled."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from caloric.kernels.base import SeparableKernel
from caloric.theory.gaussians import FloatArray, inner, periodic_gaussian, stretched_gaussian


@dataclass(frozen=True, kw_only=True)
class DspDomain(SeparableKernel):
    """∫ c k_σd(cy − x) N(c; 1, σs²) dc in closed form (not in the paper)::

        K = k̃_σr(β − φ) N(x; y, σd² I + σs² y yᵀ) (σd² + σs² x·y) / (σd² + σs²|y|²)

    DSP-SIFT resamples the patch at several sizes a = 1/c, so that x and σd scale together; the
    paper's diffusion (eq. 22) scales x alone. With a Gaussian on the inverse size the integral is
    ``dsp-both`` with x and y exchanged.
    """

    name: ClassVar[str] = "dsp-domain"

    sigma_s: float

    def __call__(self, beta: ArrayLike, x: ArrayLike, phi: ArrayLike, y: ArrayLike) -> FloatArray:
        """K(β, x; φ, y)."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        angular = periodic_gaussian(
            np.asarray(beta, np.float64) - np.asarray(phi, np.float64), self.sigma_r
        )
        width = self.width(x)
        narrow, variance = width**2, self.sigma_s**2
        xy = inner(x, y)
        yy = inner(y, y)
        blob = stretched_gaussian(x - y, y, width, self.sigma_s)
        return angular * blob * (narrow + variance * xy) / (narrow + variance * yy)
