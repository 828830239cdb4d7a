"""DSP-SIFT: SIFT pooled over scale as well, by quadrature."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from caloric.kernels.base import AngularKernel
from caloric.theory.diffusion import log_scales
from caloric.theory.gaussians import FloatArray, gaussian_2d


@dataclass(frozen=True, kw_only=True)
class Dsp(AngularKernel):
    """The diffusion over log-scale that stands behind DSP-SIFT (eq. 22)::

        K = k̃_σr(β − φ) ∫ e^s k_σd(y − e^s x) k_σs(s) ds

    summed over ``nodes`` scales, by default as many as it needs. This integral is what the closed
    forms ``dsp-inner`` and ``dsp-both`` approximate. The printed eq. 3 is another operator, which
    leaves x where it is and has a singularity at y = x (erratum 5).
    """

    name: ClassVar[str] = "dsp"

    sigma_s: float
    nodes: int | None = None

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """K(β, x; φ, y)."""
        width = self.width(x)
        scales, weights = log_scales(self.sigma_s, self.nodes, x, width)
        pooled = sum(
            weight * gaussian_2d(y - scale * x, width)
            for scale, weight in zip(scales, weights, strict=True)
        )
        return np.asarray(self.angular(beta, phi) * pooled)
