"""Triton kernels for the refinement of matches; the steps are in refinement_steps.py.

A program computes one match; gradients of patches are computed between these kernels.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu import covariance_kernels, gradient_kernels
from caloric.gpu.caches import cached
from caloric.gpu.cholesky_kernels import solve
from caloric.gpu.patch_kernels import SAMPLES, SHAPE, grid, levels, patch, patches
from caloric.gpu.refinement import Octaves
from caloric.matching import refinement_steps as steps


@triton.jit
def _field(gradients, root, match, at, inside, SAMPLES: tl.constexpr, EPSILON: tl.constexpr):
    """Return both parts of the normalized gradient of a patch, its mean square, and the norm."""
    g = gradients + match * (2 * SAMPLES) + at
    gx = tl.load(g, mask=inside, other=0.0) * root
    gy = tl.load(g + SAMPLES, mask=inside, other=0.0) * root
    power = tl.sum(gx * gx + gy * gy)
    norm = tl.sqrt(power + EPSILON)
    return gx / norm, gy / norm, power, norm


@triton.jit
def _without(sx, sy, tx, ty, out, at, inside, SAMPLES: tl.constexpr):
    """Store slopes without the component along the template."""
    along = tl.sum(sx * tx + sy * ty)
    sx, sy = sx - along * tx, sy - along * ty
    tl.store(out + at, sx, mask=inside)
    tl.store(out + SAMPLES + at, sy, mask=inside)


@triton.jit
def _prepare(
    gradients, roots, templates, slopes, powers,
    SIDE: tl.constexpr, REACH: tl.constexpr, SPACING: tl.constexpr, WIDTH: tl.constexpr,
    EPSILON: tl.constexpr,
):  # fmt: skip
    """Store the template, its mean square, and the slopes by the parameters of δ."""
    SAMPLES: tl.constexpr = SIDE * SIDE
    match = tl.program_id(0).to(tl.int64)
    at, inside, x, y = grid(SIDE, REACH, SPACING, WIDTH)
    root = tl.load(roots + at, mask=inside, other=0.0)
    tx, ty, power, norm = _field(gradients, root, match, at, inside, SAMPLES, EPSILON)
    tl.store(powers + match, power)
    tl.store(templates + match * (2 * SAMPLES) + at, tx, mask=inside)
    tl.store(templates + match * (2 * SAMPLES) + SAMPLES + at, ty, mask=inside)
    # Differences as in np.gradient
    column, row = at % SIDE, tl.where(inside, at // SIDE, 0)
    left, right = tl.maximum(column - 1, 0), tl.minimum(column + 1, SIDE - 1)
    above, below = tl.maximum(row - 1, 0), tl.minimum(row + 1, SIDE - 1)
    g = gradients + match * (2 * SAMPLES)
    across = root / ((right - left).to(tl.float32) * SPACING * norm)
    down = root / ((below - above).to(tl.float32) * SPACING * norm)
    left, right = row * SIDE + left, row * SIDE + right
    above, below = above * SIDE + column, below * SIDE + column
    ax = across * (
        tl.load(g + right, mask=inside, other=0.0) - tl.load(g + left, mask=inside, other=0.0)
    )
    dx = down * (
        tl.load(g + below, mask=inside, other=0.0) - tl.load(g + above, mask=inside, other=0.0)
    )
    g += SAMPLES
    ay = across * (
        tl.load(g + right, mask=inside, other=0.0) - tl.load(g + left, mask=inside, other=0.0)
    )
    dy = down * (
        tl.load(g + below, mask=inside, other=0.0) - tl.load(g + above, mask=inside, other=0.0)
    )
    out = slopes + match * (12 * SAMPLES)
    _without(ax * x + tx, ay * x, tx, ty, out, at, inside, SAMPLES)
    _without(ax * y, ay * y + tx, tx, ty, out + 2 * SAMPLES, at, inside, SAMPLES)
    _without(dx * x + ty, dy * x, tx, ty, out + 4 * SAMPLES, at, inside, SAMPLES)
    _without(dx * y, dy * y + ty, tx, ty, out + 6 * SAMPLES, at, inside, SAMPLES)
    _without(ax, ay, tx, ty, out + 8 * SAMPLES, at, inside, SAMPLES)
    _without(dx, dy, tx, ty, out + 10 * SAMPLES, at, inside, SAMPLES)


@triton.jit
def _product(slopes, rx, ry, at, inside, SAMPLES: tl.constexpr):
    """Return the product of stored slopes and a residual."""
    dx = tl.load(slopes + at, mask=inside, other=0.0)
    dy = tl.load(slopes + SAMPLES + at, mask=inside, other=0.0)
    return tl.sum(dx * rx + dy * ry)


@triton.jit(do_not_specialize=["count"])
def _step(
    pixels, starts, heights, widths, spacings, count, gradients, roots, templates, slopes, hessians,
    maps, trials, residuals, numbers, patches_b,
    FIRST: tl.constexpr, LAST: tl.constexpr, SIDE: tl.constexpr, REACH: tl.constexpr,
    SPACING: tl.constexpr, WIDTH: tl.constexpr, TOLERANCE: tl.constexpr, MAX_STEP: tl.constexpr,
    DAMPING: tl.constexpr, DECREASE: tl.constexpr, INCREASE: tl.constexpr,
    MIN_INCREASED: tl.constexpr, RELATIVE: tl.constexpr, DIAGONAL: tl.constexpr,
    EPSILON: tl.constexpr,
):  # fmt: skip
    """Accept the frame that was tried if its cost is lower; store the next one and its patch.

    ``numbers`` are the cost, the mean square, the damping, and the largest change of a parameter in
    the last step, or 0 after the last one.
    """
    SAMPLES: tl.constexpr = SIDE * SIDE
    match = tl.program_id(0).to(tl.int64)
    at, inside, x, y = grid(SIDE, REACH, SPACING, WIDTH)
    state = numbers + 4 * match
    m, t = maps + 6 * match, trials + 6 * match
    change = tl.load(state + 3)
    active = True if FIRST else change > 0
    if active:
        root = tl.load(roots + at, mask=inside, other=0.0)
        rx, ry, power, _ = _field(gradients, root, match, at, inside, SAMPLES, EPSILON)
        rx -= tl.load(templates + match * (2 * SAMPLES) + at, mask=inside, other=0.0)
        ry -= tl.load(templates + match * (2 * SAMPLES) + SAMPLES + at, mask=inside, other=0.0)
        cost = tl.sum(rx * rx + ry * ry)
        kept = residuals + match * (2 * SAMPLES) + at
        b00, b01, b02 = tl.load(t), tl.load(t + 1), tl.load(t + 2)
        b10, b11, b12 = tl.load(t + 3), tl.load(t + 4), tl.load(t + 5)
        if FIRST:
            damping = tl.full((), DAMPING, tl.float32)
            finished = False
        else:
            lower = cost < tl.load(state)
            rx = tl.where(lower, rx, tl.load(kept, mask=inside, other=0.0))
            ry = tl.where(lower, ry, tl.load(kept + SAMPLES, mask=inside, other=0.0))
            cost = tl.where(lower, cost, tl.load(state))
            power = tl.where(lower, power, tl.load(state + 1))
            damping = tl.load(state + 2)
            damping = tl.where(
                lower, damping / DECREASE, tl.maximum(INCREASE * damping, MIN_INCREASED)
            )
            b00, b01 = tl.where(lower, b00, tl.load(m)), tl.where(lower, b01, tl.load(m + 1))
            b02, b10 = tl.where(lower, b02, tl.load(m + 2)), tl.where(lower, b10, tl.load(m + 3))
            b11, b12 = tl.where(lower, b11, tl.load(m + 4)), tl.where(lower, b12, tl.load(m + 5))
            finished = lower & (change < TOLERANCE)
        tl.store(m, b00)
        tl.store(m + 1, b01)
        tl.store(m + 2, b02)
        tl.store(m + 3, b10)
        tl.store(m + 4, b11)
        tl.store(m + 5, b12)
        tl.store(state, cost)
        tl.store(state + 1, power)
        tl.store(state + 2, damping)
        if not LAST:
            tl.store(kept, rx, mask=inside)
            tl.store(kept + SAMPLES, ry, mask=inside)
            h = hessians + 36 * match
            trace = tl.load(h) + tl.load(h + 7) + tl.load(h + 14)
            trace += tl.load(h + 21) + tl.load(h + 28) + tl.load(h + 35)
            d = slopes + match * (12 * SAMPLES)
            p0, p1, p2, p3, p4, p5 = solve(
                h, 1 + damping, damping * (RELATIVE * trace + DIAGONAL),
                _product(d, rx, ry, at, inside, SAMPLES),
                _product(d + 2 * SAMPLES, rx, ry, at, inside, SAMPLES),
                _product(d + 4 * SAMPLES, rx, ry, at, inside, SAMPLES),
                _product(d + 6 * SAMPLES, rx, ry, at, inside, SAMPLES),
                _product(d + 8 * SAMPLES, rx, ry, at, inside, SAMPLES),
                _product(d + 10 * SAMPLES, rx, ry, at, inside, SAMPLES),
            )  # fmt: skip
            p0 = tl.minimum(tl.maximum(p0, -MAX_STEP), MAX_STEP)
            p1 = tl.minimum(tl.maximum(p1, -MAX_STEP), MAX_STEP)
            p2 = tl.minimum(tl.maximum(p2, -MAX_STEP), MAX_STEP)
            p3 = tl.minimum(tl.maximum(p3, -MAX_STEP), MAX_STEP)
            p4 = tl.minimum(tl.maximum(p4, -MAX_STEP), MAX_STEP)
            p5 = tl.minimum(tl.maximum(p5, -MAX_STEP), MAX_STEP)
            largest = tl.maximum(
                tl.maximum(tl.abs(p0), tl.abs(p1)), tl.maximum(tl.abs(p2), tl.abs(p3))
            )
            largest = tl.maximum(largest, tl.maximum(tl.abs(p4), tl.abs(p5)))
            # A step without any change is the last one, too.
            tl.store(state + 3, tl.where(finished, 0.0, largest))
            # B ∘ δ⁻¹
            q0, q1, q2 = p0.to(tl.float64), p1.to(tl.float64), p2.to(tl.float64)
            q3, q4, q5 = p3.to(tl.float64), p4.to(tl.float64), p5.to(tl.float64)
            area = (1 + q0) * (1 + q3) - q1 * q2
            i00, i01, i10, i11 = (1 + q3) / area, -q1 / area, -q2 / area, (1 + q0) / area
            n00, n01 = b00 * i00 + b01 * i10, b00 * i01 + b01 * i11
            n10, n11 = b10 * i00 + b11 * i10, b10 * i01 + b11 * i11
            n02, n12 = b02 - n00 * q4 - n01 * q5, b12 - n10 * q4 - n11 * q5
            tl.store(t, n00)
            tl.store(t + 1, n01)
            tl.store(t + 2, n02)
            tl.store(t + 3, n10)
            tl.store(t + 4, n11)
            tl.store(t + 5, n12)
            values = patch(
                pixels, starts, heights, widths, spacings, count, n00, n01, n02, n10, n11, n12,
                x, y, inside, SPACING,
            )  # fmt: skip
            tl.store(patches_b + match * SAMPLES + at, values, mask=inside)


@dataclass(frozen=True, eq=False)
class _Minimum:
    """The result of the steps at one blur: see :class:`refinement_steps.Minimum`."""

    maps: Tensor
    numbers: Tensor  # (m, 4): see `_step`
    power_a: Tensor
    slopes: Tensor
    hessian: Tensor
    template: Tensor


def _minimize(first: Tensor, second: Octaves, b: Tensor, tried: Tensor, blur: int) -> _Minimum:
    """Return :func:`refinement_steps.minimize` of patches of both images, ``first`` and ``tried``.

    The patches (m, n) of the second image are overwritten.
    """
    count, device = len(b), b.device
    tables = _tables(device)
    filters, roots = tables.gradients[blur], tables.root
    template = torch.empty((count, 2 * SAMPLES), device=device)
    slopes = torch.empty((count, 6, 2 * SAMPLES), device=device)
    power_a = torch.empty(count, device=device)
    _prepare[(count,)](
        filters.apply(first), roots, template, slopes, power_a, **SHAPE,
        EPSILON=steps.POWER_EPSILON,
    )  # fmt: skip
    hessian = slopes @ slopes.mT
    maps, trial = torch.empty_like(b), b.clone()
    residuals, numbers = torch.empty_like(template), torch.empty((count, 4), device=device)
    number = steps.STEPS[blur]
    for i in range(number + 1):
        _step[(count,)](
            *levels(second), filters.apply(tried), roots, template, slopes, hessian, maps, trial,
            residuals, numbers, tried, FIRST=i == 0, LAST=i == number, **SHAPE,
            TOLERANCE=steps.TOLERANCE, MAX_STEP=steps.MAX_STEP, DAMPING=steps.DAMPING,
            DECREASE=steps.DAMPING_DECREASE, INCREASE=steps.DAMPING_INCREASE,
            MIN_INCREASED=steps.MIN_INCREASED_DAMPING, RELATIVE=steps.RELATIVE_DAMPING,
            DIAGONAL=steps.DIAGONAL_EPSILON, EPSILON=steps.POWER_EPSILON,
        )  # fmt: skip
    return _Minimum(maps, numbers, power_a, slopes, hessian, template)


def refined(images: tuple[Octaves, Octaves], a: Tensor, b: Tensor) -> Tensor:
    """Return :func:`caloric.gpu.refinement.refined`."""
    a, b, (first, second) = a.contiguous(), b.contiguous(), images
    of_a, of_b = patches(first, a), patches(second, b)
    end = _minimize(of_a, second, b, of_b.clone(), 0)
    plausible = end.numbers[:, 0] < steps.MAX_COST
    end = _minimize(of_a, second, end.maps, patches(second, end.maps), 1)
    tables = _tables(a.device)
    filters = tables.gradients[1]
    start, _ = steps.fields(of_b, filters, tables)
    weights, inverse = covariance_kernels.weights(end.slopes, end.hessian, tables.root)
    return covariance_kernels.finished(
        images, a, end.maps, filters.adjoint(weights), inverse=inverse,
        power_a=end.power_a, before=((start - end.template) ** 2).sum(1), numbers=end.numbers,
        plausible=plausible,
    )  # fmt: skip


@cached
def _tables(device: Any) -> steps.Tables:
    """Return the tables of the steps; kernels read only the first half of ``root``."""
    to = partial(torch.tensor, device=device)
    return steps.tables(gradient_kernels.filters(device), "float32", to)
