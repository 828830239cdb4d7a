"""The base classes of kernels: checked parameters and a formula K(β, x; φ, y)."""

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from caloric.errors import InputError
from caloric.theory.gaussians import gaussian, periodic_gaussian
from caloric.types import FloatArray

Feature = Literal["orientation", "intensity"]
Parameters = Mapping[str, float]
_MAX_SIGMA_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """A kernel K(β, x; φ, y): the weight of a pixel (φ, y) in the descriptor entry (β, x).

    For orientation kernels φ is the angle of the gradient at y and β a direction, both in radians,
    and K is multiplied by |∇f(y)|. For distribution fields φ is the intensity f(y) and β a level.
    Lengths are in the units of x and y.

    ``growth`` increases σd with eccentricity, to hypot(σd, growth·|x|); 0 keeps it constant.
    """

    name: ClassVar[str]
    defaults: ClassVar[Parameters]
    """The parameters of the built-in descriptor of the same name, with lengths in half-widths of
    the patch. Widths are about one grid spacing; none was tuned on a benchmark."""
    feature: ClassVar[Feature] = "orientation"
    depends_on_difference: ClassVar[bool] = False
    """Whether K depends on β and φ only through φ − β, so that its table needs only one β."""

    sigma_d: float
    growth: float = 0.0

    def __post_init__(self) -> None:
        """Check that every parameter is a finite number, positive unless its default is 0 (off)."""
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if field.default is None:
                if value is None:
                    continue
                if not number or not isinstance(value, numbers.Integral) or value < 1:
                    raise InputError(
                        f"{self.name}: {field.name} must be a positive integer; got {value!r}"
                    )
                object.__setattr__(self, field.name, int(value))
                continue
            zero_ok = field.default == 0
            if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero_ok):
                raise InputError(
                    f"{self.name}: {field.name} must be a finite number, "
                    f"{'0 or more' if zero_ok else 'positive'}; got {value!r}"
                )
            object.__setattr__(self, field.name, float(value))
        spread = getattr(self, "sigma_s", 0.0)
        if spread > _MAX_SIGMA_S:
            raise InputError(
                f"{self.name}: sigma_s, the spread of log-scale, must be at most {_MAX_SIGMA_S:g}; "
                f"got {spread:g}"
            )

    def width(self, x: FloatArray) -> FloatArray:
        """Return σd (...) at the points x (..., 2)."""
        if not self.growth:
            return np.full(x.shape[:-1], self.sigma_d)
        return np.asarray(np.hypot(self.sigma_d, self.growth * np.hypot(x[..., 0], x[..., 1])))

    @property
    def period(self) -> float:
        """The period of φ."""
        return 2 * math.pi

    @property
    @abstractmethod
    def bandwidth(self) -> float:
        """The width of K in β. If the entries are more than about twice this width apart, gradients
        between them are lost."""

    def __call__(self, beta: ArrayLike, x: ArrayLike, phi: ArrayLike, y: ArrayLike) -> FloatArray:
        """Return K in float64; all arguments broadcast, and x and y have a last axis of 2."""
        vectors = [np.asarray(value, np.float64) for value in (x, y)]
        for name, vector in zip("xy", vectors, strict=True):
            if vector.ndim == 0 or vector.shape[-1] != 2:
                raise InputError(
                    f"{self.name}: {name} must have a last axis of 2, got shape {vector.shape}"
                )
        angles = [np.asarray(value, np.float64) for value in (beta, phi)]
        return self.evaluate(angles[0], vectors[0], angles[1], vectors[1])

    @abstractmethod
    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """Return K(β, x; φ, y) for validated arguments."""


@dataclass(frozen=True, kw_only=True)
class AngularKernel(Kernel):
    """A kernel with the angular factor k̃_σr(β − φ), as in SIFT."""

    depends_on_difference: ClassVar[bool] = True

    sigma_r: float

    @property
    def bandwidth(self) -> float:
        """σr, in radians."""
        return self.sigma_r

    def angular(self, beta: FloatArray, phi: FloatArray) -> FloatArray:
        """Return k̃_σr(β − φ)."""
        return periodic_gaussian(beta - phi, self.sigma_r)


@dataclass(frozen=True, kw_only=True)
class IntensityKernel(Kernel):
    """Base class of distribution fields: φ is an intensity in [0, 1] and not periodic."""

    feature: ClassVar[Feature] = "intensity"
    depends_on_difference: ClassVar[bool] = True

    sigma_l: float

    def level(self, beta: FloatArray, phi: FloatArray) -> FloatArray:
        """Return k_σl(l − f)."""
        return gaussian(beta - phi, self.sigma_l)

    @property
    def bandwidth(self) -> float:
        """σl, in units of intensity."""
        return self.sigma_l

    @property
    def period(self) -> float:
        """A period long enough that levels and intensities in [0, 1] do not wrap around."""
        return max(2.0, 11 * self.sigma_l)
