"""Refinement of matches to sub-pixel, affine-corrected agreement by a short continuation.

The template of a match is the gradient field of the first image in the coordinates of its frame;
the second frame is moved until its field agrees. This is what :func:`caloric.align` does for one
template, done for thousands of small ones at once, at two σ.

With f the second image in the coordinates of its frame B, ∇f blurred by σ and divided by its root
mean square, and t the same of the first image, each step minimises the windowed |∇(f ∘ δ) − t|²
over the affine map δ, linearised at the template, and replaces B by B ∘ δ⁻¹. The compiled core has
the same steps; it takes its constants from here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import fields
from caloric.frames import sigmas
from caloric.runtime import native, threads
from caloric.types import FloatArray, Pixels

SIDE = 21  # samples across a neighbourhood
REACH = 5.0  # σ from the centre to the edge of a neighbourhood
SPACING = 2 * REACH / (SIDE - 1)  # σ from a sample to the next
BLURS = (1.0, 0.5)  # σ of the continuation, in samples
STEPS = (4, 2)  # at each blur
SETTLED = 1e-4  # the largest change of a parameter in the last step
LONGEST = 0.4  # the largest change of a parameter per step: the update stays invertible
# Levenberg and Marquardt's damping
DAMPING, RELATIVE = 1e-3, 1e-6  # at first, and what is added to the diagonal, of the trace
FALL = 5.0  # what it is divided by after a step that lowers the cost
RISE, RAISED = 10.0, 1e-2  # what it is multiplied by after one that does not, and its least then
HOPELESS = 1.0  # the cost after the first blur that ends a match; unrelated fields have 2
_FARTHEST = 1.0  # σ of the second frame: the largest shift of a match
_LARGEST = 1.7  # the largest factor by which the frame may be stretched
_WORST = 0.5  # the largest cost of a refined match
_FLAT = 1e-4  # mean square gradient, for pixels in [0, 1], below which a patch counts as flat
_BLOCK, _SMALL_BLOCK = 512, 64  # matches, by NumPy and by the core
FINEST = 0.4  # pixels between samples, for the correlation of their noise
LAGS = 6  # samples over which noise is correlated
NOTHING = 1e-12  # what is added to mean square gradients
LEAST = 1e-9  # what is added to diagonals: without any gradient the step is 0

_LINE = np.linspace(-REACH, REACH, SIDE)
GRID = np.stack(np.meshgrid(_LINE, _LINE), -1).reshape(-1, 2)
_WINDOW = np.exp(-(GRID**2).sum(1) / (2 * (REACH / 2) ** 2))
ROOT = np.sqrt(_WINDOW / _WINDOW.sum()).astype(np.float32)  # √w, Σ w = 1
DIFFERENCES: FloatArray = np.asarray(np.gradient(np.eye(SIDE), SPACING, axis=0))


@dataclass(frozen=True, eq=False)
class Refined:
    """The refined second frames, and how well each is known.

    Attributes
    ----------
    maps : array (m, 2, 3)
        The frames; :attr:`xy` are their places.
    moved : array (m,) of bool
        Which are refined; the others are as they were.
    covariances : array (m, 2, 2)
        Those of the places in square pixels, infinite where nothing was refined.
    """

    maps: FloatArray
    moved: NDArray[np.bool_]
    covariances: FloatArray

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.maps)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        return f"Refined({int(self.moved.sum())} of {len(self)} frames)"

    @property
    def xy(self) -> FloatArray:
        """The places (m, 2) of the frames in the second image."""
        return self.maps[:, :, 2]


@dataclass(frozen=True, eq=False)
class Filters:
    """What makes the field of a patch P: ∂f/∂x = S P Dᵀ and ∂f/∂y = D P Sᵀ, per σ of the frame.

    ``smooth`` S blurs rows or columns, ``slope`` D = ∂S; both (SIDE, SIDE), banded.
    """

    smooth: Pixels
    slope: Pixels


@cache
def filters(blur: float) -> Filters:
    """Return the filters for a blur by so many samples; a patch goes on as at its edge."""
    reach = int(np.ceil(3 * blur))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / blur) ** 2)
    index = np.arange(SIDE)[:, None] + np.arange(-reach, reach + 1)
    smooth = np.zeros((SIDE, SIDE))
    np.add.at(smooth, (np.arange(SIDE)[:, None], np.clip(index, 0, SIDE - 1)), taps / taps.sum())
    slope = DIFFERENCES @ smooth
    return Filters(smooth.astype(np.float32), slope.astype(np.float32))


def _octaves(image: Pixels) -> list[Pixels]:
    levels = []
    for level in fields.halves(image):
        levels.append(np.ascontiguousarray(level))
        if min(level.shape) < 32:
            break
    return levels


def _levels(maps: FloatArray, count: int) -> NDArray[np.intp]:
    """Return the levels (m,) that frames are read from: no coarser than the samples."""
    octave = np.log2(np.maximum(sigmas(maps) * SPACING, 1e-9))
    return np.clip(np.floor(octave), 0, count - 1).astype(np.intp)


def _patches(levels: list[Pixels], maps: FloatArray) -> Pixels:
    """Return patches (m, SIDE, SIDE) around frames, bilinear."""
    from scipy import ndimage  # only without the core: it takes long to import

    octave = _levels(maps, len(levels))
    xy = np.einsum("mij,nj->imn", maps[:, :, :2], GRID) + maps[:, :, 2].T[:, :, None]
    xy /= 2.0 ** octave[:, None]
    result = np.empty((len(maps), SIDE * SIDE), np.float32)
    for level in np.unique(octave):
        rows = np.flatnonzero(octave == level)
        where = xy[::-1, rows].reshape(2, -1)
        values = ndimage.map_coordinates(
            levels[level], where, np.float32, order=1, mode="nearest", prefilter=False
        )
        result[rows] = values.reshape(len(rows), -1)
    return result.reshape(len(maps), SIDE, SIDE)


def _fields(patches: Pixels, by: Filters) -> tuple[Pixels, FloatArray]:
    """Return √w ∇f over its root mean square (m, 2, n), and the mean square (m,)."""
    across, down = by.smooth @ patches @ by.slope.T, by.slope @ patches @ by.smooth.T
    values = np.stack([across, down], 1).reshape(len(patches), 2, -1) * ROOT
    power = np.einsum("mcn,mcn->m", values, values).astype(np.float64)
    return values / np.sqrt(power + NOTHING)[:, None, None].astype(np.float32), power


def _slopes(template: Pixels) -> Pixels:
    """Return √w ∂/∂δ of the field ∇(t ∘ δ) at δ = 0, (m, 6, 2 n), for √w ∇t (m, 2, n).

    ∇(t ∘ δ) = δᵀ ∇t ∘ δ: the field is moved, and its vectors are rotated and scaled.
    """
    gradient = template / ROOT
    planes = gradient.reshape(-1, 2, SIDE, SIDE)
    differences = DIFFERENCES.astype(np.float32)
    across = (planes @ differences.T).reshape(template.shape)
    down = (differences @ planes).reshape(template.shape)
    x, y = GRID.T.astype(np.float32)
    slopes = np.stack([across * x, across * y, down * x, down * y, across, down], 1)
    slopes[:, 0, 0] += gradient[:, 0]
    slopes[:, 1, 1] += gradient[:, 0]
    slopes[:, 2, 0] += gradient[:, 1]
    slopes[:, 3, 1] += gradient[:, 1]
    slopes = (slopes * ROOT).reshape(len(template), 6, -1)
    # Fields are divided by their root mean square: a larger template is the same template.
    flat = template.reshape(len(template), -1, 1)
    return np.asarray(slopes - (slopes @ flat) * flat.transpose(0, 2, 1), np.float32)


def _moved(maps: FloatArray, steps: FloatArray) -> FloatArray:
    """Return B ∘ δ⁻¹ (m, 2, 3) of maps B (m, 2, 3) and parameters of δ (m, 6)."""
    delta = np.zeros((len(maps), 3, 3))
    delta[:, 2, 2] = 1
    delta[:, 0], delta[:, 1] = steps[:, [0, 1, 4]], steps[:, [2, 3, 5]]
    delta[:, [0, 1], [0, 1]] += 1
    return np.asarray(maps @ np.linalg.inv(delta))


@dataclass(frozen=True, eq=False)
class _Minimum:
    """Where the steps at one σ ended: maps, costs (m,), mean square gradients, slopes, Hessians."""

    maps: FloatArray
    cost: FloatArray
    power: FloatArray
    power_a: FloatArray
    slopes: Pixels
    hessian: FloatArray
    template: Pixels


def _minimised(
    patches: Pixels, second: list[Pixels], b: FloatArray, by: Filters, steps: int
) -> _Minimum:
    """Return what the steps at one σ lead to; ``patches`` (m, SIDE, SIDE) are of the first image.

    A step that does not lower the cost is not taken.
    """
    template, power_a = _fields(patches, by)
    slopes = _slopes(template)
    hessian = (slopes @ slopes.transpose(0, 2, 1)).astype(np.float64)
    least = RELATIVE * np.trace(hessian, axis1=1, axis2=2)[:, None, None] + LEAST
    diagonal = (hessian + least) * np.eye(6)
    count = len(b)
    damping, active = np.full(count, DAMPING), np.ones(count, bool)

    def residuals(maps: FloatArray) -> tuple[Pixels, FloatArray, FloatArray]:
        values, power = _fields(_patches(second, maps), by)
        residual = (values - template).reshape(count, -1)
        return residual, np.einsum("mn,mn->m", residual, residual).astype(np.float64), power

    residual, cost, power = residuals(b)
    for _ in range(steps):
        gradient = (slopes @ residual[:, :, None]).astype(np.float64)
        step = np.linalg.solve(hessian + damping[:, None, None] * diagonal, gradient)[:, :, 0]
        step = np.clip(step, -LONGEST, LONGEST)
        trial = _moved(b, step)
        new, new_cost, new_power = residuals(trial)
        lower = active & (new_cost < cost)
        b = np.where(lower[:, None, None], trial, b)
        residual = np.where(lower[:, None], new, residual)
        cost, power = np.where(lower, new_cost, cost), np.where(lower, new_power, power)
        damping = np.where(lower, damping / FALL, np.maximum(RISE * damping, RAISED))
        active &= ~(lower & (np.abs(step).max(1) < SETTLED))
        if not active.any():
            break
    return _Minimum(b, cost, power, power_a, slopes, hessian, template)


# Covariances.

SMOOTHEST = 10  # per cent of the blocks
OF_NOISE = 0.793  # that percentile of the blocks' root mean squares, of white noise of variance 1
ROUNDING = 1 / 255 / 12**0.5  # the standard deviation of rounding to 8 bits
_BAND = 10, 32  # rows that are looked at, of so many


def noise_level(image: Pixels) -> float:
    """Return an estimate of the standard deviation of the noise in an image.

    It is what second differences in both directions leave in the smoothest blocks of 8 x 8 pixels,
    at least the rounding to 8 bits; an image that is rough everywhere counts as noisy.
    """
    some = bands(image)
    if some is None:
        return ROUNDING
    rough = np.diff(np.diff(some, 2, axis=1), 2, axis=2) / 6  # white noise keeps its variance
    blocks = np.sqrt((rough**2).reshape(len(rough), 8, -1, 8).mean((1, 3)))
    return max(ROUNDING, float(np.percentile(blocks, SMOOTHEST) / OF_NOISE))


def bands(image: Any) -> Any:
    """Return bands of rows (k, 10, w) of an image or tensor, for blocks of 8 x 8; None if small."""
    rows, period = _BAND
    height, width = image.shape
    h = height // period * period if height >= period else rows
    w = (width - 2) // 8 * 8 + 2
    if height < rows or w < 10:
        return None
    return image[:h, :w].reshape(-1, min(h, period), w)[:, :rows]


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


def _spline(x: FloatArray) -> FloatArray:
    """Return the cubic B-spline: the mean correlation of bilinear samples that are x apart."""
    far = np.clip(2 - np.abs(x), 0, None) ** 3 / 6
    return np.asarray(far - 4 * np.clip(1 - np.abs(x), 0, None) ** 3 / 6)


def _noise(maps: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return variances (m,) of noise in patches and its correlations (m, LAGS) along a row."""
    octave = _levels(maps, count)
    apart = np.maximum(sigmas(maps) * SPACING / 2.0**octave, FINEST)
    variances, correlations = zip(*(noise_of(i) for i in range(count)), strict=True)
    pixels = np.array(correlations)[octave]
    lags = np.arange(LAGS) * np.asarray(apart, np.float64)[:, None]
    result = np.asarray(pixels[:, :1] * _spline(lags))
    for i in range(1, 4):
        result = result + pixels[:, i, None] * (_spline(lags - i) + _spline(lags + i))
    return np.array(variances)[octave], result


def _covariances(
    end: _Minimum, a: FloatArray, counts: tuple[int, int], noise: tuple[float, float], by: Filters
) -> FloatArray:
    """Return the covariances (m, 2, 2) of the places, in σ of the second frames.

    A step is linear in the residual, and that in the pixels of both images: their noise, of the
    standard deviations ``noise``, gives the covariance of the step.
    """
    m = len(a)
    # δ = H⁻¹ Σ slope · residual: how the shift depends on the residual, then on the patch.
    rows = np.linalg.solve(end.hessian + LEAST * np.eye(6), np.eye(6)[:, 4:]).transpose(0, 2, 1)
    planes = ((rows @ end.slopes).reshape(m, 2, 2, -1) * ROOT).reshape(m, 2, 2, SIDE, SIDE)
    shift = by.smooth.T @ planes[:, :, 0] @ by.slope + by.slope.T @ planes[:, :, 1] @ by.smooth
    distance = np.abs(np.subtract.outer(np.arange(SIDE), np.arange(SIDE)))
    total = np.zeros((m, 2, 2))
    for maps, power, count, level in zip(
        (a, end.maps), (end.power_a, end.power), counts, noise, strict=True
    ):
        variance, correlation = _noise(maps, count)
        matrix = np.where(distance < LAGS, correlation[:, np.minimum(distance, LAGS - 1)], 0)
        seen = matrix[:, None] @ shift @ matrix[:, None]
        share = level**2 * variance / (power + NOTHING)
        total += share[:, None, None] * np.einsum("mpij,mqij->mpq", shift, seen)
    return total


# All matches.


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where the steps ended, whether that is better or not.

    ``maps`` (m, 2, 3); ``shifts`` (m, 2, 2), the covariances of the places in σ of the frames;
    ``figures`` (m, 3), the cost before and after, at the last σ, and the mean square gradient of
    the first image, all 0 where there was no hope.
    """

    maps: FloatArray
    shifts: FloatArray
    figures: FloatArray


Descent = Callable[[Pixels, Pixels, FloatArray, FloatArray], Outcome]


def refine(
    image_a: Pixels,
    image_b: Pixels,
    a: FloatArray,
    b: FloatArray,
    descent: Descent | None = None,
) -> Refined:
    """Return the second frames b (m, 2, 3) moved to agree with the first frames a (m, 2, 3).

    A frame is left unchanged if it would move by more than its σ, be stretched by more than 1.7 or
    agree less than before, or if the patch of the first image is flat. ``descent`` makes the steps,
    by default :func:`descend`.
    """
    if min(*image_a.shape, *image_b.shape) < 2 or len(a) == 0:
        infinite = np.broadcast_to(np.diag([np.inf, np.inf]), (len(b), 2, 2))
        return Refined(b, np.zeros(len(b), bool), infinite.copy())
    end = (descent or descend)(image_a, image_b, a, b)
    before, cost, power = end.figures.T
    # Rounding is no improvement.
    better = cost < (1 - 1e-4) * before
    fits = (power > _FLAT) & better & (cost < _WORST) & _allowed(b, end.maps)
    linear = end.maps[:, :, :2]
    with np.errstate(invalid="ignore"):
        covariances = linear @ end.shifts @ linear.transpose(0, 2, 1)
    fits &= np.isfinite(covariances).all((1, 2))
    return Refined(
        np.where(fits[:, None, None], end.maps, b),
        fits,
        np.where(fits[:, None, None], covariances, np.diag([np.inf, np.inf])),
    )


def descend(image_a: Pixels, image_b: Pixels, a: FloatArray, b: FloatArray) -> Outcome:
    """Return where the steps of all matches end, by the compiled core or else by NumPy."""
    levels, noises = zip(
        *threads.each(lambda v: (_octaves(v), noise_level(v)), (image_a, image_b)), strict=True
    )
    (first, second), noise = levels, (noises[0], noises[1])
    core = native.core()

    def block(rows: range) -> tuple[FloatArray, FloatArray, FloatArray]:
        part = slice(rows.start, rows.stop)
        if core is not None:
            return _by_core(core, first, second, a[part], b[part], noise)
        return _by_numpy(first, second, a[part], b[part], noise)

    parts = threads.each(block, threads.strips(len(a), _BLOCK if core is None else _SMALL_BLOCK))
    return Outcome(*(np.concatenate(v) for v in zip(*parts, strict=True)))


def _by_numpy(
    first: list[Pixels],
    second: list[Pixels],
    a: FloatArray,
    b: FloatArray,
    noise: tuple[float, float],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the fields of an :class:`Outcome`."""
    patches = _patches(first, a)
    by = [filters(blur) for blur in BLURS]
    moved, rows = b.copy(), np.arange(len(b))
    for one, steps in zip(by[:-1], STEPS[:-1], strict=True):
        end = _minimised(patches[rows], second, moved[rows], one, steps)
        moved[rows] = end.maps
        rows = rows[end.cost < HOPELESS]
    shifts, figures = np.full((len(b), 2, 2), np.inf), np.zeros((len(b), 3))
    if len(rows):
        end = _minimised(patches[rows], second, moved[rows], by[-1], STEPS[-1])
        moved[rows] = end.maps
        counts = len(first), len(second)
        shifts[rows] = _covariances(end, a[rows], counts, noise, by[-1])
        start, _ = _fields(_patches(second, b[rows]), by[-1])
        before = ((start - end.template) ** 2).sum((1, 2))
        figures[rows] = np.stack([before, end.cost, end.power_a], 1)
    return moved, shifts, figures


def _by_core(
    core: Any,
    first: list[Pixels],
    second: list[Pixels],
    a: FloatArray,
    b: FloatArray,
    noise: tuple[float, float],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what :func:`_by_numpy` does."""
    count = max(len(first), len(second))
    variances, correlations = zip(*(noise_of(i) for i in range(count)), strict=True)
    by = [filters(blur) for blur in BLURS]
    result = np.empty((len(a), 2, 3)), np.empty((len(a), 2, 2)), np.empty((len(a), 3))
    core.refine_matches(
        first=first, second=second, a=np.ascontiguousarray(a), b=np.ascontiguousarray(b),
        window=ROOT.reshape(SIDE, SIDE), filters=[(one.smooth, one.slope) for one in by],
        steps=list(STEPS),
        constants={
            "spacing": SPACING, "tolerance": SETTLED, "max_step": LONGEST, "damping": DAMPING,
            "damping_decrease": FALL, "damping_increase": RISE, "min_increased_damping": RAISED,
            "relative_damping": RELATIVE, "max_cost": HOPELESS, "power_epsilon": NOTHING,
            "diagonal_epsilon": LEAST, "min_noise_spacing": FINEST,
        },
        noise=np.array(noise), variances=np.array(variances), correlations=np.array(correlations),
        maps=result[0], covariances=result[1], statistics=result[2],
    )  # fmt: skip
    return result


def _allowed(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Return which frames (m,) moved by at most σ and were not stretched too much."""
    shift = np.linalg.norm(after[:, :, 2] - before[:, :, 2], axis=1)
    change = np.linalg.solve(before[:, :, :2], after[:, :, :2])
    stretch = np.linalg.svd(change, compute_uv=False)
    near = shift <= _FARTHEST * sigmas(before)
    return np.asarray(near & (stretch[:, 0] <= _LARGEST) & (stretch[:, 1] >= 1 / _LARGEST))
