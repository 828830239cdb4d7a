"""Exact diffusion over rotation, translation and, optionally, scale."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.diffusion import log_scales, rotate
from caloric.theory.gaussians import inner
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Similarity(AngularKernel):
    """The diffusion that Lemma 1 approximates, without the approximation (erratum 6)::

        K = k̃_σr(φ − β) ∫ e^s k_σd(y − e^s R_{φ−β} x) k_σs(s) ds

    Each pixel is rotated about the keypoint until its gradient points along β and then pooled as in
    SIFT, at the same cost and without an additional parameter. With σs = 0 there is no diffusion
    over scale; otherwise the integral is a sum over scales, as in ``dsp``.
    """

    name: ClassVar[str] = "similarity"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3, "nodes": 65}

    sigma_s: float = 0.0
    nodes: int | None = None

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        xx, yy, xy = inner(x, x), inner(y, y), inner(rotate(x, phi - beta), y)
        width = self.width(x)
        scales, weights = log_scales(self.sigma_s, self.nodes, x, width)
        pooled = np.zeros(np.broadcast_shapes(xy.shape, yy.shape))
        for scale, weight in zip(scales, weights, strict=True):
            squared = np.maximum(yy - 2 * scale * xy + scale**2 * xx, 0)
            pooled += weight * np.exp(squared / (-2 * width**2))
        return self.angular(beta, phi) * pooled / (2 * np.pi * width**2)
