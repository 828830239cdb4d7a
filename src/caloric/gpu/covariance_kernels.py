"""Triton kernels for the covariances of refined matches; formulas are in refinement_steps.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu.cholesky_kernels import solve
from caloric.gpu.patch_kernels import SAMPLES, WIDTH, octave, sigma
from caloric.gpu.refinement import STATISTICS, Octaves
from caloric.matching import refinement_steps as steps

_TILE = triton.next_power_of_2(steps.SIDE)  # samples across a tile


@triton.jit
def _weigh(
    slopes, hessians, roots, weights, inverses,
    SAMPLES: tl.constexpr, WIDTH: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """Store the weights of the gradients in one coordinate of the shift."""
    program = tl.program_id(0).to(tl.int64)
    match, axis = program // 2, program % 2
    at = tl.arange(0, WIDTH)
    inside = at < SAMPLES
    zero = tl.full((), 0.0, tl.float32)
    u0, u1, u2, u3, u4, u5 = solve(
        hessians + 36 * match, 1.0, DIAGONAL,
        zero, zero, zero, zero, tl.where(axis == 0, 1.0, 0.0), tl.where(axis == 0, 0.0, 1.0),
    )  # fmt: skip
    tl.store(inverses + 2 * program, u4)
    tl.store(inverses + 2 * program + 1, u5)
    root = tl.load(roots + at, mask=inside, other=0.0)
    for part in tl.static_range(2):
        d = slopes + match * (12 * SAMPLES) + part * SAMPLES + at
        total = u0 * tl.load(d, mask=inside, other=0.0)
        total += u1 * tl.load(d + 2 * SAMPLES, mask=inside, other=0.0)
        total += u2 * tl.load(d + 4 * SAMPLES, mask=inside, other=0.0)
        total += u3 * tl.load(d + 6 * SAMPLES, mask=inside, other=0.0)
        total += u4 * tl.load(d + 8 * SAMPLES, mask=inside, other=0.0)
        total += u5 * tl.load(d + 10 * SAMPLES, mask=inside, other=0.0)
        tl.store(weights + program * (2 * SAMPLES) + part * SAMPLES + at, total * root, mask=inside)


@triton.jit
def _spline(x):
    x = tl.abs(x)
    a, b = tl.maximum(2 - x, 0.0), tl.maximum(1 - x, 0.0)
    return a * a * a / 6 - 4 * b * b * b / 6


@triton.jit
def _noise(
    variances, correlations, spacings, count, noise, m00, m01, m10, m11, lag, near,
    SPACING: tl.constexpr, MIN_SPACING: tl.constexpr,
):  # fmt: skip
    """Return the variance of the noise of a patch and its correlations along a row."""
    size = sigma(m00, m01, m10, m11)
    level = octave(size, count, SPACING)
    between = tl.maximum(size * SPACING / tl.load(spacings + level), MIN_SPACING).to(tl.float32)
    x = lag * between
    matrix = tl.load(correlations + 4 * level).to(tl.float32) * _spline(x)
    for i in tl.static_range(1, 4):
        value = tl.load(correlations + 4 * level + i).to(tl.float32)
        matrix += value * (_spline(x - i) + _spline(x + i))
    deviation = tl.load(noise)
    variance = (tl.load(variances + level) * deviation * deviation).to(tl.float32)
    return variance, tl.where(near, matrix, 0.0)


@triton.jit
def _spread(matrix, x, y):
    """Return the products of two planes with each other, one of them blurred by a matrix."""
    bx = tl.dot(tl.dot(matrix, x, input_precision="ieee"), matrix, input_precision="ieee")
    by = tl.dot(tl.dot(matrix, y, input_precision="ieee"), matrix, input_precision="ieee")
    return tl.sum(x * bx), tl.sum(x * by), tl.sum(y * by)


@triton.jit(do_not_specialize=["count_a", "count_b"])
def _finish(
    spacings_a, variances_a, correlations_a, noise_a, count_a,
    spacings_b, variances_b, correlations_b, noise_b, count_b,
    frames_a, maps, shifts, inverse, power_a, before, numbers, plausible, result,
    SIDE: tl.constexpr, SPACING: tl.constexpr, TILE: tl.constexpr, MIN_SPACING: tl.constexpr,
    LAGS: tl.constexpr, EPSILON: tl.constexpr, RESIDUAL_SAMPLES: tl.constexpr,
    CORRELATED: tl.constexpr,
):  # fmt: skip
    """Store the outcome of a match, with the columns that refinement.py defines."""
    match = tl.program_id(0).to(tl.int64)
    out, m = result + 17 * match, maps + 6 * match
    for i in tl.static_range(6):
        tl.store(out + i, tl.load(m + i))
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    inside = (row < SIDE) & (column < SIDE)
    at = shifts + match * (2 * SIDE * SIDE) + row * SIDE + column
    x = tl.load(at, mask=inside, other=0.0)
    y = tl.load(at + SIDE * SIDE, mask=inside, other=0.0)
    steps = tl.abs(row - column)
    lag, near = steps.to(tl.float32), inside & (steps < LAGS)
    a = frames_a + 6 * match
    variance, matrix = _noise(
        variances_a, correlations_a, spacings_a, count_a, noise_a, tl.load(a), tl.load(a + 1),
        tl.load(a + 3), tl.load(a + 4), lag, near, SPACING, MIN_SPACING,
    )  # fmt: skip
    xx, xy, yy = _spread(matrix, x, y)
    power = tl.load(power_a + match)
    share = variance / (power + EPSILON)
    xx, xy, yy = share * xx, share * xy, share * yy
    variance, matrix = _noise(
        variances_b, correlations_b, spacings_b, count_b, noise_b, tl.load(m), tl.load(m + 1),
        tl.load(m + 3), tl.load(m + 4), lag, near, SPACING, MIN_SPACING,
    )  # fmt: skip
    bxx, bxy, byy = _spread(matrix, x, y)
    share = variance / (tl.load(numbers + 4 * match + 1) + EPSILON)
    xx, xy, yy = xx + share * bxx, xy + share * bxy, yy + share * byy
    tl.store(out + 6, xx.to(tl.float64))
    tl.store(out + 7, xy.to(tl.float64))
    tl.store(out + 8, xy.to(tl.float64))
    tl.store(out + 9, yy.to(tl.float64))
    cost = tl.load(numbers + 4 * match)
    u, v = inverse + 4 * match, inverse + 4 * match + 2
    residual = cost * (1 + cost / CORRELATED) / RESIDUAL_SAMPLES
    trace = residual * (tl.load(u) + tl.load(v + 1))
    residual *= tl.maximum(trace - xx - yy, 0.0) / (trace + EPSILON)
    tl.store(out + 10, (xx + residual * tl.load(u)).to(tl.float64))
    tl.store(out + 11, (xy + residual * tl.load(v)).to(tl.float64))
    tl.store(out + 12, (xy + residual * tl.load(u + 1)).to(tl.float64))
    tl.store(out + 13, (yy + residual * tl.load(v + 1)).to(tl.float64))
    is_plausible = tl.load(plausible + match)
    tl.store(out + 14, tl.where(is_plausible, tl.load(before + match), 0.0).to(tl.float64))
    tl.store(out + 15, tl.where(is_plausible, cost, 0.0).to(tl.float64))
    tl.store(out + 16, tl.where(is_plausible, power, 0.0).to(tl.float64))


def weights(slopes: Tensor, hessian: Tensor, roots: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights (m, 2, 2 n) of gradients in the shift, and [H⁻¹] (m, 2, 2) of the shift.

    ``slopes`` (m, 6, 2 n) and ``hessian`` (m, 6, 6) are those of the last step.
    """
    count, device = len(slopes), slopes.device
    result = torch.empty((count, 2, 2 * SAMPLES), device=device)
    inverse = torch.empty((count, 2, 2), device=device)
    _weigh[(2 * count,)](
        slopes, hessian, roots, result, inverse, SAMPLES=SAMPLES, WIDTH=WIDTH,
        DIAGONAL=steps.DIAGONAL_EPSILON,
    )  # fmt: skip
    return result, inverse


def finished(
    images: tuple[Octaves, Octaves], a: Tensor, maps: Tensor, shifts: Tensor, **numbers: Tensor
) -> Tensor:
    """Return the outcome (m, 17) of matches.

    ``a`` and ``maps`` (m, 2, 3) are the frames, ``shifts`` (m, 2, n) the weights of the pixels in
    the shift, ``numbers`` the other tensors of :func:`_finish`.
    """
    result = torch.empty((len(a), STATISTICS.stop), dtype=torch.float64, device=a.device)
    noise = [(v.spacings, v.variances, v.correlations, v.noise, len(v.starts)) for v in images]
    _finish[(len(a),)](
        *noise[0], *noise[1], a, maps, shifts, result=result, **numbers, SIDE=steps.SIDE,
        SPACING=steps.SPACING, TILE=_TILE, MIN_SPACING=steps.MIN_NOISE_SPACING, LAGS=steps.LAGS,
        EPSILON=steps.POWER_EPSILON, RESIDUAL_SAMPLES=steps.RESIDUAL_SAMPLES,
        CORRELATED=steps.CORRELATED_COST,
    )  # fmt: skip
    return result
