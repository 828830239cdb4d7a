"""Extrema of the difference of Gaussians (D) over position and scale."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.image.scalespace import FIRST, SCALES, Octave, ScaleSpace
from caloric.runtime import native, threads
from caloric.types import FloatArray

CONTRAST = 0.04  # threshold relative to the intensity range, divided by SCALES as in Lowe's SIFT
FAINTEST = 0.005  # lowest threshold if a number of features is requested
EDGE = 10.0  # maximum ratio of principal curvatures
# Sub-pixel refinement of a candidate; the C++ and Triton versions take these values as arguments.
# VLFeat's rule: a candidate moves by one pixel while the peak is more than MOVED away, but never in
# scale. It is accepted if the peak is then within ACCEPTED.
FITS = 5  # maximum number of fits per candidate
REGULAR = 1e-20  # a Hessian with a smaller determinant is singular
MOVED = 0.6  # pixels, in x or y
ACCEPTED = 1.5  # samples, in x, y and scale
REFINEMENT = {
    "max_fits": FITS, "min_determinant": REGULAR, "move_threshold": MOVED, "max_offset": ACCEPTED,
    "scales_per_octave": SCALES,
}  # fmt: skip
V = TypeVar("V", bound=Any)


@dataclass(frozen=True, eq=False)
class Extrema:
    """Positions (n, 2) and scales (n,) of extrema in image pixels, and their responses |D| (n,)."""

    xy: FloatArray
    sigma: FloatArray
    response: FloatArray

    def __len__(self) -> int:
        """Return the number of extrema."""
        return len(self.sigma)

    def __getitem__(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "Extrema":
        """Return the selected extrema."""
        return Extrema(self.xy[index], self.sigma[index], self.response[index])

    def order(self) -> NDArray[np.intp]:
        """Return the indices (n,) that sort by decreasing response, and equal ones by position."""
        return np.lexsort((self.sigma, self.xy[:, 0], self.xy[:, 1], -self.response))


def _candidates(pixels: NDArray[np.float32], rows: range, limit: float) -> NDArray[np.intp]:
    """Return layer, row, column (n, 3) of the extrema among 26 neighbors that exceed ``limit``.

    ``rows`` excludes the border of the octave, where no quadratic can be fitted. Every maximum of
    |D| is an extremum of D; the converse fails only next to a stronger value of opposite sign.
    """
    top = rows.start
    core = native.core()
    if core is not None:
        return np.asarray(core.candidates(pixels, limit, top, rows.stop), np.intp)
    threshold = np.nextafter(np.float32(limit), np.float32(1))
    strip = pixels[:, top - 1 : rows.stop + 1]
    d = [cv2.absdiff(above, below) for below, above in pairwise(strip)]
    candidates, kernel = [], np.ones((3, 3), np.uint8)
    for i in range(1, len(d) - 1):
        highest = cv2.max(cv2.max(d[i - 1], d[i]), d[i + 1])
        highest = np.maximum(cv2.dilate(highest, kernel), threshold)
        indices = np.flatnonzero(d[i][1:-1, 1:-1] == highest[1:-1, 1:-1])
        row, column = np.divmod(indices, pixels.shape[2] - 2)
        candidates.append(np.stack([np.full_like(indices, i), row + top, column + 1], -1))
    return np.concatenate(candidates)


# The functions below work on NumPy arrays and on tensors.


def differences(d: Callable[[int, int, int], V]) -> tuple[V, list[V], list[V]]:
    """Return D, its gradient (x, y, s) and its Hessian (xx, yy, ss, xy, xs, ys) from d(s, y, x)."""
    center = d(0, 0, 0)
    ahead = [d(0, 0, 1), d(0, 1, 0), d(1, 0, 0)]
    behind = [d(0, 0, -1), d(0, -1, 0), d(-1, 0, 0)]
    mixed = [
        d(0, 1, 1) - d(0, 1, -1) - d(0, -1, 1) + d(0, -1, -1),
        d(1, 0, 1) - d(1, 0, -1) - d(-1, 0, 1) + d(-1, 0, -1),
        d(1, 1, 0) - d(1, -1, 0) - d(-1, 1, 0) + d(-1, -1, 0),
    ]
    both = list(zip(ahead, behind, strict=True))
    return (
        center,
        [(a - b) / 2 for a, b in both],
        [*(a + b - 2 * center for a, b in both), *(m / 4 for m in mixed)],
    )


def cofactors(hessian: Iterable[V]) -> tuple[list[V], V]:
    """Return the six entries of the adjugate of a Hessian, and its determinant."""
    xx, yy, ss, xy, xs, ys = hessian
    a, b, c = yy * ss - ys * ys, xs * ys - xy * ss, xy * ys - xs * yy
    e, f, i = xx * ss - xs * xs, xs * xy - xx * ys, xx * yy - xy * xy
    return [a, b, c, e, f, i], xx * a + xy * b + xs * c


def applied(adjoint: list[V], gradient: Iterable[V]) -> list[V]:
    """Return the product of an adjugate and a vector."""
    a, b, c, e, f, i = adjoint
    gx, gy, gs = gradient
    return [a * gx + b * gy + c * gs, b * gx + e * gy + f * gs, c * gx + f * gy + i * gs]


def solved(gradient: Iterable[V], hessian: Iterable[V]) -> tuple[V, list[V]]:
    """Return a mask (n,) of regular Hessians, and the peaks u = −H⁻¹ g as x, y, layer."""
    adjoint, determinant = cofactors(hessian)
    regular = abs(determinant) > REGULAR
    inverse = -1.0 * regular / (determinant + (determinant == 0))
    return regular, applied(adjoint, [g * inverse for g in gradient])


def passing(peak: V, hessian: Iterable[V], contrast: float, edge: float) -> V:
    """Return a mask (n,) of the peaks that pass the contrast and edge tests."""
    xx, yy, _, xy, _, _ = hessian
    trace, determinant = xx + yy, xx * yy - xy * xy
    round_enough = trace * trace * edge < (edge + 1) ** 2 * determinant
    strong = abs(peak) * SCALES >= contrast
    return cast("V", strong & round_enough & (determinant > 0))


def step(offset: Any, index: Any, size: int) -> Any:
    """Return the moves (n,) of candidates along an axis: -1, 0 or 1, but not onto the border."""
    return 1 * ((offset > MOVED) & (index < size - 2)) - 1 * ((offset < -MOVED) & (index > 1))


def _fit(
    pixels: NDArray[np.float32], indices: NDArray[np.intp]
) -> tuple[FloatArray, list[FloatArray], list[FloatArray]]:
    """Return D, its gradient and Hessian at ``indices`` (n, 3), which are layer, row, column."""
    _, height, width = pixels.shape
    flat, layer = pixels.ravel(), height * width
    positions = indices @ np.array([layer, width, 1])

    def d(s: int, y: int, x: int) -> FloatArray:
        position = positions + (s * layer + y * width + x)
        return np.asarray(flat.take(position + layer) - flat.take(position), np.float64)

    return differences(d)


def _refine(pixels: NDArray[np.float32], indices: NDArray[np.intp]) -> FloatArray:
    """Return the sub-pixel extrema (n, 13) of the candidates that are accepted.

    The columns are layer, row, column; the offset as x, y, layer; the value; the six entries of the
    Hessian.
    """
    _, height, width = pixels.shape
    accepted = []
    for fit in range(FITS):
        value, gradient, hessian = _fit(pixels, indices)
        regular, offsets = solved(gradient, hessian)
        offset = np.stack(offsets)
        right = step(offset[0], indices[:, 2], width)
        down = step(offset[1], indices[:, 1], height)
        moving = regular & ((right != 0) | (down != 0)) & (fit + 1 < FITS)
        near = regular & ~moving & (np.abs(offset) < ACCEPTED).all(0)
        peak = value + 0.5 * (np.stack(gradient) * offset).sum(0)
        columns = np.concatenate([indices.T, offset, peak[None], np.stack(hessian)])
        accepted.append(columns[:, near].T)
        indices = indices[moving] + np.stack([0 * right, down, right], 1)[moving]
        if len(indices) == 0:
            break
    return np.concatenate(accepted)


def _refined_extrema(octaves: Sequence[Octave], contrast: float, edge: float) -> list[FloatArray]:
    """Return the sub-pixel extrema (n, 7) of each octave that pass the contrast and edge tests.

    The columns are the first seven of :func:`_refine`.
    """
    core = native.core()
    constants = {**REFINEMENT, "contrast": contrast, "edge_ratio": edge}

    # The differences of a strip fit in the cache. The strips of all octaves form one list, so that
    # threads do not wait for each other at the end of each octave.
    def strip(task: tuple[NDArray[np.float32], range]) -> NDArray[np.generic]:
        pixels, rows = task
        inner = range(rows.start + 1, rows.stop + 1)
        indices = _candidates(pixels, inner, 0.5 * contrast / SCALES)
        if core is None:
            return indices
        return np.asarray(core.refine_extrema(pixels, indices, constants))

    strips = [threads.strips(octave.pixels.shape[1] - 2) for octave in octaves]
    tasks = [(o.pixels, rows) for o, ranges in zip(octaves, strips, strict=True) for rows in ranges]
    results = iter(threads.each(strip, tasks))
    per_octave: list[Any] = [np.concatenate([next(results) for _ in ranges]) for ranges in strips]
    if core is not None:
        return per_octave
    # One call per octave is faster than one per strip.
    refined = (_refine(o.pixels, part) for o, part in zip(octaves, per_octave, strict=True))
    return [_filtered(rows, contrast, edge) for rows in refined]


def _filtered(refined: FloatArray, contrast: float, edge: float) -> FloatArray:
    """Return the rows of :func:`_refine` that pass the contrast and edge tests, without Hessian."""
    return refined[passing(refined[:, 6], refined[:, 7:].T, contrast, edge), :7]


def _distinct(octave: Octave, refined: FloatArray) -> Extrema:
    """Return the extrema of an octave, each once."""
    # Several candidates may move to the same extremum.
    index = np.ravel_multi_index(tuple(refined[:, :3].astype(np.intp).T), octave.pixels.shape)
    layer, row, column, x, y, s, peak = refined[np.unique(index, return_index=True)[1]].T
    left, top = octave.corner
    xy = np.stack([column + left + x, row + top + y], -1)
    sigma = FIRST * octave.step * 2.0 ** ((layer + s) / SCALES)
    return Extrema(xy * octave.step + octave.origin, sigma, np.abs(peak))


def joined(parts: Sequence[Extrema]) -> Extrema:
    """Return the concatenated extrema of all parts."""
    return Extrema(
        np.concatenate([np.zeros((0, 2)), *(p.xy for p in parts)]),
        np.concatenate([np.zeros(0), *(p.sigma for p in parts)]),
        np.concatenate([np.zeros(0), *(p.response for p in parts)]),
    )


def extrema(space: ScaleSpace, contrast: float = CONTRAST, edge: float = EDGE) -> Extrema:
    """Return the extrema of all octaves of a scale space."""
    octaves = [octave for octave in space.octaves if min(octave.pixels.shape[1:]) >= 3]
    refined = zip(octaves, _refined_extrema(octaves, contrast, edge), strict=True)
    result = joined([_distinct(octave, rows) for octave, rows in refined])
    h, w = space.size
    inside = (result.xy >= -0.5) & (result.xy <= (w - 0.5, h - 0.5))
    return result[np.flatnonzero(inside.all(1))]
