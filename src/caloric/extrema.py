"""Where to look: extrema of the difference of Gaussians over place and scale."""

import itertools
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.scalespace import FIRST, SCALES, Level, ScaleSpace
from caloric.theory.gaussians import FloatArray

CONTRAST = 0.04  # of the range of intensities, over the levels of an octave, as Lowe has it
EDGE = 10.0  # the largest ratio of principal curvatures


@dataclass(frozen=True, eq=False)
class Extrema:
    """n extrema: centres (n, 2) and scales (n,) in pixels of the image, and |D| there."""

    xy: FloatArray
    sigma: FloatArray
    response: FloatArray

    def __len__(self) -> int:
        """How many there are."""
        return len(self.sigma)


def _candidates(levels: tuple[Level, ...], limit: float) -> NDArray[np.intp]:
    """(n, 3) layer, row, column of all extrema among 27 neighbours, and above the limit."""
    kernel = np.ones((3, 3), np.uint8)
    width = levels[0].pixels.shape[1]
    flat = [level.pixels.ravel() for level in levels]
    found = []
    for i in range(1, len(levels) - 2):
        d = cv2.subtract(levels[i + 1].pixels, levels[i].pixels)
        for sign, extreme in ((1, cv2.dilate), (-1, cv2.erode)):
            peak = (d > limit) if sign > 0 else (d < -limit)
            peak &= d == extreme(d, kernel)
            # The outermost pixels have no neighbours to fit a parabola to.
            peak[[0, -1]] = False
            peak[:, [0, -1]] = False
            at = np.flatnonzero(peak)
            value = sign * d.ravel()[at]
            # Few are left: their neighbours in the layers below and above are looked up.
            for layer, dy, dx in itertools.product((i - 1, i + 1), (-1, 0, 1), (-1, 0, 1)):
                beyond = at + dy * width + dx
                keep = value >= sign * (flat[layer + 1][beyond] - flat[layer][beyond])
                at, value = at[keep], value[keep]
            found.append(np.stack([np.full_like(at, i), at // width, at % width], -1))
    return np.concatenate(found)


def _fit(
    levels: tuple[Level, ...], at: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Value, gradient (n, 3) and Hessian (n, 3, 3) in (x, y, layer) at (layer, row, column)."""
    s, y, x = at.T
    layers = [np.flatnonzero(s == i) for i in range(len(levels))]

    def v(ds: int, dy: int, dx: int) -> FloatArray:
        """The difference at a neighbour, looked up: the whole volume is never held."""
        result = np.empty(len(at), np.float32)
        for i, some in enumerate(layers):
            if len(some):
                place = y[some] + dy, x[some] + dx
                result[some] = levels[i + ds + 1].pixels[place] - levels[i + ds].pixels[place]
        return result.astype(np.float64)

    centre = v(0, 0, 0)
    steps = ((0, 0, 1), (0, 1, 0), (1, 0, 0))
    ahead, behind = [v(*d) for d in steps], [v(*(-k for k in d)) for d in steps]
    gradient = np.stack([(a - b) / 2 for a, b in zip(ahead, behind, strict=True)], -1)
    hessian = np.empty((len(at), 3, 3))
    for i in range(3):
        hessian[:, i, i] = ahead[i] + behind[i] - 2 * centre
        for j in range(i):
            p, q = np.array(steps[i]), np.array(steps[j])
            mixed = (v(*(p + q)) - v(*(p - q)) - v(*(q - p)) + v(*(-p - q))) / 4
            hessian[:, i, j] = hessian[:, j, i] = mixed
    return centre, gradient, hessian


def _refine(
    levels: tuple[Level, ...], at: NDArray[np.intp]
) -> tuple[NDArray[np.intp], FloatArray, FloatArray, FloatArray]:
    """Sub-pixel extrema: where the parabola's peak is within half a pixel, after up to 5 moves."""
    rows, columns = levels[0].pixels.shape
    end = np.array([len(levels) - 2, rows - 1, columns - 1])
    settled = []
    for _ in range(5):
        value, gradient, hessian = _fit(levels, at)
        regular = np.abs(np.linalg.det(hessian)) > 1e-20
        at, value, gradient, hessian = (a[regular] for a in (at, value, gradient, hessian))
        offset = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        still = (np.abs(offset) < 0.5).all(1)
        peak = value + 0.5 * np.einsum("ni,ni->n", gradient, offset)
        settled.append((at[still], offset[still], peak[still], hessian[still]))
        moved = at[~still] + np.rint(np.clip(offset[~still], -2, 2)).astype(np.intp)[:, ::-1]
        inside = (moved >= 1).all(1) & (moved < end).all(1)
        at = np.unique(moved[inside], axis=0)
        if len(at) == 0:
            break
    places, offsets, peaks, hessians = (np.concatenate(p) for p in zip(*settled, strict=True))
    # Two candidates may have moved to the same extremum.
    _, first = np.unique(places, axis=0, return_index=True)
    return places[first], offsets[first], peaks[first], hessians[first]


def _octave(levels: tuple[Level, ...], contrast: float, edge: float) -> Extrema:
    if min(levels[0].pixels.shape) < 3:
        return Extrema(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    at = _candidates(levels, 0.5 * contrast / SCALES)
    places, offset, peak, hessian = _refine(levels, at)
    trace = hessian[:, 0, 0] + hessian[:, 1, 1]
    determinant = hessian[:, 0, 0] * hessian[:, 1, 1] - hessian[:, 0, 1] ** 2
    strong = np.abs(peak) * SCALES >= contrast
    round_enough = trace**2 * edge < (edge + 1) ** 2 * determinant
    keep = strong & round_enough & (determinant > 0)
    places, offset, peak = places[keep], offset[keep], peak[keep]
    step = levels[0].step
    xy = (places[:, [2, 1]] + offset[:, :2]) * step + levels[0].offset
    sigma = FIRST * step * 2.0 ** ((places[:, 0] + offset[:, 2]) / SCALES)
    return Extrema(xy, sigma, np.abs(peak))


def extrema(space: ScaleSpace, contrast: float = CONTRAST, edge: float = EDGE) -> Extrema:
    """All extrema of the scale space, strongest first; equals by place, so never by chance."""
    parts = [_octave(levels, contrast, edge) for levels in space.octaves]
    xy = np.concatenate([p.xy for p in parts])
    sigma = np.concatenate([p.sigma for p in parts])
    response = np.concatenate([p.response for p in parts])
    h, w = space.size
    inside = (xy >= -0.5).all(1) & (xy[:, 0] <= w - 0.5) & (xy[:, 1] <= h - 0.5)
    xy, sigma, response = xy[inside], sigma[inside], response[inside]
    order = np.lexsort((sigma, xy[:, 0], xy[:, 1], -response))
    return Extrema(xy[order], sigma[order], response[order])
