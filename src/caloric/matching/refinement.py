"""Sub-pixel refinement of matches, with an affine correction, by a short continuation.

The template of a match is the gradient field of the first image in the coordinates of its frame;
the second frame is moved until its field agrees. :func:`caloric.align` does the same for one
template; here it is done for thousands of small templates at once, at two σ.

The steps are in :mod:`caloric.matching.refinement_steps`. This module runs them on the CPU, with
the compiled core or NumPy, and decides which results to accept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import fields
from caloric.frames import inverses, mapped_covariances, products, sigmas, singular_values
from caloric.matching import refinement_steps
from caloric.matching.refinement_steps import (
    BLURS,
    CORRELATED_COST,
    DAMPING,
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    DIAGONAL_EPSILON,
    GRID,
    MAX_COST,
    MAX_STEP,
    MIN_INCREASED_DAMPING,
    MIN_NOISE_SPACING,
    POWER_EPSILON,
    RELATIVE_DAMPING,
    RESIDUAL_SAMPLES,
    ROOT,
    SIDE,
    SPACING,
    STEPS,
    TOLERANCE,
    filters,
    noise_level,
    noise_of,
)
from caloric.runtime import native, threads
from caloric.runtime.indexing import select
from caloric.types import FloatArray, Pixels

_MAX_SHIFT = 1.0  # σ of the second frame
_MAX_STRETCH = 1.7  # of the second frame
_MAX_FINAL_COST = 0.5
_MIN_DECREASE = 1e-4  # share of the cost; smaller changes may be rounding errors
_FLAT = 1e-4  # mean square gradient, for pixels in [0, 1], below which a patch counts as flat
_BLOCK, _CORE_BLOCK = 512, 64  # matches per block, for NumPy and for the compiled core


@dataclass(frozen=True, eq=False)
class Refined:
    """The refined frames of the second image, with covariances.

    Attributes
    ----------
    maps : array (m, 2, 3)
        The frames; :attr:`xy` has their positions.
    moved : array (m,) of bool
        Which frames were refined; the others are unchanged.
    covariances : array (m, 2, 2)
        Covariances of the positions by image noise, in square pixels; infinite for unchanged
        frames.
    total_covariances : array (m, 2, 2)
        The same for all errors, estimated from how well the patches agree.
    """

    maps: FloatArray
    moved: NDArray[np.bool_]
    covariances: FloatArray
    total_covariances: FloatArray

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.maps)

    def __repr__(self) -> str:
        """Return a one-line summary."""
        return f"Refined({int(self.moved.sum())} of {len(self)} frames)"

    def __getitem__(self, rows: Any) -> "Refined":
        """Return the frames with the given rows: a mask, indices or a slice."""
        return Refined(
            select(self.maps, rows), self.moved[rows], select(self.covariances, rows),
            select(self.total_covariances, rows),
        )  # fmt: skip

    @property
    def xy(self) -> FloatArray:
        """The positions (m, 2) of the frames in the second image."""
        return self.maps[:, :, 2]


SMALLEST = 32  # pixels: an image with a smaller side is not halved


@dataclass(frozen=True, eq=False)
class Octaves(refinement_steps.Image):
    """An image and its halves, prepared for several calls of :func:`refine` on the CPU."""

    levels: list[Pixels]

    @property
    def shape(self) -> tuple[int, ...]:
        """The size (h, w) of the image."""
        return self.levels[0].shape

    def patches(self, maps: FloatArray) -> Pixels:
        """Return patches (m, n) around frames (m, 2, 3), interpolated bilinearly."""
        from scipy import ndimage  # used only without the compiled core, and slow to import

        octave, _ = refinement_steps.octaves(maps, len(self.levels))
        xy = np.einsum("mij,nj->imn", maps[:, :, :2], GRID) + maps[:, :, 2].T[:, :, None]
        xy /= self.spacings[octave][:, None]
        result = np.empty((len(maps), SIDE * SIDE), np.float32)
        for level in np.unique(octave):
            rows = np.flatnonzero(octave == level)
            values = ndimage.map_coordinates(
                self.levels[level], xy[::-1, rows].reshape(2, -1), np.float32, order=1,
                mode="nearest", prefilter=False,
            )  # fmt: skip
            result[rows] = values.reshape(len(rows), -1)
        return result


def prepared(image: Pixels | Octaves) -> Octaves:
    """Return the octaves of an image (h, w)."""
    if isinstance(image, Octaves):
        return image
    levels = []
    for level in fields.halves(image):
        levels.append(np.ascontiguousarray(level))
        if min(level.shape) < SMALLEST:
            break
    of_levels = refinement_steps.level_noise(len(levels))
    return Octaves(float(noise_level(image)), *of_levels, levels)


@cache
def _tables() -> refinement_steps.Tables:
    return refinement_steps.tables(tuple(filters(blur) for blur in BLURS), "float64")


@dataclass(frozen=True, eq=False)
class Outcome:
    """The final frames of all matches, before it is decided which to accept.

    ``maps`` (m, 2, 3) are the frames, ``shifts`` (m, 2, 2) the covariances of their positions by
    image noise in units of σ of the frames, ``total_shifts`` those by all errors. ``statistics``
    (m, 3) are the costs before and after, at the last σ, and the mean square gradient of the first
    image; all are 0 if the match was given up before the last σ.
    """

    maps: FloatArray
    shifts: FloatArray
    total_shifts: FloatArray
    statistics: FloatArray


Descent = Callable[[Any, Any, FloatArray, FloatArray], Outcome]


def refine(
    image_a: Any,
    image_b: Any,
    a: FloatArray,
    b: FloatArray,
    descent: Descent | None = None,
) -> Refined:
    """Return the second frames b (m, 2, 3), moved to agree with the first frames a (m, 2, 3).

    A frame is left unchanged if it would move by more than its σ, be stretched by more than 1.7, or
    agree less than before, or if the patch in the first image is flat. ``descent`` computes the
    steps, by default :func:`descend`; images are what it accepts.
    """
    if min(*image_a.shape, *image_b.shape) < 2 or len(a) == 0:
        return unrefined(b)
    end = (descent or descend)(image_a, image_b, a, b)
    return (_accepted if native.core() is None else _accepted_by_core)(b, end)


def _accepted(b: FloatArray, end: "Outcome") -> Refined:
    """Return the frames after the steps, or before them where these are not accepted."""
    before, cost, power = end.statistics.T
    better = cost < (1 - _MIN_DECREASE) * before
    fits = (power > _FLAT) & better & (cost < _MAX_FINAL_COST) & _allowed(b, end.maps)
    linear = end.maps[:, :, :2]
    with np.errstate(invalid="ignore"):
        noise, total = (mapped_covariances(v, linear) for v in (end.shifts, end.total_shifts))
        for covariances in (noise, total):
            fits &= np.isfinite(covariances.reshape(-1, 4) @ np.ones(4))
    for covariances in (noise, total):
        covariances[~fits] = UNKNOWN
    return Refined(np.where(fits[:, None, None], end.maps, b), fits, noise, total)


def _accepted_by_core(b: FloatArray, end: "Outcome") -> Refined:
    """Return the same as :func:`_accepted`, by the compiled core."""
    before, after, shifts, total_shifts, statistics = (
        np.ascontiguousarray(v, np.float64)
        for v in (b, end.maps, end.shifts, end.total_shifts, end.statistics)
    )
    result = Refined(
        np.empty(before.shape), np.empty(len(b), bool), np.empty(shifts.shape),
        np.empty(shifts.shape),
    )  # fmt: skip
    native.core().accept(
        before=before, after=after, shifts=shifts, total_shifts=total_shifts, statistics=statistics,
        constants={
            "max_shift": _MAX_SHIFT, "max_stretch": _MAX_STRETCH, "max_cost": _MAX_FINAL_COST,
            "flat": _FLAT, "decrease": 1 - _MIN_DECREASE,
        },
        threads=threads.usable(), maps=result.maps, moved=result.moved,
        covariances=result.covariances, totals=result.total_covariances,
    )  # fmt: skip
    return result


UNKNOWN = np.diag([np.inf, np.inf])  # the covariance of a position that was not refined


def unrefined(b: FloatArray) -> Refined:
    """Return the result without any change of the frames b (m, 2, 3)."""
    noise, total = (np.tile(UNKNOWN, (len(b), 1, 1)) for _ in range(2))
    return Refined(b + 0.0, np.zeros(len(b), bool), noise, total)


def descend(
    image_a: Pixels | Octaves,
    image_b: Pixels | Octaves,
    a: FloatArray,
    b: FloatArray,
    max_start_cost: float = np.inf,
) -> Outcome:
    """Return the outcome of the steps of all matches, by the compiled core or else by NumPy.

    A match is given up if its cost exceeds ``max_start_cost`` before the first step.
    """
    first, second = threads.each(prepared, (image_a, image_b))
    core = native.core()

    def block(rows: range) -> tuple[FloatArray, ...]:
        part = slice(rows.start, rows.stop)
        if core is None:
            images = first, second
            return refinement_steps.descend(images, a[part], b[part], _tables(), max_start_cost)
        return _by_core(core, first, second, a[part], b[part], max_start_cost)

    parts = threads.each(block, threads.strips(len(a), _BLOCK if core is None else _CORE_BLOCK))
    return Outcome(*(np.concatenate(v) for v in zip(*parts, strict=True)))


def _by_core(
    core: Any,
    first: Octaves,
    second: Octaves,
    a: FloatArray,
    b: FloatArray,
    max_start_cost: float,
) -> tuple[FloatArray, ...]:
    """Return the same as :func:`caloric.matching.refinement_steps.descend`."""
    count = max(len(first.levels), len(second.levels))
    variances, correlations = zip(*(noise_of(i) for i in range(count)), strict=True)
    filter_pairs = [filters(blur) for blur in BLURS]
    result = tuple(np.empty((len(a), *shape)) for shape in ((2, 3), (2, 2), (2, 2), (3,)))
    core.refine_matches(
        first=first.levels, second=second.levels,
        a=np.ascontiguousarray(a), b=np.ascontiguousarray(b),
        window=ROOT.reshape(SIDE, SIDE), filters=[(f.smooth, f.slope) for f in filter_pairs],
        steps=list(STEPS),
        constants={
            "spacing": SPACING, "tolerance": TOLERANCE, "max_step": MAX_STEP, "damping": DAMPING,
            "damping_decrease": DAMPING_DECREASE, "damping_increase": DAMPING_INCREASE,
            "min_increased_damping": MIN_INCREASED_DAMPING,
            "relative_damping": RELATIVE_DAMPING, "max_start_cost": max_start_cost,
            "max_cost": MAX_COST,
            "power_epsilon": POWER_EPSILON, "diagonal_epsilon": DIAGONAL_EPSILON,
            "min_noise_spacing": MIN_NOISE_SPACING, "residual_samples": RESIDUAL_SAMPLES,
            "correlated_cost": CORRELATED_COST,
        },
        noise=np.array([first.noise, second.noise]),
        variances=np.array(variances), correlations=np.array(correlations),
        maps=result[0], covariances=result[1], totals=result[2], statistics=result[3],
    )  # fmt: skip
    return result


def _allowed(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Return a mask (m,) of the frames that moved by at most σ and were not stretched too much."""
    x, y = (after - before)[:, :, 2].T
    largest, smallest = singular_values(products(inverses(before), after[:, :, :2]))
    near = np.hypot(x, y) <= _MAX_SHIFT * sigmas(before)
    return np.asarray(near & (largest <= _MAX_STRETCH) & (smallest >= 1 / _MAX_STRETCH))
