"""SIFT: diffusion over translation and, approximately, rotation."""

from dataclasses import dataclass
from typing import ClassVar

from caloric.kernels.base import AngularKernel, Parameters
from caloric.theory.gaussians import gaussian_2d
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Sift(AngularKernel):
    """Continuous SIFT (eq. 2)::

        K = k̃_σr(β − φ) k_σd(y − x)

    K pools over displacement and angle. It is the diffusion of the matching energy over translation
    and rotation if the rotation of x is neglected (Lemma 1); ``similarity`` does not neglect it.
    """

    name: ClassVar[str] = "sift"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.2, "sigma_r": 0.4}

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        return self.angular(beta, phi) * gaussian_2d(y - x, self.width(x))
