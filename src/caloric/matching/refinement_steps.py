"""The steps of match refinement, for NumPy arrays and torch tensors.

Let ∇f be the gradient of the second image in the coordinates of its frame B, blurred by σ and
divided by its root mean square, and t the same for the first image. Each step minimizes
|∇(f ∘ δ) − t|² under a Gaussian window over the affine map δ, linearized at the template, and
replaces B by B ∘ δ⁻¹. The compiled core implements the same steps with these constants.

There are no branches on values, so that the steps can be recorded as a CUDA graph.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from caloric.frames import sigmas
from caloric.runtime.arrays import namespace, percentile
from caloric.types import ArrayOrTensor, FloatArray, Pixels

SIDE = 21  # samples across a patch
REACH = 5.0  # σ from the center to the edge of a patch
SPACING = 2 * REACH / (SIDE - 1)  # σ between samples
BLURS = (1.0, 0.5)  # σ of the continuation, in samples
STEPS = (4, 2)  # at each blur
TOLERANCE = 1e-4  # largest change of a parameter in the last step
MAX_STEP = 0.4  # largest change of a parameter per step, so that the update stays invertible
# Levenberg-Marquardt damping
DAMPING = 1e-3  # initial value
DAMPING_DECREASE = 5.0  # divisor after a step that lowers the cost
DAMPING_INCREASE = 10.0  # factor after a rejected step
MIN_INCREASED_DAMPING = 1e-2  # smallest value after a rejected step
RELATIVE_DAMPING = 1e-6  # share of the trace added to the diagonal
MAX_COST = 1.0  # after the first blur; the cost of unrelated fields is 2
MIN_NOISE_SPACING = 0.4  # pixels between samples, for the correlation of their noise
LAGS = 6  # samples over which noise is correlated
# Estimated on rendered scenes with relief and on fountain-P11, see `total_covariances`.
RESIDUAL_SAMPLES = 120.0  # independent samples of a small residual
CORRELATED_COST = 0.2  # at which they are half as many
POWER_EPSILON = 1e-12  # added to mean square gradients
DIAGONAL_EPSILON = 1e-9  # added to diagonals, so that the step is 0 if there is no gradient

_LINE = np.linspace(-REACH, REACH, SIDE)
GRID = np.stack(np.meshgrid(_LINE, _LINE), -1).reshape(-1, 2)
_WINDOW = np.exp(-(GRID**2).sum(1) / (2 * (REACH / 2) ** 2))
ROOT = np.sqrt(_WINDOW / _WINDOW.sum()).astype(np.float32)  # √w, Σ w = 1
DIFFERENCES: FloatArray = np.asarray(np.gradient(np.eye(SIDE), SPACING, axis=0))
_DISTANCE = np.abs(np.subtract.outer(np.arange(SIDE), np.arange(SIDE)))


class Gradient(Protocol):
    """The linear map from patches to their blurred gradients, with its adjoint."""

    def apply(self, patches: ArrayOrTensor) -> ArrayOrTensor:
        """Return ∂f/∂x and ∂f/∂y (m, 2 n) of patches (m, n), per σ of the frame."""

    def adjoint(self, weights: ArrayOrTensor) -> ArrayOrTensor:
        """Return the weights (m, k, n) of pixels, given weights (m, k, 2 n) of gradients."""


@dataclass(frozen=True, eq=False)
class Filters:
    """The gradient of a patch P as ∂f/∂x = S P Dᵀ and ∂f/∂y = D P Sᵀ: a :class:`Gradient`.

    ``smooth`` S blurs rows or columns, and ``slope`` D is its derivative; both are banded matrices
    (SIDE, SIDE).
    """

    smooth: Pixels
    slope: Pixels

    def apply(self, patches: Pixels) -> Pixels:
        """Return the gradients (m, 2 n) of patches (m, n)."""
        P = patches.reshape(-1, SIDE, SIDE)
        both = self.smooth @ P @ self.slope.T, self.slope @ P @ self.smooth.T
        return np.asarray(np.stack(both, 1).reshape(len(P), -1), np.float32)

    def adjoint(self, weights: Pixels) -> Pixels:
        """Return the weights (m, k, n) of pixels, given weights (m, k, 2 n) of gradients."""
        across, down = np.moveaxis(weights.reshape(*weights.shape[:2], 2, SIDE, SIDE), 2, 0)
        S, D = self.smooth, self.slope
        return np.asarray(S.T @ across @ D + D.T @ down @ S).reshape(*weights.shape[:2], -1)


@cache
def filters(blur: float) -> Filters:
    """Return the filters for a blur in samples; borders are replicated."""
    reach = int(np.ceil(3 * blur))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / blur) ** 2)
    index = np.arange(SIDE)[:, None] + np.arange(-reach, reach + 1)
    smooth = np.zeros((SIDE, SIDE))
    np.add.at(smooth, (np.arange(SIDE)[:, None], np.clip(index, 0, SIDE - 1)), taps / taps.sum())
    slope = DIFFERENCES @ smooth
    return Filters(smooth.astype(np.float32), slope.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Tables:
    """Arrays on a device that do not depend on the matches.

    ``solved`` is the dtype in which 6 x 6 systems are solved, and ``gradients`` has an operator for
    each of ``BLURS``.
    """

    grid: ArrayOrTensor  # (n, 2) float32
    root: ArrayOrTensor  # (2 n,) float32
    differences: ArrayOrTensor  # (SIDE, SIDE) float32
    unit: ArrayOrTensor  # (6, 6)
    distance: ArrayOrTensor  # (SIDE, SIDE), integers
    gradients: tuple[Gradient, ...]
    solved: Any


def tables(gradients: tuple[Gradient, ...], solved: str, to: Any = np.asarray) -> Tables:
    """Return the tables, each converted by ``to``, for example to a tensor."""
    unit = to(np.eye(6, dtype=solved))
    single = (GRID, np.tile(ROOT, 2), DIFFERENCES)
    grid, root, differences = (to(np.asarray(v, np.float32)) for v in single)
    return Tables(grid, root, differences, unit, to(_DISTANCE), gradients, unit.dtype)


@dataclass(frozen=True, eq=False)
class Image(ABC):
    """An image at 1, 1/2, 1/4, … of its size, from which patches are read.

    ``noise`` () is the standard deviation of its noise; :func:`level_noise` returns the others.
    """

    noise: ArrayOrTensor
    spacings: ArrayOrTensor
    variances: ArrayOrTensor
    correlations: ArrayOrTensor

    @abstractmethod
    def patches(self, maps: ArrayOrTensor) -> ArrayOrTensor:
        """Return float32 patches (m, n) around frames (m, 2, 3), interpolated bilinearly."""


def octaves(maps: ArrayOrTensor, count: int) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return the pyramid levels (m,) from which frames are sampled, and their σ (m,).

    The pixels of a level are at most as far apart as the samples.
    """
    xp, sigma = namespace(maps), sigmas(maps)
    octave = xp.floor(xp.log2((sigma * SPACING).clip(1e-9, None)))
    return xp.asarray(octave.clip(0, count - 1), dtype=xp.int64), sigma


def fields(
    patches: ArrayOrTensor, gradient: Gradient, t: Tables
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return √w ∇f divided by its root mean square (m, 2 n), and the mean square (m,)."""
    values = gradient.apply(patches) * t.root
    power = (values * values).sum(1)
    xp = namespace(values)
    return values / xp.sqrt(power + POWER_EPSILON)[:, None], xp.asarray(power, dtype=t.solved)


def slopes(template: ArrayOrTensor, t: Tables) -> ArrayOrTensor:
    """Return √w ∂/∂δ of the field ∇(t ∘ δ) at δ = 0, (m, 6, 2 n), for √w ∇t (m, 2 n).

    ∇(t ∘ δ) = δᵀ ∇t ∘ δ: the field is moved, and its vectors are rotated and scaled.
    """
    xp, m = namespace(template), len(template)
    gradient = (template / t.root).reshape(m, 2, SIDE, SIDE)
    across = (gradient @ t.differences.T).reshape(m, 2, -1)
    down = (t.differences @ gradient).reshape(m, 2, -1)
    x, y = t.grid.T
    result = xp.stack([across * x, across * y, down * x, down * y, across, down], 1)
    gradient = gradient.reshape(m, 2, -1)
    result[:, 0, 0] += gradient[:, 0]
    result[:, 1, 1] += gradient[:, 0]
    result[:, 2, 0] += gradient[:, 1]
    result[:, 3, 1] += gradient[:, 1]
    result = result.reshape(m, 6, -1) * t.root
    # Fields are normalized, so the component along the template is removed.
    return result - (result @ template[:, :, None]) * template[:, None]


def moved(maps: ArrayOrTensor, steps: ArrayOrTensor) -> ArrayOrTensor:
    """Return B ∘ δ⁻¹ (m, 2, 3) of maps B (m, 2, 3) and parameters of δ (m, 6)."""
    xp = namespace(maps)
    a, b, c, d, x, y = xp.asarray(steps, dtype=maps.dtype).T
    inverse = xp.stack([1 + d, -b, -c, 1 + a], 1) / ((1 + a) * (1 + d) - b * c)[:, None]
    inverse = inverse.reshape(-1, 2, 2)
    linear = maps[:, :, :2] @ inverse
    return xp.concatenate([linear, maps[:, :, 2:] - linear @ xp.stack([x, y], 1)[:, :, None]], 2)


def solve(matrix: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
    """Return H⁻¹ g (m, 6, k) by Cholesky; batched library routines are slower for 6 x 6."""
    low: list[list[ArrayOrTensor]] = []
    for i in range(6):
        row: list[ArrayOrTensor] = []
        for j in range(i + 1):
            total = matrix[:, i, j]
            for k in range(j):
                total = total - row[k] * (row if i == j else low[j])[k]
            row.append(total.clip(1e-30, None) ** 0.5 if i == j else total / low[j][j])
        low.append(row)
    x: list[ArrayOrTensor] = []
    for i in range(6):
        total = right[:, i]
        for k in range(i):
            total = total - low[i][k][:, None] * x[k]
        x.append(total / low[i][i][:, None])
    for i in range(5, -1, -1):
        for k in range(i + 1, 6):
            x[i] = x[i] - low[k][i][:, None] * x[k]
        x[i] = x[i] / low[i][i][:, None]
    return namespace(matrix).stack(x, 1)


@dataclass(frozen=True, eq=False)
class Minimum:
    """The result of the steps at one σ; costs and mean square gradients are (m,)."""

    maps: ArrayOrTensor
    cost: ArrayOrTensor
    power: ArrayOrTensor
    power_a: ArrayOrTensor
    slopes: ArrayOrTensor
    hessian: ArrayOrTensor
    template: ArrayOrTensor


def minimize(
    patches: ArrayOrTensor, second: Image, b: ArrayOrTensor, blur: int, t: Tables
) -> Minimum:
    """Return the result of the steps from frames b (m, 2, 3) at ``BLURS[blur]``.

    ``patches`` (m, n) are those of the first image. Steps that do not lower the cost are rejected.
    """
    xp, gradient = namespace(b), t.gradients[blur]
    template, power_a = fields(patches, gradient, t)
    derivatives = slopes(template, t)
    hessian = xp.asarray(derivatives @ derivatives.swapaxes(1, 2), dtype=t.solved)
    offset = RELATIVE_DAMPING * (hessian * t.unit).sum((1, 2)) + DIAGONAL_EPSILON
    diagonal = (hessian + offset[:, None, None]) * t.unit
    damping = xp.full_like(power_a, DAMPING)
    active = damping > 0

    def residuals(maps: ArrayOrTensor) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
        values, power = fields(second.patches(maps), gradient, t)
        residual = values - template
        return residual, xp.asarray((residual * residual).sum(1), dtype=t.solved), power

    residual, cost, power = residuals(b)
    for _ in range(STEPS[blur]):
        right = xp.asarray(derivatives @ residual[:, :, None], dtype=t.solved)
        step = solve(hessian + damping[:, None, None] * diagonal, right)[:, :, 0]
        step = step.clip(-MAX_STEP, MAX_STEP)
        trial = moved(b, step)
        new, new_cost, new_power = residuals(trial)
        lower = active & (new_cost < cost)
        b = xp.where(lower[:, None, None], trial, b)
        residual = xp.where(lower[:, None], new, residual)
        cost, power = xp.where(lower, new_cost, cost), xp.where(lower, new_power, power)
        increased = (DAMPING_INCREASE * damping).clip(MIN_INCREASED_DAMPING, None)
        damping = xp.where(lower, damping / DAMPING_DECREASE, increased)
        active = active & ~(lower & (xp.amax(abs(step), 1) < TOLERANCE))
    return Minimum(b, cost, power, power_a, derivatives, hessian, template)


# Covariances.

SMOOTH_PERCENTILE = 10  # of the root mean squares of blocks
UNIT_NOISE = 0.793  # that percentile for white noise of variance 1
ROUNDING = 1 / 255 / 12**0.5  # the standard deviation of rounding to 8 bits
_BAND = 10, 32  # rows used out of each period of rows


def noise_level(image: ArrayOrTensor) -> ArrayOrTensor:
    """Return an estimate () of the standard deviation of the noise in an image (h, w).

    It is estimated from second differences in the smoothest blocks of 8 x 8 pixels, and is at least
    that of rounding to 8 bits. An image with texture everywhere counts as noisy.
    """
    xp = namespace(image)
    bands = _bands(image)
    if bands is None:
        return xp.full_like(image[0, 0], ROUNDING, dtype=xp.float64)
    differences = xp.diff(xp.diff(bands, 2, 1), 2, 2) / 6  # preserves the variance of white noise
    blocks = xp.sqrt((differences**2).reshape(len(differences), 8, -1, 8).mean((1, 3)))
    estimate = xp.asarray(percentile(blocks, SMOOTH_PERCENTILE) / UNIT_NOISE, dtype=xp.float64)
    return estimate.clip(ROUNDING, None)


def _bands(image: ArrayOrTensor) -> ArrayOrTensor | None:
    """Return bands of rows (k, 10, w), for blocks of 8 x 8; None if the image is too small."""
    rows, period = _BAND
    height, width = image.shape
    h = height // period * period if height >= period else rows
    w = (width - 2) // 8 * 8 + 2
    if height < rows or w < 10:
        return None
    return image[:h, :w].reshape(-1, min(h, period), w)[:, :rows]


@cache
def level_noise(count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return spacings (count,), variances (count,) and correlations (count, 4) of pyramid levels.

    Spacings are in pixels of the image; variances and correlations are those of :func:`noise_of`.
    """
    both = [noise_of(i) for i in range(count)]
    return np.exp2(np.arange(count)), np.array([v for v, _ in both]), np.array([c for _, c in both])


@cache
def noise_of(level: int) -> tuple[float, FloatArray]:
    """Return the noise variance of a level for white noise of variance 1 in the image.

    Also the correlations (4,) of the noise between pixels 0 to 3 apart in a row.
    """
    taps = np.ones(1)
    for i in range(level):
        spread = np.zeros(4 * 2**i + 1)
        spread[:: 2**i] = np.array([1, 4, 6, 4, 1]) / 16  # cv2.pyrDown
        taps = np.convolve(taps, spread)
    products = np.correlate(taps, taps, "full")[len(taps) - 1 :: 2**level]
    products = np.pad(products, (0, 4))[:4]
    return float(products[0] ** 2), products / products[0]


def spline(x: ArrayOrTensor) -> ArrayOrTensor:
    """Return the cubic B-spline: the mean noise correlation of bilinear samples at distance x."""
    return (2 - abs(x)).clip(0, None) ** 3 / 6 - 4 * (1 - abs(x)).clip(0, None) ** 3 / 6


def _patch_noise(
    image: Image, maps: ArrayOrTensor, t: Tables
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return noise variances (m,) of patches and correlations (m, SIDE, SIDE) along a row."""
    xp = namespace(maps)
    octave, sigma = octaves(maps, len(image.spacings))
    spacing = (sigma * SPACING / image.spacings[octave]).clip(MIN_NOISE_SPACING, None)
    pixels = image.correlations[octave]
    lags = t.distance[0, :LAGS] * spacing[:, None]
    along = pixels[:, :1] * spline(lags)
    for i in range(1, 4):
        along = along + pixels[:, i, None] * (spline(lags - i) + spline(lags + i))
    matrix = along[:, t.distance.clip(None, LAGS - 1)] * (t.distance < LAGS)
    variance = image.variances[octave] * image.noise**2
    return xp.asarray(variance, dtype=t.solved), xp.asarray(matrix, dtype=t.solved)


def covariances(
    end: Minimum, a: ArrayOrTensor, images: tuple[Image, Image], t: Tables
) -> ArrayOrTensor:
    """Return the covariances (m, 2, 2) of the positions by image noise, in σ of the second frames.

    A step is linear in the residual, and the residual is linear in the pixels of both images.
    Therefore the covariance of the step follows from the noise of the pixels.
    """
    xp, m = namespace(a), len(a)
    # δ = H⁻¹ Σ slope · residual: weights of the residual in the shift, then of the pixels.
    rows = solve(end.hessian + DIAGONAL_EPSILON * t.unit, xp.broadcast_to(t.unit[:, 4:], (m, 6, 2)))
    weights = xp.asarray(rows.swapaxes(1, 2), dtype=end.slopes.dtype) @ end.slopes * t.root
    shift = xp.asarray(t.gradients[-1].adjoint(weights), dtype=t.solved)
    planes = shift.reshape(m, 2, SIDE, SIDE)
    total = 0
    for image, maps, power in ((images[0], a, end.power_a), (images[1], end.maps, end.power)):
        variance, matrix = _patch_noise(image, maps, t)
        spread = (matrix[:, None] @ planes @ matrix[:, None]).reshape(m, 2, -1)
        share = variance / (power + POWER_EPSILON)
        total = total + share[:, None, None] * (shift @ spread.swapaxes(1, 2))
    return total


def total_covariances(end: Minimum, noise: ArrayOrTensor, t: Tables) -> ArrayOrTensor:
    """Return the covariances (m, 2, 2) of the positions by all errors, in σ of the second frames.

    The residual of a least-squares fit with n independent samples estimates the covariance of the
    fit, whatever the cause of the residual: image noise, surfaces that are not planar, shading,
    interpolation, or compression. With the cost c = |∇(f ∘ δ) − t|² and the Hessian H::

        C = c (1 + c / c₀) / n · [H⁻¹] for the shift

    n is much smaller than the number of samples, because neighbors are correlated, and decreases
    with the cost: noise is correlated over short distances, other errors over long ones. n and c₀
    are ``RESIDUAL_SAMPLES`` and ``CORRELATED_COST``. ``noise`` (m, 2, 2) is the part of image
    noise, of which the result has at least the trace: noise + max(0, 1 − tr noise / tr C) C.
    """
    xp, m = namespace(noise), len(noise)
    rows = solve(end.hessian + DIAGONAL_EPSILON * t.unit, xp.broadcast_to(t.unit[:, 4:], (m, 6, 2)))
    variance = end.cost * (1 + end.cost / CORRELATED_COST) / RESIDUAL_SAMPLES
    residual = variance[:, None, None] * rows[:, 4:]
    trace = residual[:, 0, 0] + residual[:, 1, 1]
    excess = (trace - noise[:, 0, 0] - noise[:, 1, 1]).clip(0, None) / (trace + POWER_EPSILON)
    return noise + excess[:, None, None] * residual


def descend(
    images: tuple[Image, Image],
    a: ArrayOrTensor,
    b: ArrayOrTensor,
    t: Tables,
    max_start_cost: float = np.inf,
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Return the maps, both covariances and the statistics of frames a and b (m, 2, 3).

    See :func:`caloric.matching.refinement.descend`.
    """
    xp, last = namespace(b), len(BLURS) - 1
    patches, maps = images[0].patches(a), b
    is_plausible: ArrayOrTensor = True
    if np.isfinite(max_start_cost):
        template, start = (fields(v, t.gradients[0], t)[0] for v in (patches, images[1].patches(b)))
        is_plausible = ((start - template) ** 2).sum(1) < max_start_cost
    for blur in range(last):
        end = minimize(patches, images[1], maps, blur, t)
        maps, is_plausible = end.maps, is_plausible & (end.cost < MAX_COST)
    end = minimize(patches, images[1], maps, last, t)
    start, _ = fields(images[1].patches(b), t.gradients[last], t)
    before = xp.asarray(((start - end.template) ** 2).sum(1), dtype=t.solved)
    statistics = xp.stack([before, end.cost, end.power_a], 1) * is_plausible[:, None]
    noise = covariances(end, a, images, t)
    return end.maps, noise, total_covariances(end, noise, t), statistics
