"""The heat kernel: exact diffusion over all affine transformations."""

from dataclasses import dataclass
from typing import ClassVar

from caloric.kernels.base import Kernel, Parameters
from caloric.theory import diffusion
from caloric.types import FloatArray


@dataclass(frozen=True, kw_only=True)
class Heat(Kernel):
    """h_heat, the diffusion over τ(x) = Ax + b in all six parameters (eq. 6; Lemma 2, corrected)::

        K = e^{−P} w(−u) / (8√2 π^{3/2} σd σa² τ³) · k_{√(σd² + σa²|x|²)}(ĝ·(x − y)⊥)

        τ² = (x·v)²/2σd² + 1/2σa²,   u = [(ĝ·y)(x·v)/σd² + ĝ·v/σa²] / 2τ
        P  = (ĝ·y)²/2σd² + 1/2σa²,   v = v(β),  ĝ = v(φ)

    The single parameter σa, the spread of A, replaces σr and σs of DSP-SIFT; the width in β is σa
    radians. With all constants included, ∫K dy depends only on β − φ and σa. K is
    :func:`caloric.theory.diffusion.affine` at the identity; its numerics are described there.
    """

    name: ClassVar[str] = "heat"
    defaults: ClassVar[Parameters] = {"sigma_d": 0.2, "sigma_a": 0.4}

    sigma_a: float

    @property
    def bandwidth(self) -> float:
        """σa, in radians."""
        return self.sigma_a

    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y)."""
        return diffusion.affine(beta, x, phi, y, sigma_d=self.width(x), sigma_a=self.sigma_a)
