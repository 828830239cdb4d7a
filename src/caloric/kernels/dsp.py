"""DSP-SIFT: SIFT pooled over scale by quadrature."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.diffusion import log_scales
from caloric.theory.gaussians import gaussian_2d
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Dsp(AngularKernel):
    """The diffusion over log-scale that underlies DSP-SIFT (eq. 22)::

        K = k̃_σr(β − φ) ∫ e^s k_σd(y − e^s x) k_σs(s) ds

    The integral is a sum over ``nodes`` scales, by default as many as accuracy requires. The closed
    forms ``dsp-inner`` and ``dsp-both`` approximate it. The printed eq. 3 is a different operator,
    which does not scale x and is singular at y = x (erratum 5).
    """

    name: ClassVar[str] = "dsp"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3, "nodes": 65}

    sigma_s: float
    nodes: int | None = None

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        width = self.width(x)
        scales, weights = log_scales(self.sigma_s, self.nodes, x, width)
        pooled = sum(
            weight * gaussian_2d(y - scale * x, width)
            for scale, weight in zip(scales, weights, strict=True)
        )
        return np.asarray(self.angular(beta, phi) * pooled)
