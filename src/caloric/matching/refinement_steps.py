"""The steps of the refinement of matches, written once for NumPy arrays and torch tensors.

With f the second image in the coordinates of its frame B, ∇f blurred by σ and divided by its root
mean square, and t the same of the first image, each step minimizes the windowed |∇(f ∘ δ) − t|²
over the affine map δ, linearized at the template, and replaces B by B ∘ δ⁻¹. The compiled core has
the same steps; it takes its constants from here.

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

SIDE = 21  # samples across a neighborhood
REACH = 5.0  # σ from the center to the edge of a neighborhood
SPACING = 2 * REACH / (SIDE - 1)  # σ from a sample to the next
BLURS = (1.0, 0.5)  # σ of the continuation, in samples
STEPS = (4, 2)  # at each blur
SETTLED = 1e-4  # the largest change of a parameter in the last step
LONGEST = 0.4  # the largest change of a parameter per step: the update stays invertible
# Levenberg-Marquardt damping
DAMPING, RELATIVE = 1e-3, 1e-6  # initial value, and share of the trace added to the diagonal
FALL = 5.0  # divisor after a step that lowers the cost
RISE, RAISED = 10.0, 1e-2  # factor after a step that does not, and the smallest value then
HOPELESS = 1.0  # the cost after the first blur that ends a match; unrelated fields have 2
FINEST = 0.4  # pixels between samples, for the correlation of their noise
LAGS = 6  # samples over which noise is correlated
NOTHING = 1e-12  # added to mean square gradients
LEAST = 1e-9  # added to diagonals: without any gradient the step is 0

_LINE = np.linspace(-REACH, REACH, SIDE)
GRID = np.stack(np.meshgrid(_LINE, _LINE), -1).reshape(-1, 2)
_WINDOW = np.exp(-(GRID**2).sum(1) / (2 * (REACH / 2) ** 2))
ROOT = np.sqrt(_WINDOW / _WINDOW.sum()).astype(np.float32)  # √w, Σ w = 1
DIFFERENCES: FloatArray = np.asarray(np.gradient(np.eye(SIDE), SPACING, axis=0))
_DISTANCE = np.abs(np.subtract.outer(np.arange(SIDE), np.arange(SIDE)))


class Gradient(Protocol):
    """The linear map from patches to their blurred gradients, with its adjoint."""

    def apply(self, patches: ArrayOrTensor) -> ArrayOrTensor:
        """Return ∂f/∂x and ∂f/∂y (m, 2 n), per σ of the frame, of patches (m, n)."""

    def adjoint(self, weights: ArrayOrTensor) -> ArrayOrTensor:
        """Return the weights (m, k, n) of pixels, given weights (m, k, 2 n) of gradients."""


@dataclass(frozen=True, eq=False)
class Filters:
    """The gradient of a patch P as ∂f/∂x = S P Dᵀ and ∂f/∂y = D P Sᵀ: a :class:`Gradient`.

    ``smooth`` S blurs rows or columns, ``slope`` D = ∂S; both (SIDE, SIDE), banded.
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
    """What does not depend on the matches, on one device.

    ``solved`` is the type in which 6 x 6 systems are solved, and ``gradients`` has an operator for
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

    ``noise`` () is the standard deviation of its noise; the others are :func:`level_noise`.
    """

    noise: ArrayOrTensor
    spacings: ArrayOrTensor
    variances: ArrayOrTensor
    correlations: ArrayOrTensor

    @abstractmethod
    def patches(self, maps: ArrayOrTensor) -> ArrayOrTensor:
        """Return patches (m, n) float32 around frames (m, 2, 3), bilinear."""


def octaves(maps: ArrayOrTensor, count: int) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return the levels (m,) that frames are read from, and the frames' σ (m,).

    A level is no coarser than the samples.
    """
    xp, sigma = namespace(maps), sigmas(maps)
    octave = xp.floor(xp.log2((sigma * SPACING).clip(1e-9, None)))
    return xp.asarray(octave.clip(0, count - 1), dtype=xp.int64), sigma


def fields(
    patches: ArrayOrTensor, gradient: Gradient, t: Tables
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return √w ∇f over its root mean square (m, 2 n), and the mean square (m,)."""
    values = gradient.apply(patches) * t.root
    power = (values * values).sum(1)
    xp = namespace(values)
    return values / xp.sqrt(power + NOTHING)[:, None], xp.asarray(power, dtype=t.solved)


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
    # Fields are divided by their root mean square: a larger template is the same template.
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
    """Return H⁻¹ g (m, 6, k) by Cholesky, written out: a library's batches of 6 x 6 are slower."""
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
    """Where the steps at one σ ended: maps, costs (m,), mean square gradients, slopes, Hessians."""

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
    """Return where the steps at the blur of that number lead from frames b (m, 2, 3).

    ``patches`` (m, n) are those of the first image. A step that does not lower the cost is not
    taken.
    """
    xp, gradient = namespace(b), t.gradients[blur]
    template, power_a = fields(patches, gradient, t)
    across = slopes(template, t)
    hessian = xp.asarray(across @ across.swapaxes(1, 2), dtype=t.solved)
    least = RELATIVE * (hessian * t.unit).sum((1, 2)) + LEAST
    diagonal = (hessian + least[:, None, None]) * t.unit
    damping = xp.full_like(power_a, DAMPING)
    active = damping > 0

    def residuals(maps: ArrayOrTensor) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
        values, power = fields(second.patches(maps), gradient, t)
        residual = values - template
        return residual, xp.asarray((residual * residual).sum(1), dtype=t.solved), power

    residual, cost, power = residuals(b)
    for _ in range(STEPS[blur]):
        downhill = xp.asarray(across @ residual[:, :, None], dtype=t.solved)
        step = solve(hessian + damping[:, None, None] * diagonal, downhill)[:, :, 0]
        step = step.clip(-LONGEST, LONGEST)
        trial = moved(b, step)
        new, new_cost, new_power = residuals(trial)
        lower = active & (new_cost < cost)
        b = xp.where(lower[:, None, None], trial, b)
        residual = xp.where(lower[:, None], new, residual)
        cost, power = xp.where(lower, new_cost, cost), xp.where(lower, new_power, power)
        damping = xp.where(lower, damping / FALL, (RISE * damping).clip(RAISED, None))
        active = active & ~(lower & (xp.amax(abs(step), 1) < SETTLED))
    return Minimum(b, cost, power, power_a, across, hessian, template)


# Covariances.

SMOOTHEST = 10  # per cent of the blocks
OF_NOISE = 0.793  # that percentile of the blocks' root mean squares, of white noise of variance 1
ROUNDING = 1 / 255 / 12**0.5  # the standard deviation of rounding to 8 bits
_BAND = 10, 32  # rows that are used, of so many


def noise_level(image: ArrayOrTensor) -> ArrayOrTensor:
    """Return an estimate () of the standard deviation of the noise in an image (h, w).

    It is what second differences in both directions leave in the smoothest blocks of 8 x 8 pixels,
    at least the rounding to 8 bits; an image that is rough everywhere counts as noisy.
    """
    xp = namespace(image)
    bands = _bands(image)
    if bands is None:
        return xp.full_like(image[0, 0], ROUNDING, dtype=xp.float64)
    rough = xp.diff(xp.diff(bands, 2, 1), 2, 2) / 6  # white noise keeps its variance
    blocks = xp.sqrt((rough**2).reshape(len(rough), 8, -1, 8).mean((1, 3)))
    estimate = xp.asarray(percentile(blocks, SMOOTHEST) / OF_NOISE, dtype=xp.float64)
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
    """Return spacings and variances (count,) and correlations (count, 4) of levels.

    Spacings are in pixels of the image, variances are those of the levels' pixels for white noise
    of variance 1 in the image, and correlations those between pixels 0 to 3 apart in a row.
    """
    both = [noise_of(i) for i in range(count)]
    return np.exp2(np.arange(count)), np.array([v for v, _ in both]), np.array([c for _, c in both])


@cache
def noise_of(level: int) -> tuple[float, FloatArray]:
    """Return the variance of a level's pixels for white noise of variance 1 in the image.

    Also its correlation between pixels 0 to 3 apart in a row.
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
    """Return the cubic B-spline: the mean correlation of bilinear samples that are x apart."""
    return (2 - abs(x)).clip(0, None) ** 3 / 6 - 4 * (1 - abs(x)).clip(0, None) ** 3 / 6


def _patch_noise(
    image: Image, maps: ArrayOrTensor, t: Tables
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return variances (m,) of noise in patches and correlations (m, SIDE, SIDE) along a row."""
    xp = namespace(maps)
    octave, sigma = octaves(maps, len(image.spacings))
    apart = (sigma * SPACING / image.spacings[octave]).clip(FINEST, None)
    pixels = image.correlations[octave]
    lags = t.distance[0, :LAGS] * apart[:, None]
    along = pixels[:, :1] * spline(lags)
    for i in range(1, 4):
        along = along + pixels[:, i, None] * (spline(lags - i) + spline(lags + i))
    matrix = along[:, t.distance.clip(None, LAGS - 1)] * (t.distance < LAGS)
    variance = image.variances[octave] * image.noise**2
    return xp.asarray(variance, dtype=t.solved), xp.asarray(matrix, dtype=t.solved)


def covariances(
    end: Minimum, a: ArrayOrTensor, images: tuple[Image, Image], t: Tables
) -> ArrayOrTensor:
    """Return the covariances (m, 2, 2) of the positions, in σ of the second frames.

    A step is linear in the residual, and that in the pixels of both images: their noise gives the
    covariance of the step.
    """
    xp, m = namespace(a), len(a)
    # δ = H⁻¹ Σ slope · residual: how the shift depends on the residual, then on the patch.
    rows = solve(end.hessian + LEAST * t.unit, xp.broadcast_to(t.unit[:, 4:], (m, 6, 2)))
    weights = xp.asarray(rows.swapaxes(1, 2), dtype=end.slopes.dtype) @ end.slopes * t.root
    shift = xp.asarray(t.gradients[-1].adjoint(weights), dtype=t.solved)
    planes = shift.reshape(m, 2, SIDE, SIDE)
    total = 0
    for image, maps, power in ((images[0], a, end.power_a), (images[1], end.maps, end.power)):
        variance, matrix = _patch_noise(image, maps, t)
        spread = (matrix[:, None] @ planes @ matrix[:, None]).reshape(m, 2, -1)
        share = variance / (power + NOTHING)
        total = total + share[:, None, None] * (shift @ spread.swapaxes(1, 2))
    return total


def descend(
    images: tuple[Image, Image], a: ArrayOrTensor, b: ArrayOrTensor, t: Tables
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Return maps (m, 2, 3), covariances (m, 2, 2) and figures (m, 3) of frames a and b (m, 2, 3).

    See :class:`caloric.matching.refinement.Outcome`.
    """
    xp, last = namespace(b), len(BLURS) - 1
    patches, maps = images[0].patches(a), b
    hopeful: ArrayOrTensor = True
    for blur in range(last):
        end = minimize(patches, images[1], maps, blur, t)
        maps, hopeful = end.maps, hopeful & (end.cost < HOPELESS)
    end = minimize(patches, images[1], maps, last, t)
    start, _ = fields(images[1].patches(b), t.gradients[last], t)
    before = xp.asarray(((start - end.template) ** 2).sum(1), dtype=t.solved)
    figures = xp.stack([before, end.cost, end.power_a], 1) * hopeful[:, None]
    return end.maps, covariances(end, a, images, t), figures
