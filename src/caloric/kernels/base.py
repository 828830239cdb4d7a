"""What every kernel is: a few checked numbers and a formula K(β, x; φ, y)."""

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from caloric.errors import InputError
from caloric.theory.gaussians import FloatArray, gaussian, periodic_gaussian

Feature = Literal["orientation", "intensity"]
_WIDEST_SCALES = 2.0


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """K(β, x; φ, y): what a pixel at y with feature φ adds to the descriptor's entry (β, x).

    For the orientation kernels φ is the angle of the gradient and β a direction, both in radians;
    the pixel's weight is |∇f|. For the distribution fields φ is the intensity f(y), β a level, and
    the weight is 1. Lengths are in the units of x and y.

    ``growth`` lets σd grow with eccentricity, to hypot(σd, growth·|x|); 0 leaves it alone.
    """

    name: ClassVar[str]
    feature: ClassVar[Feature] = "orientation"
    depends_on_difference: ClassVar[bool] = False
    """Whether K depends on β and φ through φ − β alone: its table is then made for one β."""

    sigma_d: float
    growth: float = 0.0

    def __post_init__(self) -> None:
        """Every parameter is a finite number, positive unless 0 is its default (then: off)."""
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if field.default is None:
                if value is None:
                    continue
                if not number or not isinstance(value, numbers.Integral) or value < 1:
                    raise InputError(
                        f"{self.name}: {field.name} must be a whole number from 1; got {value!r}"
                    )
                object.__setattr__(self, field.name, int(value))
                continue
            off = field.default == 0
            if not number or not math.isfinite(value) or value < 0 or (value == 0 and not off):
                raise InputError(
                    f"{self.name}: {field.name} must be a finite number, "
                    f"{'0 or more' if off else 'positive'}; got {value!r}"
                )
            object.__setattr__(self, field.name, float(value))
        spread = getattr(self, "sigma_s", 0.0)
        if spread > _WIDEST_SCALES:
            raise InputError(
                f"{self.name}: sigma_s is the spread of the logarithm of scale and at most "
                f"{_WIDEST_SCALES:g}; got {spread:g}"
            )

    def width(self, x: FloatArray) -> FloatArray:
        """σd at the places x (..., 2)."""
        if not self.growth:
            return np.full(x.shape[:-1], self.sigma_d)
        return np.asarray(np.hypot(self.sigma_d, self.growth * np.hypot(x[..., 0], x[..., 1])))

    @property
    def period(self) -> float:
        """The length after which φ repeats."""
        return 2 * math.pi

    @property
    @abstractmethod
    def bandwidth(self) -> float:
        """The width of K as a function of β: two entries further apart than about twice this
        leave a gap between them."""

    def __call__(self, beta: ArrayLike, x: ArrayLike, phi: ArrayLike, y: ArrayLike) -> FloatArray:
        """K in float64. All arguments broadcast; x and y have a last axis of 2."""
        places = [np.asarray(value, np.float64) for value in (x, y)]
        for letter, place in zip("xy", places, strict=True):
            if place.ndim == 0 or place.shape[-1] != 2:
                raise InputError(
                    f"{self.name}: {letter} must have a last axis of 2, got shape {place.shape}"
                )
        angles = [np.asarray(value, np.float64) for value in (beta, phi)]
        return self.evaluate(angles[0], places[0], angles[1], places[1])

    @abstractmethod
    def evaluate(
        self, beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray
    ) -> FloatArray:
        """The formula: K(β, x; φ, y), for arguments that have been checked."""


@dataclass(frozen=True, kw_only=True)
class AngularKernel(Kernel):
    """The kernels whose angle is blurred by k̃_σr(β − φ), as SIFT's is, whatever is done with x."""

    depends_on_difference: ClassVar[bool] = True

    sigma_r: float

    @property
    def bandwidth(self) -> float:
        """σr."""
        return self.sigma_r

    def angular(self, beta: FloatArray, phi: FloatArray) -> FloatArray:
        """k̃_σr(β − φ)."""
        return periodic_gaussian(beta - phi, self.sigma_r)


@dataclass(frozen=True, kw_only=True)
class IntensityKernel(Kernel):
    """What the two distribution fields share: φ is an intensity in [0, 1] and does not wrap."""

    feature: ClassVar[Feature] = "intensity"
    depends_on_difference: ClassVar[bool] = True

    sigma_l: float

    def level(self, beta: FloatArray, phi: FloatArray) -> FloatArray:
        """k_σl(l − f)."""
        return gaussian(beta - phi, self.sigma_l)

    @property
    def bandwidth(self) -> float:
        """σl."""
        return self.sigma_l

    @property
    def period(self) -> float:
        """Long enough that a level and an intensity of [0, 1] never meet around the back."""
        return max(2.0, 11 * self.sigma_l)
