"""Exact diffusion over rotation, translation and, if asked for, scale."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from caloric.kernels.base import AngularKernel
from caloric.theory.diffusion import log_scales, rotate
from caloric.theory.gaussians import FloatArray, inner


@dataclass(frozen=True, kw_only=True)
class Similarity(AngularKernel):
    """The diffusion that Lemma 1 approximates, without the approximation (erratum 6)::

        K = k̃_σr(φ − β) ∫ e^s k_σd(y − e^s R_{φ−β} x) k_σs(s) ds

    Turn each pixel about the keypoint until its gradient points along β, then pool it as SIFT does:
    the same cost, no new parameter. σs = 0 leaves scale alone; otherwise the integral over scale is
    summed over ``nodes`` scales, as in ``dsp``.
    """

    name: ClassVar[str] = "similarity"

    sigma_s: float = 0.0
    nodes: int = 257

    def __call__(self, beta: ArrayLike, x: ArrayLike, phi: ArrayLike, y: ArrayLike) -> FloatArray:
        """K(β, x; φ, y)."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        delta = np.asarray(phi, np.float64) - np.asarray(beta, np.float64)
        xx = inner(x, x)
        yy = inner(y, y)
        xy = inner(rotate(x, delta), y)
        variance = self.width(x) ** 2
        pooled = np.zeros(np.broadcast_shapes(xy.shape, yy.shape))
        for scale, weight in zip(*log_scales(self.sigma_s, self.nodes), strict=True):
            squared = np.maximum(yy - 2 * scale * xy + scale**2 * xx, 0)
            pooled += weight * np.exp(squared / (-2 * variance))
        return self.angular(beta, phi) * pooled / (2 * np.pi * variance)
