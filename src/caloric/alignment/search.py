"""Search for a template: compare its coarse density at every position, rotation and scale.

The search replaces the start of Algorithm 1, because the diffused energy at the largest σ does not
determine the position of a template in a larger image. The score is the normalized dot product of
eq. 15, with both densities blurred by a twelfth of the template. It is computed as one matrix
product between all windows of the image and all rotated templates.
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

_BLOCK = 1 << 21  # elements per block of windows
_MAX_SCORES = 1 << 25  # per block of templates


@dataclass(frozen=True, eq=False)
class Candidate:
    """A transform (2, 3) and its score."""

    score: float
    transform: FloatArray
    pose: tuple[float, float, int, float]  # x and y in grid samples, rotation index, log-scale


def _disc() -> NDArray[np.bool_]:
    u = np.arange(SCHEDULE.grid) - (SCHEDULE.grid - 1) / 2
    return np.asarray(u[:, None] ** 2 + u**2 <= (SCHEDULE.grid / 2) ** 2)


INSIDE = _disc()
_OFFSETS = [(int(y), int(x)) for y, x in zip(*np.nonzero(INSIDE), strict=True)]


def _angles(rotations: int) -> FloatArray:
    return np.asarray(np.arange(rotations) * (2 * np.pi / rotations), np.float64)


def rotated_templates(
    pyramid: Pyramid, shape: tuple[int, int], feature: Feature, rotations: int
) -> Pixels:
    """Return the template's fields in a disc at every rotation, (channels x disc, rotations).

    Each column has norm 1.
    """
    h = max(shape) / SCHEDULE.grid
    values, spacing, current = pyramid.level(h)
    values = fields.blurred(values, fields.missing(h, current) / spacing)
    center = np.array([(shape[1] - 1) / 2, (shape[0] - 1) / 2]) / spacing
    columns = []
    for a in _angles(rotations):
        c, s = np.cos(a), np.sin(a)
        A = np.array([[c, s], [-s, c]]) * h / spacing
        to = np.column_stack([A, center - A @ np.full(2, (SCHEDULE.grid - 1) / 2)])
        rotated = fields.rotated(
            fields.sampled(values, to, (SCHEDULE.grid, SCHEDULE.grid)), feature.harmonics, -float(a)
        )
        column = rotated[:, INSIDE].ravel()
        columns.append(column / max(float(np.linalg.norm(column)), 1e-12))
    return np.stack(columns, 1)


@dataclass(frozen=True, eq=False)
class _Plane:
    """The fields of the image on a grid: spacing in pixels, and first point ``corner`` (x, y)."""

    values: Pixels
    spacing: float
    corner: tuple[float, float]

    @property
    def counts(self) -> tuple[int, int]:
        """The number of windows (rows, columns)."""
        return self.values.shape[1] - SCHEDULE.grid + 1, self.values.shape[2] - SCHEDULE.grid + 1

    def norms(self) -> Pixels:
        """Return the norm of each window (rows, columns), bounded from below for flat windows."""
        rows, columns = self.counts
        energy = (self.values * self.values).sum(0)
        norm = np.zeros((rows, columns), np.float32)
        for y, x in _OFFSETS:
            norm += energy[y : y + rows, x : x + columns]
        return np.asarray(
            np.sqrt(norm + np.float32(SCHEDULE.energy_floor * float(norm.mean()) + 1e-12))
        )


def correlate(values: Pixels, columns: Pixels, rotations: int) -> tuple[Pixels, NDArray[np.uint8]]:
    """Return each window's highest product over the rotations, and the index of that rotation.

    ``values`` are (channels, h, w), ``columns`` (channels x disc, templates x rotations); both
    results are (templates, rows, columns of windows).
    """
    channels, down, across = (
        len(values),
        values.shape[1] - SCHEDULE.grid + 1,
        values.shape[2] - SCHEDULE.grid + 1,
    )
    rows = max(1, _BLOCK // (across * max(len(columns), columns.shape[1])))
    scores = np.empty((columns.shape[1] // rotations, down, across), np.float32)
    best_rotation = np.empty(scores.shape, np.uint8)
    for top in range(0, down, rows):
        count = min(rows, down - top)
        windows = np.empty((channels, len(_OFFSETS), count, across), np.float32)
        for i, (y, x) in enumerate(_OFFSETS):
            windows[:, i] = values[:, top + y : top + y + count, x : x + across]
        product = columns.T @ windows.reshape(len(columns), -1)
        table = product.reshape(-1, rotations, count, across)
        table.max(1, out=scores[:, top : top + count])
        best_rotation[:, top : top + count] = table.argmax(1)
    return scores, best_rotation


Correlate = Callable[[Pixels, Pixels, int], tuple[Pixels, NDArray[np.uint8]]]


def _plane(pyramid: Pyramid, shape: tuple[int, int], spacing: float) -> _Plane:
    """Return the fields of the image, padded with zeros by half a template on each side."""
    values, step, current = pyramid.level(spacing)
    h, w = shape
    rows, columns = (
        max(int(np.ceil(n / spacing)) + SCHEDULE.grid // 2, SCHEDULE.grid) for n in (h, w)
    )
    x, y = (w - 1 - (columns - 1) * spacing) / 2, (h - 1 - (rows - 1) * spacing) / 2
    to = np.array([[spacing, 0, x], [0, spacing, y]]) / step
    values = fields.sampled(values, to, (rows, columns))
    values = fields.blurred(values, fields.missing(spacing, current) / spacing)
    return _Plane(values, spacing, (x, y))


@dataclass(frozen=True)
class Search:
    """Options of the search: the number of rotations, the scales, and the number of candidates.

    ``correlate`` compares templates with windows, for example on a GPU.
    """

    rotations: int
    scales: Sequence[float]
    count: int
    correlate: Correlate = correlate


def search(
    image_fields: Pyramid,
    image_shape: tuple[int, int],
    templates: Sequence[Pixels],
    template_shape: tuple[int, int],
    options: Search,
) -> list[list[Candidate]]:
    """Return the best candidates of each template, best first and with distinct poses.

    ``templates`` are the :func:`rotated_templates` of templates of the same shape.
    """
    h = max(template_shape) / SCHEDULE.grid
    center = np.array([(template_shape[1] - 1) / 2, (template_shape[0] - 1) / 2])

    def at_scale(s: float) -> list[list[Candidate]]:
        plane = _plane(image_fields, image_shape, s * h)
        block = max(1, _MAX_SCORES // int(np.prod(plane.counts)))
        norms = plane.norms()
        candidates = []
        for k in range(0, len(templates), block):
            columns = np.concatenate(templates[k : k + block], 1)
            scores, best_rotation = options.correlate(plane.values, columns, options.rotations)
            scores /= norms
            candidates += [
                _peaks(score, rotation, plane, s, options.rotations, center)
                for score, rotation in zip(scores, best_rotation, strict=True)
            ]
        return candidates

    by_scale = threads.each(at_scale, options.scales)
    by_template = ([c for scale in by_scale for c in scale[k]] for k in range(len(templates)))
    return [_distinct(sorted(one, key=lambda c: -c.score), options) for one in by_template]


def _peaks(
    scores: Pixels,
    best_rotation: NDArray[np.uint8],
    plane: _Plane,
    scale: float,
    rotations: int,
    template_center: FloatArray,
) -> list[Candidate]:
    """Return the highest local maxima of scores (rows, columns) with their best rotations."""
    neighborhood = cv2.dilate(scores, np.ones((3, 3), np.uint8))
    rows, columns = np.nonzero(scores >= neighborhood)
    order = np.argsort(-scores[rows, columns])[: SCHEDULE.peaks]
    candidates = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        rotation = int(best_rotation[row, column])
        window_center = np.array([column, row]) + (SCHEDULE.grid - 1) / 2
        center = np.array(plane.corner) + window_center * plane.spacing
        a = 2 * np.pi * rotation / rotations
        A = scale * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        transform = np.column_stack([A, center - A @ template_center])
        x, y = (center / plane.spacing).tolist()
        pose = (x, y, rotation, float(np.log(scale)))
        candidates.append(Candidate(float(scores[row, column]), transform, pose))
    return candidates


def _distinct(candidates: list[Candidate], options: Search) -> list[Candidate]:
    kept: list[Candidate] = []
    for candidate in candidates:
        if len(kept) == options.count:
            break
        if not any(_is_near(candidate, other, options.rotations) for other in kept):
            kept.append(candidate)
    return kept


def _is_near(a: Candidate, b: Candidate, rotations: int) -> bool:
    (x, y, rotation, s), (u, v, other, t) = a.pose, b.pose
    difference = abs(rotation - other)
    return (
        abs(x - u) + abs(y - v) <= SCHEDULE.min_distance
        and min(difference, rotations - difference) <= SCHEDULE.similar_rotations
        and abs(s - t) < SCHEDULE.similar_log_scale
    )
