"""Where to look: extrema of the difference of Gaussians over place and scale."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.image.scalespace import FIRST, SCALES, Octave, ScaleSpace
from caloric.runtime import native, threads
from caloric.theory.gaussians import FloatArray

CONTRAST = 0.04  # of the range of intensities, over the levels of an octave, as Lowe has it
EDGE = 10.0  # the largest ratio of principal curvatures
# The sub-pixel refinement of a candidate; the C++ and Triton versions get these as arguments.
MOVES = 5  # at most
REGULAR = 1e-20  # a Hessian of a smaller determinant has no peak
NEAR = 0.5  # pixels from the peak at which a candidate is settled
LONGEST_MOVE = 2.0  # pixels at once
REFINEMENT = (MOVES, REGULAR, NEAR, LONGEST_MOVE)
V = TypeVar("V", bound=Any)


@dataclass(frozen=True, eq=False)
class Extrema:
    """n extrema: centres (n, 2) and scales (n,) in pixels of the image, and |D| there."""

    xy: FloatArray
    sigma: FloatArray
    response: FloatArray

    def __len__(self) -> int:
        """How many there are."""
        return len(self.sigma)

    def __getitem__(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "Extrema":
        """Some of them."""
        return Extrema(self.xy[index], self.sigma[index], self.response[index])

    def order(self) -> NDArray[np.intp]:
        """Strongest first; equals by place, so never by chance."""
        return np.lexsort((self.sigma, self.xy[:, 0], self.xy[:, 1], -self.response))


def _candidates(pixels: NDArray[np.float32], rows: range, limit: float) -> NDArray[np.intp]:
    """(n, 3) layer, row, column of all extrema among 27 neighbours, and above the limit.

    ``pixels`` are an octave's, the outermost of which have no neighbours to fit a parabola to. An
    extremum of the size |D| is one of D: next to a peak there is no deeper hollow.
    """
    top = rows.start
    core = native.core()
    if core is not None:
        return np.asarray(core.candidates(pixels, limit, top, rows.stop), np.intp)
    least = np.nextafter(np.float32(limit), np.float32(1))
    some = pixels[:, top - 1 : rows.stop + 1]
    d = [cv2.absdiff(above, below) for below, above in pairwise(some)]
    found, kernel = [], np.ones((3, 3), np.uint8)
    for i in range(1, len(d) - 1):
        highest = cv2.max(cv2.max(d[i - 1], d[i]), d[i + 1])
        highest = np.maximum(cv2.dilate(highest, kernel), least)
        at = np.flatnonzero(d[i][1:-1, 1:-1] == highest[1:-1, 1:-1])
        row, column = np.divmod(at, pixels.shape[2] - 2)
        found.append(np.stack([np.full_like(at, i), row + top, column + 1], -1))
    return np.concatenate(found)


# What follows is arithmetic alone: of NumPy's arrays here, of tensors on another device.


def differences(d: Callable[[int, int, int], V]) -> tuple[V, list[V], list[V]]:
    """D, its gradient in x, y, s and its Hessian's xx, yy, ss, xy, xs, ys, of d(s, y, x)."""
    centre = d(0, 0, 0)
    ahead = [d(0, 0, 1), d(0, 1, 0), d(1, 0, 0)]
    behind = [d(0, 0, -1), d(0, -1, 0), d(-1, 0, 0)]
    mixed = [
        d(0, 1, 1) - d(0, 1, -1) - d(0, -1, 1) + d(0, -1, -1),
        d(1, 0, 1) - d(1, 0, -1) - d(-1, 0, 1) + d(-1, 0, -1),
        d(1, 1, 0) - d(1, -1, 0) - d(-1, 1, 0) + d(-1, -1, 0),
    ]
    both = list(zip(ahead, behind, strict=True))
    return (
        centre,
        [(a - b) / 2 for a, b in both],
        [*(a + b - 2 * centre for a, b in both), *(m / 4 for m in mixed)],
    )


def cofactors(hessian: Iterable[V]) -> tuple[list[V], V]:
    """Of xx, yy, ss, xy, xs, ys: the six of the adjoint, and the determinant."""
    xx, yy, ss, xy, xs, ys = hessian
    a, b, c = yy * ss - ys * ys, xs * ys - xy * ss, xy * ys - xs * yy
    e, f, i = xx * ss - xs * xs, xs * xy - xx * ys, xx * yy - xy * xy
    return [a, b, c, e, f, i], xx * a + xy * b + xs * c


def applied(adjoint: list[V], gradient: Iterable[V]) -> list[V]:
    """The adjoint times a vector."""
    a, b, c, e, f, i = adjoint
    gx, gy, gs = gradient
    return [a * gx + b * gy + c * gs, b * gx + e * gy + f * gs, c * gx + f * gy + i * gs]


@dataclass(frozen=True, eq=False)
class _Parabola:
    """D at n places to second order: D + g·u + u·H u / 2, u = (x, y, layer).

    ``hessian`` holds xx, yy, ss, xy, xs, ys, (6, n).
    """

    value: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def solve(self) -> tuple[NDArray[np.bool_], FloatArray]:
        """Where there is a peak at all, and where: u = −H^{-1} g, by cofactors, (3, n)."""
        adjoint, determinant = cofactors(self.hessian)
        regular = np.abs(determinant) > REGULAR
        inverse = np.where(regular, -1.0, 0.0) / np.where(regular, determinant, 1.0)
        return regular, np.stack(applied(adjoint, self.gradient * inverse))


def _fit(pixels: NDArray[np.float32], at: NDArray[np.intp]) -> _Parabola:
    """By differences between neighbours of (layer, row, column), looked up where they are."""
    _, height, width = pixels.shape
    flat, layer = pixels.ravel(), height * width
    place = at @ np.array([layer, width, 1])

    def d(s: int, y: int, x: int) -> FloatArray:
        there = place + (s * layer + y * width + x)
        return np.asarray(flat.take(there + layer) - flat.take(there), np.float64)

    value, gradient, hessian = differences(d)
    return _Parabola(value, np.stack(gradient), np.stack(hessian))


def _refine(pixels: NDArray[np.float32], at: NDArray[np.intp]) -> FloatArray:
    """Sub-pixel extrema: where the parabola's peak is within half a pixel, after up to 5 moves.

    (n, 13): place as layer, row, column; offset as x, y, layer; value; the Hessian's six.
    """
    end = np.array(pixels.shape, np.intp) - np.array([2, 1, 1])
    settled = []
    for _ in range(MOVES):
        parabola = _fit(pixels, at)
        regular, offset = parabola.solve()
        still = regular & (np.abs(offset) < NEAR).all(0)
        peak = parabola.value + 0.5 * (parabola.gradient * offset).sum(0)
        columns = np.concatenate([at.T, offset, peak[None], parabola.hessian])
        settled.append(columns[:, still].T)
        moving = regular & ~still
        moved = (
            at[moving]
            + np.rint(np.clip(offset.T[moving], -LONGEST_MOVE, LONGEST_MOVE)).astype(np.intp)[
                :, ::-1
            ]
        )
        at = moved[(moved >= 1).all(1) & (moved < end).all(1)]
        if len(at) == 0:
            break
    return np.concatenate(settled)


def _places(octaves: Sequence[Octave], contrast: float) -> list[FloatArray]:
    """The sub-pixel extrema of each octave, as :func:`_refine` has them."""
    core = native.core()

    # In strips, so that the differences stay in the cache and are never held as a whole; those of
    # all octaves together, so that threads need not wait for each other at the end of each.
    def strip(one: tuple[NDArray[np.float32], range]) -> NDArray[np.generic]:
        pixels, rows = one
        inner = range(rows.start + 1, rows.stop + 1)
        at = _candidates(pixels, inner, 0.5 * contrast / SCALES)
        return at if core is None else np.asarray(core.refine(pixels, at, *REFINEMENT))

    strips = [threads.strips(octave.pixels.shape[1] - 2) for octave in octaves]
    work = [(o.pixels, rows) for o, own in zip(octaves, strips, strict=True) for rows in own]
    found = iter(threads.each(strip, work))
    each: list[Any] = [np.concatenate([next(found) for _ in own]) for own in strips]
    if core is not None:
        return each
    # All at once: many small calls would take longer.
    return [_refine(octave.pixels, at) for octave, at in zip(octaves, each, strict=True)]


def _kept(octave: Octave, found: FloatArray, contrast: float, edge: float) -> Extrema:
    """The extrema of an octave that are strong and round enough, once each."""
    # Two candidates may have moved to the same extremum.
    index = np.ravel_multi_index(tuple(found[:, :3].astype(np.intp).T), octave.pixels.shape)
    found = found[np.unique(index, return_index=True)[1]]
    (layer, row, column, x, y, s, peak), (xx, yy, _, xy, _, _) = found[:, :7].T, found[:, 7:].T
    trace, determinant = xx + yy, xx * yy - xy**2
    strong = np.abs(peak) * SCALES >= contrast
    round_enough = trace**2 * edge < (edge + 1) ** 2 * determinant
    keep = np.flatnonzero(strong & round_enough & (determinant > 0))
    left, top = octave.corner
    places = np.stack([column + left + x, row + top + y], -1)[keep]
    sigma = FIRST * octave.step * 2.0 ** ((layer + s)[keep] / SCALES)
    return Extrema(places * octave.step + octave.origin, sigma, np.abs(peak[keep]))


def joined(parts: Sequence[Extrema]) -> Extrema:
    """One after the other."""
    return Extrema(
        np.concatenate([np.zeros((0, 2)), *(p.xy for p in parts)]),
        np.concatenate([np.zeros(0), *(p.sigma for p in parts)]),
        np.concatenate([np.zeros(0), *(p.response for p in parts)]),
    )


def extrema(space: ScaleSpace, contrast: float = CONTRAST, edge: float = EDGE) -> Extrema:
    """All extrema of the scale space, strongest first."""
    octaves = [octave for octave in space.octaves if min(octave.pixels.shape[1:]) >= 3]
    each = zip(octaves, _places(octaves, contrast), strict=True)
    found = joined([_kept(octave, places, contrast, edge) for octave, places in each])
    h, w = space.size
    inside = (found.xy >= -0.5) & (found.xy <= (w - 0.5, h - 0.5))
    found = found[np.flatnonzero(inside.all(1))]
    return found[found.order()]
