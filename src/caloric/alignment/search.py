"""Search for a template: its coarse density at every place, rotation and scale of the image.

The search replaces the start of Algorithm 1 where the diffused energy at the largest σ is not
convex. The score is the normalized dot product of eq. 15 at a σ of an eighth of the template,
computed as one matrix product between all windows of the image and all rotated templates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Pyramid
from caloric.runtime import threads
from caloric.types import FloatArray, Pixels

_BLOCK = 1 << 21  # elements of a block of windows
_KEPT = 1 << 25  # scores per block of templates


@dataclass(frozen=True, eq=False)
class Candidate:
    """A transform (2, 3) and its score."""

    score: float
    transform: FloatArray
    place: tuple[float, float, int, float]  # x and y in grid units, turn, log scale


def _disc() -> NDArray[np.bool_]:
    u = np.arange(SCHEDULE.grid) - (SCHEDULE.grid - 1) / 2
    return np.asarray(u[:, None] ** 2 + u**2 <= (SCHEDULE.grid / 2) ** 2)


INSIDE = _disc()
_OFFSETS = [(int(y), int(x)) for y, x in zip(*np.nonzero(INSIDE), strict=True)]


def _angles(turns: int) -> FloatArray:
    return np.asarray(np.arange(turns) * (2 * np.pi / turns), np.float64)


def rotated_templates(
    pyramid: Pyramid, shape: tuple[int, int], feature: Feature, turns: int
) -> Pixels:
    """Return the fields of the template in a disc at every rotation (channels x disc, turns).

    Every column has norm 1.
    """
    h = max(shape) / SCHEDULE.grid
    values, spacing, have = pyramid.level(h)
    values = fields.blurred(values, fields.missing(h, have) / spacing)
    middle = np.array([(shape[1] - 1) / 2, (shape[0] - 1) / 2]) / spacing
    columns = []
    for a in _angles(turns):
        c, s = np.cos(a), np.sin(a)
        A = np.array([[c, s], [-s, c]]) * h / spacing
        to = np.column_stack([A, middle - A @ np.full(2, (SCHEDULE.grid - 1) / 2)])
        rotated = fields.rotated(
            fields.sampled(values, to, (SCHEDULE.grid, SCHEDULE.grid)), feature.harmonics, -float(a)
        )
        column = rotated[:, INSIDE].ravel()
        columns.append(column / max(float(np.linalg.norm(column)), 1e-12))
    return np.stack(columns, 1)


@dataclass(frozen=True, eq=False)
class _Plane:
    """The fields of the image on a grid of ``spacing`` pixels that begins at ``corner`` (x, y)."""

    values: Pixels
    spacing: float
    corner: tuple[float, float]

    @property
    def counts(self) -> tuple[int, int]:
        """The number of windows (down, across)."""
        return self.values.shape[1] - SCHEDULE.grid + 1, self.values.shape[2] - SCHEDULE.grid + 1

    def norms(self) -> Pixels:
        """Return the norm of every window (down, across), regularized for faint ones."""
        down, across = self.counts
        energy = (self.values * self.values).sum(0)
        norm = np.zeros((down, across), np.float32)
        for y, x in _OFFSETS:
            norm += energy[y : y + down, x : x + across]
        return np.asarray(np.sqrt(norm + np.float32(SCHEDULE.faint * float(norm.mean()) + 1e-12)))


def correlate(values: Pixels, columns: Pixels, turns: int) -> tuple[Pixels, NDArray[np.uint8]]:
    """Return the highest product over turns for each window of the fields, and its turn.

    ``values`` are (channels, h, w), ``columns`` (channels x disc, templates x turns); both results
    are (templates, down, across).
    """
    channels, down, across = (
        len(values),
        values.shape[1] - SCHEDULE.grid + 1,
        values.shape[2] - SCHEDULE.grid + 1,
    )
    rows = max(1, _BLOCK // (across * max(len(columns), columns.shape[1])))
    scores = np.empty((columns.shape[1] // turns, down, across), np.float32)
    which = np.empty(scores.shape, np.uint8)
    for top in range(0, down, rows):
        count = min(rows, down - top)
        windows = np.empty((channels, len(_OFFSETS), count, across), np.float32)
        for i, (y, x) in enumerate(_OFFSETS):
            windows[:, i] = values[:, top + y : top + y + count, x : x + across]
        product = columns.T @ windows.reshape(len(columns), -1)
        table = product.reshape(-1, turns, count, across)
        table.max(1, out=scores[:, top : top + count])
        which[:, top : top + count] = table.argmax(1)
    return scores, which


Correlate = Callable[[Pixels, Pixels, int], tuple[Pixels, NDArray[np.uint8]]]


def _plane(pyramid: Pyramid, shape: tuple[int, int], spacing: float) -> _Plane:
    """Return the fields of the image with a margin of half a template of zeros around it."""
    values, step, have = pyramid.level(spacing)
    h, w = shape
    rows, columns = (
        max(int(np.ceil(n / spacing)) + SCHEDULE.grid // 2, SCHEDULE.grid) for n in (h, w)
    )
    x, y = (w - 1 - (columns - 1) * spacing) / 2, (h - 1 - (rows - 1) * spacing) / 2
    to = np.array([[spacing, 0, x], [0, spacing, y]]) / step
    values = fields.sampled(values, to, (rows, columns))
    values = fields.blurred(values, fields.missing(spacing, have) / spacing)
    return _Plane(values, spacing, (x, y))


@dataclass(frozen=True)
class Search:
    """What is searched: ``turns`` rotations and ``scales``; and how many candidates are kept.

    ``correlate`` compares templates with windows, for example on a GPU.
    """

    turns: int
    scales: Sequence[float]
    count: int
    correlate: Correlate = correlate


def search(
    image_fields: Pyramid,
    image_shape: tuple[int, int],
    templates: Sequence[Pixels],
    template_shape: tuple[int, int],
    how: Search,
) -> list[list[Candidate]]:
    """Return the best candidates of each template, best first, no two of them neighbors.

    ``templates`` are :func:`rotated_templates` of the same shape.
    """
    h = max(template_shape) / SCHEDULE.grid
    middle = np.array([(template_shape[1] - 1) / 2, (template_shape[0] - 1) / 2])

    def at_scale(s: float) -> list[list[Candidate]]:
        plane = _plane(image_fields, image_shape, s * h)
        block = max(1, _KEPT // int(np.prod(plane.counts)))
        norms = plane.norms()
        candidates = []
        for k in range(0, len(templates), block):
            columns = np.concatenate(templates[k : k + block], 1)
            scores, which = how.correlate(plane.values, columns, how.turns)
            scores /= norms
            candidates += [
                _peaks(score, turn, plane, s, how.turns, middle)
                for score, turn in zip(scores, which, strict=True)
            ]
        return candidates

    by_scale = threads.each(at_scale, how.scales)
    every = ([c for scale in by_scale for c in scale[k]] for k in range(len(templates)))
    return [_apart(sorted(one, key=lambda c: -c.score), how) for one in every]


def _peaks(
    best: Pixels,
    which: NDArray[np.uint8],
    plane: _Plane,
    scale: float,
    turns: int,
    middle: FloatArray,
) -> list[Candidate]:
    """Return the highest local maxima of scores (down, across) at their best turns."""
    around = cv2.dilate(best, np.ones((3, 3), np.uint8))
    rows, columns = np.nonzero(best >= around)
    order = np.argsort(-best[rows, columns])[: SCHEDULE.peaks]
    candidates = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        turn = int(which[row, column])
        window_center = np.array([column, row]) + (SCHEDULE.grid - 1) / 2
        center = np.array(plane.corner) + window_center * plane.spacing
        a = 2 * np.pi * turn / turns
        A = scale * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        transform = np.column_stack([A, center - A @ middle])
        x, y = (center / plane.spacing).tolist()
        place = (x, y, turn, float(np.log(scale)))
        candidates.append(Candidate(float(best[row, column]), transform, place))
    return candidates


def _apart(candidates: list[Candidate], how: Search) -> list[Candidate]:
    kept: list[Candidate] = []
    for candidate in candidates:
        if len(kept) == how.count:
            break
        if not any(_near(candidate, other, how.turns) for other in kept):
            kept.append(candidate)
    return kept


def _near(a: Candidate, b: Candidate, turns: int) -> bool:
    (x, y, turn, s), (u, v, other, t) = a.place, b.place
    between = abs(turn - other)
    return (
        abs(x - u) + abs(y - v) <= SCHEDULE.apart
        and min(between, turns - between) <= SCHEDULE.apart_turns
        and abs(s - t) < SCHEDULE.apart_scale
    )
