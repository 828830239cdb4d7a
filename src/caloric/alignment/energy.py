"""The energy of a registration, its normal equations and statistics, for arrays or tensors.

At each σ both densities are blurred by σ, that of the image after warping it by the current
estimate. Their dot product is thereby diffused by √2 σ. The energy minimized over the warp is::

    E(θ; σ) = mean over x of log(1 + |a U(x; f ∘ τ_θ) − U(x; p)|² / c²),   U = all fields at x

with a fitted gain a. Without the logarithm, the residual at the best gain is |U_p|²(1 − cos²): it
decreases as the normalized dot product of the two densities (eq. 15) increases. The logarithm
(Cauchy weights) limits the influence of occluded and changed parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.transforms import PARAMETERS
from caloric.descriptor import fields
from caloric.runtime.arrays import at_least, empty, exact, inner, median, namespace
from caloric.types import ArrayOrTensor, FloatArray, TransformModel

_TINY = 1e-12  # added to powers to avoid division by zero


@dataclass(frozen=True)
class Grid:
    """The samples of a template at σ: every ``stride``-th of a grid (h, w) = ``size``.

    ``spacing`` is in pixels. On a ``fine`` grid, of spacing 1, the image is warped and its fields
    are measured; otherwise the fields of the image are warped.
    """

    sigma: float
    model: TransformModel
    size: tuple[int, int]
    spacing: int
    fine: bool

    @property
    def stride(self) -> int:
        """The smallest stride with at most ``SCHEDULE.max_samples`` samples."""
        h, w = self.size
        return max(1, int(np.ceil(np.sqrt(h * w / SCHEDULE.max_samples))))

    def samples(self, planes: ArrayOrTensor) -> ArrayOrTensor:
        """Return the values of planes (…, h, w) at the samples."""
        return planes[..., :: self.stride, :: self.stride]


@dataclass(frozen=True, eq=False)
class Level:
    """The template at n samples: ``values`` (c, n) and their derivatives ``slopes`` (p, c n).

    The derivatives are with respect to the p parameters. ``squares`` (n,) are |U|² and ``power`` is
    their mean. ``products`` (p (p + 1) / 2, n) are the products of slopes, summed over channels;
    their weighted sum over the samples is the Hessian.
    """

    grid: Grid
    values: ArrayOrTensor
    squares: ArrayOrTensor
    slopes: ArrayOrTensor
    products: ArrayOrTensor
    power: float


def level(
    grid: Grid,
    values: ArrayOrTensor,
    gradient: tuple[ArrayOrTensor, ArrayOrTensor],
    xy: tuple[ArrayOrTensor, ArrayOrTensor],
    harmonics: tuple[int, ...],
) -> Level:
    """Return the level of a template from its fields and their gradient (c, h, w) at the samples.

    ``xy`` are the coordinates (1, 1, w) and (1, h, 1) of the samples in units of R.
    """
    derivatives = slopes(values, gradient, xy, harmonics, grid.model)
    flat = values.reshape(len(values), -1)
    derivatives = derivatives.reshape(len(derivatives), *flat.shape)
    pairs = zip(*np.triu_indices(len(derivatives)), strict=True)
    products = namespace(flat).stack([inner(derivatives[i], derivatives[j], 0) for i, j in pairs])
    squares = inner(flat, flat, 0)
    power = float(squares.mean()) + _TINY
    derivatives = derivatives.reshape(len(derivatives), -1)
    return Level(grid, flat, squares, derivatives, products, power)


def slopes(
    values: ArrayOrTensor,
    gradient: tuple[ArrayOrTensor, ArrayOrTensor],
    xy: tuple[ArrayOrTensor, ArrayOrTensor],
    harmonics: tuple[int, ...],
    model: TransformModel,
) -> ArrayOrTensor:
    """Return ∂U(τx)/∂θ at the identity (p, c, h, w): ∇U · δ(x), and for rotations −imU."""
    (dx, dy), (x, y) = gradient, xy
    # The derivative of e^{−imα} u_m with respect to α.
    rotation = namespace(values).zeros_like(values)
    for m, channel in fields.channels(harmonics):
        if m:
            rotation[channel] = m * values[channel + 1]
            rotation[channel + 1] = -m * values[channel]
    result = empty((PARAMETERS[model], *values.shape), values)
    if model == "similarity":
        result[0] = dx * x + dy * y
        result[1] = dy * x - dx * y + rotation
    elif model == "affine":
        result[0], result[1] = dx * x, dx * y - 0.5 * rotation
        result[2], result[3] = dy * x + 0.5 * rotation, dy * y
    result[-2], result[-1] = dx, dy
    return result


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The energy at a transform, and the quantities that the next step needs.

    ``values`` (c, n) are the fields of the warped image, ``gain`` () is their factor a, and
    ``weights`` (n,) are the Cauchy weights. ``sums`` are those of the normal equations, if computed
    together with the energy.
    """

    level: Level
    energy: float
    gain: ArrayOrTensor
    values: ArrayOrTensor
    weights: ArrayOrTensor
    sums: FloatArray | None

    @property
    def residual(self) -> ArrayOrTensor:
        """a U(x; f ∘ τ) − U(x; p) (c, n)."""
        return self.gain * self.values - self.level.values

    @property
    def inside(self) -> ArrayOrTensor:
        """Mask (n,) of the samples with a positive weight."""
        return self.weights > 0

    def normal_equations(self) -> tuple[FloatArray, FloatArray]:
        """Return the Gauss-Newton Hessian (p, p) and gradient (p,) of the energy times n c² / 2."""
        sums = self.sums
        if sums is None:
            sums = np.asarray(_sums(self.level, self.residual, self.weights), np.float64)
        count = PARAMETERS[self.level.grid.model]
        hessian = np.zeros((count, count))
        hessian[np.triu_indices(count)] = sums[count:]
        return hessian + np.triu(hessian, 1).T, sums[:count]

    def cosines(
        self, width: float, gaussian: Callable[[ArrayOrTensor, float], ArrayOrTensor]
    ) -> float:
        """Return the median, over the template, of the local cosine between the two densities.

        Their means are removed. Local means within a Gaussian window of ``width`` samples.
        """
        inside, xp, grid = self.inside, namespace(self.values), self.level.grid
        if not inside.any():
            return 0.0
        size = tuple(-(-n // grid.stride) for n in grid.size)
        u, v = (
            xp.where(inside, values - values[:, inside].mean(1)[:, None], 0)
            for values in (self.values, self.level.values)
        )
        products, image_squares, template_squares = (
            gaussian(inner(a, b, 0).reshape(size), width).reshape(-1)
            for a, b in ((u, v), (u, u), (v, v))
        )
        return median((products / xp.sqrt(image_squares * template_squares + 1e-9))[inside])

    def noise(self) -> float:
        """Return the weighted mean square residual."""
        weighted = self.weights * (self.residual**2).mean(0)
        return float(weighted.sum() / self.weights.sum().clip(_TINY, None))


def evaluate(
    level: Level, values: ArrayOrTensor, outside: ArrayOrTensor | None = None
) -> Evaluation:
    """Return E(θ; σ), with its gain and Cauchy weights (n,), for the fields (c, n) of the image.

    ``outside`` (n,) marks samples outside the image. Their fields are set to 0, so that leaving the
    image does not lower the energy, and their weights are 0 in the step.
    """
    xp = namespace(values)
    if outside is not None:
        values[:, outside] = 0
    image_squares, products = inner(values, values, 0), inner(values, level.values, 0)
    equalizing = xp.sqrt(level.power / (exact(image_squares.mean()) + _TINY))
    lowest, highest = (factor * equalizing for factor in SCHEDULE.gain_range)
    fitted, inverse = equalizing, 1 / (SCHEDULE.robust_scale * level.power)

    def single(value: ArrayOrTensor) -> ArrayOrTensor:
        return xp.asarray(value, dtype=values.dtype)

    for _ in range(SCHEDULE.gain_steps):
        gain = xp.minimum(xp.maximum(fitted, lowest), highest)
        residual = single(gain * gain) * image_squares - single(2 * gain) * products + level.squares
        weights = 1 / (1 + at_least(residual, 0) * inverse)
        fitted = exact(weights @ products) / (exact(weights @ image_squares) + _TINY)
    energy = -xp.log(weights).mean()
    if outside is not None:
        weights[outside] = 0
    evaluation = Evaluation(level, 0.0, single(gain), values, weights, None)
    if xp is np:
        return replace(evaluation, energy=float(energy))
    # Copy everything from the device at once.
    sums = xp.concatenate([energy[None], _sums(level, evaluation.residual, weights)])
    numbers = sums.cpu().numpy().astype(np.float64)
    return replace(evaluation, energy=float(numbers[0]), sums=numbers[1:])


def _sums(level: Level, residual: ArrayOrTensor, weights: ArrayOrTensor) -> ArrayOrTensor:
    """Return the gradient (p,) and the upper triangle of the Hessian, concatenated."""
    gradient = level.slopes @ (residual * weights).reshape(-1)
    return namespace(weights).concatenate([gradient, level.products @ weights])
