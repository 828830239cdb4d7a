"""Refinement of matches to sub-pixel, affine-corrected agreement by a short continuation.

The template of a match is the gradient field of the first image in the coordinates of its frame;
the second frame is moved until its field agrees. This is what :func:`caloric.align` does for one
template, done for thousands of small ones at once, at two σ.

The steps are in :mod:`caloric.matching.refinement_steps`; here they are run on the CPU, by the
compiled core or by NumPy, and it is decided which matches to keep.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import fields
from caloric.frames import sigmas
from caloric.matching import refinement_steps
from caloric.matching.refinement_steps import (
    BLURS,
    DAMPING,
    FALL,
    FINEST,
    GRID,
    HOPELESS,
    LEAST,
    LONGEST,
    NOTHING,
    RAISED,
    RELATIVE,
    RISE,
    ROOT,
    SETTLED,
    SIDE,
    SPACING,
    STEPS,
    filters,
    noise_level,
    noise_of,
)
from caloric.runtime import native, threads
from caloric.types import FloatArray, Pixels

_FARTHEST = 1.0  # σ of the second frame: the largest shift of a match
_LARGEST = 1.7  # the largest factor by which the frame may be stretched
_WORST = 0.5  # the largest cost of a refined match
_FLAT = 1e-4  # mean square gradient, for pixels in [0, 1], below which a patch counts as flat
_BLOCK, _SMALL_BLOCK = 512, 64  # matches, by NumPy and by the core


@dataclass(frozen=True, eq=False)
class Refined:
    """The refined second frames, and how well each is known.

    Attributes
    ----------
    maps : array (m, 2, 3)
        The frames; :attr:`xy` are their positions.
    moved : array (m,) of bool
        Which are refined; the others are as they were.
    covariances : array (m, 2, 2)
        Those of the positions in square pixels, infinite where nothing was refined.
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
        """The positions (m, 2) of the frames in the second image."""
        return self.maps[:, :, 2]


SMALLEST = 32  # pixels: an image with a smaller side is not halved


@dataclass(frozen=True, eq=False)
class _Octaves(refinement_steps.Image):
    levels: list[Pixels]

    def patches(self, maps: FloatArray) -> Pixels:
        """Return patches (m, n) around frames (m, 2, 3), bilinear."""
        from scipy import ndimage  # only without the core: it takes long to import

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


def _octaves(image: Pixels) -> _Octaves:
    levels = []
    for level in fields.halves(image):
        levels.append(np.ascontiguousarray(level))
        if min(level.shape) < SMALLEST:
            break
    of_levels = refinement_steps.level_noise(len(levels))
    return _Octaves(float(noise_level(image)), *of_levels, levels)


@cache
def _tables() -> refinement_steps.Tables:
    return refinement_steps.tables(tuple(filters(blur) for blur in BLURS), "float64")


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where the steps ended, whether that is better or not.

    ``maps`` (m, 2, 3); ``shifts`` (m, 2, 2), the covariances of the positions in σ of the frames;
    ``figures`` (m, 3), the cost before and after, at the last σ, and the mean square gradient of
    the first image, all 0 if the match was given up after the first σ.
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
    first, second = threads.each(_octaves, (image_a, image_b))
    core = native.core()

    def block(rows: range) -> tuple[FloatArray, FloatArray, FloatArray]:
        part = slice(rows.start, rows.stop)
        if core is None:
            return refinement_steps.descend((first, second), a[part], b[part], _tables())
        noise = first.noise, second.noise
        return _by_core(core, first.levels, second.levels, a[part], b[part], noise)

    parts = threads.each(block, threads.strips(len(a), _BLOCK if core is None else _SMALL_BLOCK))
    return Outcome(*(np.concatenate(v) for v in zip(*parts, strict=True)))


def _by_core(
    core: Any,
    first: list[Pixels],
    second: list[Pixels],
    a: FloatArray,
    b: FloatArray,
    noise: tuple[float, float],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what :func:`caloric.matching.refinement_steps.descend` does."""
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
