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
from numpy.typing import NDArray

from caloric.frames import determinants, local_maps
from caloric.matching.points import PointIndex
from caloric.runtime import native, threads
from caloric.runtime.indexing import select
from caloric.types import FloatArray

_NEIGHBORS = (6, 12, 18, 24)  # nearest matches in the first image
_TOLERANCE = 3.0  # pixels of the first image, mapped to the second
_RELATIVE_TOLERANCE = 0.25  # share of the distance of the neighbor
_MAX_ROTATION = pi / 6
_SAME = 1.0  # pixels: features within it are at one position
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
class _Candidates:
    """Matches of frames a and b, (m, 2, 3) each, and the area of the second image.

    ``chance`` is the probability that rotation and scale of unrelated matches agree. It is 1 for
    orientations or scales that are the same in a whole image, as those of upright frames.
    """

    a: FloatArray
    b: FloatArray
    area: float
    chance: float

    @classmethod
    def of(cls, a: FloatArray, b: FloatArray, size_b: tuple[float, float]) -> "_Candidates":
        a, b = (np.ascontiguousarray(v, np.float64) for v in (a, b))
        rotated, scaled = (min(v) > _MIN_SPREAD for v in zip(_spreads(a), _spreads(b), strict=True))
        chance = _MAX_ROTATION / pi if rotated else 1.0
        chance *= 2 * _MAX_SCALE / _SCALE_RANGE if scaled else 1.0
        return cls(a, b, size_b[0] * size_b[1], chance)


def scores(a: FloatArray, b: FloatArray, size_b: tuple[float, float]) -> FloatArray:
    """Return the score (m,) of each match of frames a and b, (m, 2, 3) each.

    ``size_b`` is the size (h, w) of the second image.
    """
    result = np.zeros(len(a))
    if len(a) < 2:
        return result
    candidates, rows = _Candidates.of(a, b, size_b), np.arange(len(a))
    for _ in range(2):
        index = PointIndex.of(select(candidates.a, rows)[:, :, 2])
        result = (_by_numpy if index.grid is None else _by_core)(candidates, rows, index)
        rows = np.flatnonzero(result > _SUPPORTED)
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


def _spreads(maps: FloatArray) -> tuple[float, float]:
    """Return how much the orientations and the scales of frames (m, 2, 3) differ."""
    x, y = maps[:, 0, 0], maps[:, 1, 0]
    length = np.maximum(np.hypot(x, y), 1e-300)
    rotated = max(float(np.ptp(v / length)) for v in (x, y))
    longest = float(length.max())
    return rotated, float(longest - length.min()) / longest


def _by_core(candidates: _Candidates, rows: NDArray[np.intp], index: PointIndex) -> FloatArray:
    """Return the same as :func:`_by_numpy`, by the compiled core."""
    result = np.empty(len(candidates.a))
    native.core().agreement(
        grid=index.grid, rows=rows, a=candidates.a, b=candidates.b, neighbors=list(_NEIGHBORS),
        constants={
            "tolerance": _TOLERANCE, "relative_tolerance": _RELATIVE_TOLERANCE, "same": _SAME,
            "max_rotation": _MAX_ROTATION, "max_scale": _MAX_SCALE, "chance": candidates.chance,
            "area": candidates.area,
        },
        threads=threads.usable(), scores=result,
    )  # fmt: skip
    return result


def _by_numpy(candidates: _Candidates, rows: NDArray[np.intp], index: PointIndex) -> FloatArray:
    """Return the scores (m,) of all matches, by their neighbors among ``rows``."""
    maps = local_maps(candidates.a, candidates.b)
    # The rotation of the polar decomposition, and the logarithm of the root of the determinant.
    rotations = np.arctan2(maps[:, 1, 0] - maps[:, 0, 1], maps[:, 0, 0] + maps[:, 1, 1])
    log_scales = 0.5 * np.log(np.maximum(np.abs(determinants(maps)), 1e-12))
    p, q = candidates.a[:, :, 2], candidates.b[:, :, 2]
    distance, nearest = index.nearest(p, min(_NEIGHBORS[-1] + 1, len(rows)))
    near = rows[nearest]
    x, y = (p[near, i] - p[:, i, None] for i in range(2))
    square = sum(  # of the distance between prediction and match
        (maps[:, i, :1] * x + maps[:, i, 1:] * y - q[near, i] + q[:, i, None]) ** 2
        for i in range(2)
    )
    tolerance = np.exp(log_scales)[:, None] * (_TOLERANCE + _RELATIVE_TOLERANCE * distance)
    turn = np.abs(rotations[near] - rotations[:, None])
    turn = np.minimum(turn, 2 * pi - turn)
    stretch = np.abs(log_scales[near] - log_scales[:, None])
    other = distance > _SAME  # a match is not its own neighbor
    agrees = other & (square < tolerance**2) & (turn < _MAX_ROTATION) & (stretch < _MAX_SCALE)
    chance = candidates.chance * (pi * tolerance**2 / candidates.area).clip(None, 1.0)
    chance = np.where(other, chance, 0.0)
    best = np.zeros(len(p))
    for neighbors in _NEIGHBORS:
        part = slice(0, neighbors + 1)
        best = np.maximum(best, _surprise(agrees[:, part].sum(1), chance[:, part].sum(1)))
    return best


def _surprise(count: NDArray[np.intp], expected: FloatArray) -> FloatArray:
    """Return −log10 of the probability of at least ``count`` events; ``expected`` is the mean."""
    from scipy import special  # slow to import

    k, mean = count.astype(np.float64), np.maximum(expected, 1e-12)
    with np.errstate(divide="ignore"):
        exact = np.log(special.gammainc(np.maximum(k, 1), mean))
    # For small means the first term of the Poisson distribution, without rounding to 0.
    first = k * np.log(mean) - mean - special.gammaln(k + 1)
    logarithm = np.where(mean < 0.1 * (k + 1), first, exact)
    return np.where(k == 0, 0.0, -logarithm / log(10))
