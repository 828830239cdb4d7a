"""Agreement of a match with its neighbors, compared with chance.

The frames of a match give its local affine map. It predicts where its neighbors in the first image
appear in the second, and how they are rotated and scaled. On a surface correct matches predict each
other; unrelated ones agree by chance. The score of a match is −log10 of the probability that at
least as many of its neighbors agree by chance, for the best of several numbers of neighbors. It is
computed twice: the second time, only neighbors that have some support themselves are counted.
"""

from dataclasses import dataclass
from math import log, pi

import numpy as np

from caloric.frames import determinants
from caloric.matching.points import ON_HOST, PointSearch
from caloric.matching.sampling import local_maps
from caloric.runtime.arrays import at_least, namespace, special, true_indices
from caloric.types import ArrayOrTensor, FloatArray

_NEIGHBORS = (6, 12, 18, 24)  # nearest matches in the first image
_TOLERANCE = 3.0  # pixels of the first image, mapped to the second
_RELATIVE_TOLERANCE = 0.25  # share of the distance of the neighbor
_MAX_ROTATION = pi / 6
_MAX_SCALE = 0.5 * log(2)  # logarithm of the ratio of scales
_SCALE_RANGE = 4 * log(2)  # range of the logarithm over which unrelated scales are spread
_SUPPORTED = 1.0  # score of neighbors that are counted the second time
MIN_SCORE = 3.0  # of a match that is kept without the ratio test
# Of some match of a pair that can have a reliable geometry. Of 300 unrelated pairs one exceeds it;
# the smallest of the accepted geometries of related pairs is 30.
_MIN_SUPPORT = 10.0
_CHECKED_FIRST, _MAX_CHECKED = 100, 300  # matches; unrelated images have fewer than the second
_MIN_SPREAD = 1e-3  # of orientations and scales that say something about the geometry


@dataclass(frozen=True, eq=False)
class _Local:
    """Positions (m, 2) of matches, their local maps (m, 2, 2), rotations and log scales (m,).

    ``chance`` is the probability that rotation and scale of unrelated matches agree. It is 1 for
    orientations or scales that are the same in a whole image, as those of upright frames.
    """

    p: ArrayOrTensor
    q: ArrayOrTensor
    maps: ArrayOrTensor
    rotation: ArrayOrTensor
    scale: ArrayOrTensor
    chance: float

    @classmethod
    def of(cls, a: ArrayOrTensor, b: ArrayOrTensor) -> "_Local":
        maps, xp = local_maps(a, b), namespace(a)
        # The rotation of the polar decomposition, and the logarithm of the root of the determinant.
        rotation = xp.arctan2(maps[:, 1, 0] - maps[:, 0, 1], maps[:, 0, 0] + maps[:, 1, 1])
        scale = 0.5 * xp.log(at_least(abs(determinants(maps)), 1e-12))
        rotated, scaled = (min(v) > _MIN_SPREAD for v in zip(_spreads(a), _spreads(b), strict=True))
        chance = _MAX_ROTATION / pi if rotated else 1.0
        chance *= 2 * _MAX_SCALE / _SCALE_RANGE if scaled else 1.0
        return cls(a[:, :, 2], b[:, :, 2], maps, rotation, scale, chance)


def scores(
    a: ArrayOrTensor, b: ArrayOrTensor, size_b: tuple[float, float], search: PointSearch = ON_HOST
) -> ArrayOrTensor:
    """Return the score (m,) of each match of frames a and b, (m, 2, 3) each.

    ``size_b`` is the size (h, w) of the second image, ``search`` that for the kind of the arrays.
    """
    result = a[:, 0, 0] * 0.0
    if len(a) < 2:
        return result
    local = _Local.of(a, b)
    rows = true_indices(result == 0)
    for _ in range(2):
        result = _scores(local, rows, size_b[0] * size_b[1], search)
        rows = true_indices(result > _SUPPORTED)
        if len(rows) < 2:
            break
    return result


def has_support(a: FloatArray, b: FloatArray, size_b: tuple[float, float]) -> bool:
    """Return whether matches of frames a and b, (m, 2, 3) each, may have a reliable geometry.

    That is the case if some match agrees with its neighbors much better than by chance. If there
    are many matches, or if all frames of an image have the same orientation or scale and therefore
    do not determine local maps, it is not tested.
    """
    if len(a) > _MAX_CHECKED or len(a) < 2 or min(*_spreads(a), *_spreads(b)) <= _MIN_SPREAD:
        return True
    # Most pairs with support have it among the first matches, which are the nearest.
    counts = {min(_CHECKED_FIRST, len(a)), len(a)}
    return any(scores(a[:n], b[:n], size_b).max() > _MIN_SUPPORT for n in sorted(counts))


def _spreads(maps: ArrayOrTensor) -> tuple[float, float]:
    """Return how much the orientations and the scales of frames (m, 2, 3) differ."""
    x, y = maps[:, 0, 0], maps[:, 1, 0]
    length = at_least(namespace(x).hypot(x, y), 1e-300)
    directions, longest = (x / length, y / length), float(length.max())
    rotated = max(float(v.max() - v.min()) for v in directions)
    return rotated, float(longest - length.min()) / longest


def _scores(local: _Local, rows: ArrayOrTensor, area: float, search: PointSearch) -> ArrayOrTensor:
    """Return the scores (m,) of all matches, by their neighbors among ``rows``."""
    xp = namespace(local.p)
    number = min(_NEIGHBORS[-1] + 1, len(rows))
    _, nearest = search.nearest(local.p[rows], local.p, number)
    near = rows[nearest]
    x, y = (local.p[near, i] - local.p[:, i, None] for i in range(2))
    distance = xp.hypot(x, y)
    error = xp.hypot(*(  # between prediction and match
        local.maps[:, i, :1] * x + local.maps[:, i, 1:] * y - local.q[near, i] + local.q[:, i, None]
        for i in range(2)
    ))  # fmt: skip
    tolerance = xp.exp(local.scale)[:, None] * (_TOLERANCE + _RELATIVE_TOLERANCE * distance)
    turn = abs(local.rotation[near] - local.rotation[:, None])
    turn = xp.minimum(turn, 2 * pi - turn)
    stretch = abs(local.scale[near] - local.scale[:, None])
    # Features at one position are one neighbor; a match is not its own.
    other = distance > 1.0
    agrees = other & (error < tolerance) & (turn < _MAX_ROTATION) & (stretch < _MAX_SCALE)
    chance = local.chance * (pi * tolerance**2 / area).clip(None, 1.0)
    chance = xp.where(other, chance, 0.0)
    best = xp.zeros_like(local.scale)
    for neighbors in _NEIGHBORS:
        part = slice(0, neighbors + 1)
        best = xp.maximum(best, _surprise(agrees[:, part].sum(1), chance[:, part].sum(1)))
    return best


def _surprise(count: ArrayOrTensor, expected: ArrayOrTensor) -> ArrayOrTensor:
    """Return −log10 of the probability of at least ``count`` events; ``expected`` is the mean."""
    xp, functions = namespace(expected), special(expected)
    k, mean = xp.asarray(count, dtype=xp.float64), at_least(expected, 1e-12)
    with np.errstate(divide="ignore"):
        exact = xp.log(1 - functions.gammaincc(at_least(k, 1), mean))
    # For small expectations the first term of the Poisson distribution, without rounding to 0.
    first = k * xp.log(mean) - mean - functions.gammaln(k + 1)
    logarithm = xp.where(mean < 0.1 * (k + 1), first, exact)
    return xp.where(k == 0, 0.0, -logarithm / log(10))
