"""The energy of a registration, its normal equations and statistics, for arrays or tensors.

At each σ both densities are blurred by σ, the image's after warping by the current estimate; in the
theory's dot product that is a diffusion by √2 σ. The energy that is minimized over the warp is::

    E(θ; σ) = mean over x of log(1 + |a U(x; f ∘ τ_θ) − U(x; p)|² / c²),   U = all fields at x

with a fitted gain a. Without the logarithm, the best gain leaves |U_p|²(1 − cos²), which decreases
as the normalized dot product of the two densities (eq. 15) increases. The logarithm (a Cauchy
weight) limits the influence of occluded and changed parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.transforms import PARAMETERS
from caloric.descriptor import fields
from caloric.runtime.arrays import at_least, empty, exact, inner, median, namespace
from caloric.types import ArrayOrTensor, FloatArray, TransformModel

_TINY = 1e-12  # added to powers, so that they can divide


@dataclass(frozen=True)
class Grid:
    """The samples of a template at σ: every ``stride``-th of a grid (h, w) = ``size``.

    ``spacing`` is in pixels. At a ``fine`` grid, of spacing 1, the fields of the warped image are
    measured; otherwise the fields of the image are warped.
    """

    sigma: float
    model: TransformModel
    size: tuple[int, int]
    spacing: int
    fine: bool

    @property
    def stride(self) -> int:
        """The stride at which there are at most ``SCHEDULE.points`` samples."""
        h, w = self.size
        return max(1, int(np.ceil(np.sqrt(h * w / SCHEDULE.points))))

    def samples(self, planes: ArrayOrTensor) -> ArrayOrTensor:
        """Return the values of planes (…, h, w) at the samples."""
        return planes[..., :: self.stride, :: self.stride]


@dataclass(frozen=True, eq=False)
class Level:
    """The template at n samples: ``values`` (c, n) and their ``slopes`` (p, c n) in the parameters.

    ``squares`` (n,) are |U|², ``power`` is their mean, and ``products`` (p (p + 1) / 2, n) are sums
    over channels of products of slopes, whose weighted sum is the Hessian.
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
    across = slopes(values, gradient, xy, harmonics, grid.model)
    flat = values.reshape(len(values), -1)
    across = across.reshape(len(across), *flat.shape)
    pairs = zip(*np.triu_indices(len(across)), strict=True)
    products = namespace(flat).stack([inner(across[i], across[j], 0) for i, j in pairs])
    squares = inner(flat, flat, 0)
    power = float(squares.mean()) + _TINY
    return Level(grid, flat, squares, across.reshape(len(across), -1), products, power)


def slopes(
    values: ArrayOrTensor,
    gradient: tuple[ArrayOrTensor, ArrayOrTensor],
    xy: tuple[ArrayOrTensor, ArrayOrTensor],
    harmonics: tuple[int, ...],
    model: TransformModel,
) -> ArrayOrTensor:
    """Return ∂U(τx)/∂parameters at the identity (p, c, h, w): ∇U · δ(x), and for rotations −imU."""
    (dx, dy), (x, y) = gradient, xy
    # The slope of e^{−imα} u_m in α.
    spin = namespace(values).zeros_like(values)
    for m, channel in fields.channels(harmonics):
        if m:
            spin[channel] = m * values[channel + 1]
            spin[channel + 1] = -m * values[channel]
    result = empty((PARAMETERS[model], *values.shape), values)
    if model == "similarity":
        result[0] = dx * x + dy * y
        result[1] = dy * x - dx * y + spin
    elif model == "affine":
        result[0], result[1] = dx * x, dx * y - 0.5 * spin
        result[2], result[3] = dy * x + 0.5 * spin, dy * y
    result[-2], result[-1] = dx, dy
    return result


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The energy at a transform, and the quantities that the next step needs.

    ``values`` (c, n) are the fields of the warped image, ``gain`` () is their factor a and
    ``weights`` (n,) are the Cauchy weights. ``sums`` are those of the normal equations, if they
    came with the energy.
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
        """Which samples (n,) have a weight."""
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
        """Return the median, over the template, of the cosine of both densities around each place.

        Their means are removed; around is a Gaussian of ``width`` samples.
        """
        inside, xp, grid = self.inside, namespace(self.values), self.level.grid
        if not inside.any():
            return 0.0
        size = tuple(-(-n // grid.stride) for n in grid.size)
        u, v = (
            xp.where(inside, values - values[:, inside].mean(1)[:, None], 0)
            for values in (self.values, self.level.values)
        )
        across, of_image, of_template = (
            gaussian(inner(a, b, 0).reshape(size), width).reshape(-1)
            for a, b in ((u, v), (u, u), (v, v))
        )
        return median((across / xp.sqrt(of_image * of_template + 1e-9))[inside])

    def noise(self) -> float:
        """Return the weighted mean square of the residuals."""
        weighted = self.weights * (self.residual**2).mean(0)
        return float(weighted.sum() / self.weights.sum().clip(_TINY, None))


def evaluate(
    level: Level, values: ArrayOrTensor, outside: ArrayOrTensor | None = None
) -> Evaluation:
    """Return E(θ; σ), with its gain and Cauchy weights (n,), for the fields (c, n) of the image.

    At samples ``outside`` (n,) the image the fields are set to 0: they cost the energy of the
    template there, so that leaving the image is not rewarded, but have no weight in the step.
    """
    xp = namespace(values)
    if outside is not None:
        values[:, outside] = 0
    image_squares, products = inner(values, values, 0), inner(values, level.values, 0)
    balanced = xp.sqrt(level.power / (exact(image_squares.mean()) + _TINY))
    lowest, highest = (factor * balanced for factor in SCHEDULE.gains)
    fitted, inverse = balanced, 1 / (SCHEDULE.robust * level.power)

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
    # One transfer from the device.
    sums = xp.concatenate([energy[None], _sums(level, evaluation.residual, weights)])
    numbers = sums.cpu().numpy().astype(np.float64)
    return replace(evaluation, energy=float(numbers[0]), sums=numbers[1:])


def _sums(level: Level, residual: ArrayOrTensor, weights: ArrayOrTensor) -> ArrayOrTensor:
    """Return the gradient (p,) and the upper triangle of the Hessian, one after the other."""
    gradient = level.slopes @ (residual * weights).reshape(-1)
    return namespace(weights).concatenate([gradient, level.products @ weights])
