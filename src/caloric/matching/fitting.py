"""The last fit of a geometry: least squares over all matches, which fade out as they miss more.

Robust estimators stop at the best of their samples. Here the model is moved to the minimum of
Tukey's biweight of the residuals by Gauss and Newton's steps: of distances in the second image for
homographies and affine maps, of Sampson's distances for fundamental and essential matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray, GeometryModel

_STEPS = 15
_SETTLED = 1e-7  # of the model, relative
_EFFICIENT = 4.685  # standard deviations where Tukey's weight ends, for 95 % efficiency
_MODELLED = 0.05  # pixels by which precise matches miss a model, for lenses and surfaces
_UNREFINED = 0.3  # pixels by which a match misses that was not refined
_TURNS = np.array(
    [[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
     [[0, -1, 0], [1, 0, 0], [0, 0, 0]]], np.float64,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Fit:
    """Residuals (m, k) of a model and their slopes (m, k, d) with respect to its d parameters."""

    residuals: FloatArray
    slopes: FloatArray


def homogeneous(points: FloatArray) -> FloatArray:
    """Return points (m, 2) with a third coordinate of 1."""
    return np.concatenate([points, np.ones((len(points), 1))], 1)


def _cross(t: FloatArray) -> FloatArray:
    return np.asarray(np.tensordot(t, _TURNS, 1))


def _rotation(w: FloatArray) -> FloatArray:
    return np.asarray(cv2.Rodrigues(w)[0], np.float64)


class _Plane:
    """A homography: nine numbers, whose scale is left alone."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix / np.linalg.norm(matrix)

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        z = x @ self.matrix.T
        depth = np.where(np.abs(z[:, 2:]) > 1e-12, z[:, 2:], 1e-12)
        seen = z[:, :2] / depth
        slopes = np.zeros((len(x), 2, 9))
        over = x / depth
        slopes[:, 0, :3] = slopes[:, 1, 3:6] = over
        slopes[:, :, 6:] = -seen[:, :, None] * over[:, None]
        flat = self.matrix.ravel()
        slopes -= (slopes @ flat)[..., None] * flat
        return _Fit(seen - y[:, :2], slopes)

    def moved(self, step: FloatArray) -> "_Plane":
        return _Plane(self.matrix + step.reshape(3, 3))


class _Affine:
    """An affine map (2, 3)."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        slopes = np.zeros((len(x), 2, 6))
        slopes[:, 0, :3] = slopes[:, 1, 3:] = x
        return _Fit(x @ self.matrix.T - y[:, :2], slopes)

    def moved(self, step: FloatArray) -> "_Affine":
        return _Affine(self.matrix + step.reshape(2, 3))


def _sampson(matrix: FloatArray, changes: FloatArray, x: FloatArray, y: FloatArray) -> _Fit:
    """Return Sampson's distances (m, 1) and their slopes for changes (d, 3, 3) of the matrix."""
    line_b, line_a = x @ matrix.T, y @ matrix
    normal = np.concatenate([line_b[:, :2], line_a[:, :2]], 1)
    length = np.sqrt(np.maximum((normal**2).sum(1), 1e-300))
    distance = (y * line_b).sum(1) / length
    changed_b = np.einsum("mj,dij->mdi", x, changes)
    changed_a = np.einsum("mi,dij->mdj", y, changes)
    changed = np.concatenate([changed_b[:, :, :2], changed_a[:, :, :2]], 2)
    along = (changed @ normal[:, :, None])[:, :, 0] / length[:, None]
    top = (changed_b @ y[:, :, None])[:, :, 0]
    slopes = (top - distance[:, None] * along) / length[:, None]
    return _Fit(distance[:, None], slopes[:, None])


class _Fundamental:
    """U diag(1, s, 0) Vᵀ: turns of U and V, and s."""

    def __init__(self, matrix: FloatArray) -> None:
        self.u, values, self.vt = np.linalg.svd(matrix)
        self.s = values[1] / values[0] if values[0] > 0 else 0.0

    @property
    def matrix(self) -> FloatArray:
        return np.asarray(self.u * (1.0, self.s, 0.0) @ self.vt)

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        middle = np.diag([1.0, self.s, 0.0])
        left = self.u @ _TURNS @ middle @ self.vt
        right = -self.u @ middle @ _TURNS @ self.vt
        changes = np.concatenate([left, right, (self.u[:, 1:2] @ self.vt[1:2])[None]])
        return _sampson(self.matrix, changes, x, y)

    def moved(self, step: FloatArray) -> "_Fundamental":
        new = _Fundamental.__new__(_Fundamental)
        new.u = self.u @ _rotation(step[:3])
        new.vt = _rotation(step[3:6]).T @ self.vt
        new.s = self.s + float(step[6])
        return new


class _Essential:
    """[t]× R between cameras: turns of R, and two changes of the unit vector t."""

    def __init__(self, matrix: FloatArray, cameras: Sequence[FloatArray]) -> None:
        self.rotation, _, translation = cv2.decomposeEssentialMat(matrix)
        self.translation = np.asarray(translation[:, 0], np.float64)
        self.inverses = tuple(np.linalg.inv(k) for k in cameras)

    @property
    def matrix(self) -> FloatArray:
        return _cross(self.translation) @ self.rotation

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        first, second = self.inverses
        turned = _cross(self.translation) @ _TURNS @ self.rotation
        across = np.linalg.svd(self.translation[None])[2][1:]
        self.across = across
        changes = np.concatenate([turned, np.tensordot(across, _TURNS, 1) @ self.rotation])
        return _sampson(second.T @ self.matrix @ first, second.T @ changes @ first, x, y)

    def moved(self, step: FloatArray) -> "_Essential":
        new = _Essential.__new__(_Essential)
        new.rotation = _rotation(step[:3]) @ self.rotation
        translation = self.translation + step[3:] @ self.across
        new.translation = translation / np.linalg.norm(translation)
        new.inverses = self.inverses
        return new


_Any = _Plane | _Affine | _Fundamental | _Essential


@dataclass(frozen=True, eq=False)
class _Units:
    """Coordinates around 0 and up to about 1: the numbers of a model are then of one size."""

    shift: FloatArray
    scale: float

    @classmethod
    def of(cls, p: FloatArray, q: FloatArray) -> "_Units":
        both = np.concatenate([p, q])
        return cls(both.mean(0), max(1.0, float(np.abs(both).max())))

    @property
    def unit(self) -> FloatArray:
        (x, y), scale = self.shift, self.scale
        return np.array([[1 / scale, 0, -x / scale], [0, 1 / scale, -y / scale], [0, 0, 1]])

    def of_points(self, points: FloatArray) -> FloatArray:
        return np.asarray(homogeneous(points) @ self.unit.T)

    def start(
        self, model: GeometryModel, matrix: FloatArray, cameras: Sequence[FloatArray] | None
    ) -> _Any:
        unit = self.unit
        back = np.linalg.inv(unit)
        if model == "homography":
            return _Plane(unit @ matrix @ back)
        if model == "affine":
            return _Affine((unit @ np.concatenate([matrix, [[0, 0, 1]]]) @ back)[:2])
        if model == "fundamental":
            return _Fundamental(back.T @ matrix @ back)
        assert cameras is not None
        return _Essential(matrix, (unit @ cameras[0], unit @ cameras[1]))

    def finish(self, model: GeometryModel, matrix: FloatArray) -> FloatArray:
        unit = self.unit
        back = np.linalg.inv(unit)
        if model == "homography":
            matrix = back @ matrix @ unit
        elif model == "affine":
            matrix = (back @ np.concatenate([matrix, [[0, 0, 1]]]) @ unit)[:2]
        elif model == "fundamental":
            matrix = unit.T @ matrix @ unit
        return np.asarray(matrix)


def factors(covariances: FloatArray) -> FloatArray:
    """Return weights (m,) for matches of known covariances (m, 2, 2), in square pixels."""
    variance = np.trace(covariances, axis1=1, axis2=2) / 2
    variance = np.where(np.isfinite(variance), variance, _UNREFINED**2)
    return np.asarray(_MODELLED**2 / (_MODELLED**2 + variance))


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points p and q (m, 2), and the kind of model that is to be estimated from them.

    ``cameras`` are the calibration matrices (3, 3) of both images, for an essential matrix;
    ``factors`` (m,) weight the matches; ``frames`` (m, 2, 3) of both images are given if known.
    """

    p: FloatArray
    q: FloatArray
    model: GeometryModel
    cameras: list[FloatArray] | None = None
    factors: FloatArray | None = None
    frames: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.p)


def fit(matches: Correspondences, matrix: FloatArray, threshold: float) -> FloatArray:
    """Return the model of matches at the minimum nearest to ``matrix``, as its matrix.

    Matches that miss by ``threshold`` pixels or more do not count, nor do those that miss by more
    than the others make likely. The model stays as it is if
    a step would be infinite.
    """
    p, q, model, factors = matches.p, matches.q, matches.model, matches.factors
    units = _Units.of(p, q)
    x, y, scale = units.of_points(p), units.of_points(q), units.scale
    now = units.start(model, matrix, matches.cameras)
    limit = threshold
    for _ in range(_STEPS):
        here = now.at(x, y)
        size = scale * np.linalg.norm(here.residuals, axis=1)
        weights = _weights(size, limit)
        limit = _limit(size, threshold)
        if factors is not None:
            weights = weights * factors
        weighted = weights[:, None, None] * here.slopes
        hessian = np.einsum("mki,mkj->ij", weighted, here.slopes)
        gradient = np.einsum("mki,mk->i", weighted, here.residuals)
        hessian += 1e-12 * np.trace(hessian) * np.eye(len(hessian))
        try:
            step = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        now = now.moved(step)
        if np.abs(step).max() < _SETTLED:
            break
    return units.finish(model, now.matrix)


def uncertainty(
    p: FloatArray, q: FloatArray, model: GeometryModel, matrix: FloatArray, places: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return where a planar model maps places (k, 2), and their standard deviations (k,) in pixels.

    They follow from the residuals of the matches p and q (m, 2), and from the curvature of the fit.
    """
    units = _Units.of(np.concatenate([p, places]), q)
    now = units.start(model, matrix, None)
    here = now.at(units.of_points(p), units.of_points(q))
    hessian = np.einsum("mki,mkj->ij", here.slopes, here.slopes)
    free = max(here.residuals.size - (8 if model == "homography" else 6), 1)
    variance = max(float((here.residuals**2).sum()) / free, (_MODELLED / units.scale) ** 2)
    covariance = variance * np.linalg.pinv(hessian, rcond=1e-12, hermitian=True)
    nothing = np.zeros((len(places), 3))
    there = now.at(units.of_points(places), nothing)
    spread = np.einsum("mki,ij,mkj->m", there.slopes, covariance, there.slopes)
    mapped = units.scale * there.residuals + units.shift
    return mapped, units.scale * np.sqrt(np.maximum(spread, 0))


def score(residuals: FloatArray, threshold: float) -> float:
    """Return how many matches agree with a model; those that just do count little."""
    return float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())


def line_distances(
    p: FloatArray, q: FloatArray, matrix: FloatArray, cameras: Sequence[FloatArray] | None = None
) -> FloatArray:
    """Return the larger distance (m,) of each match from its two epipolar lines, in pixels."""
    if cameras is not None:
        matrix = np.linalg.inv(cameras[1]).T @ matrix @ np.linalg.inv(cameras[0])
    x, y = homogeneous(p), homogeneous(q)
    line_b, line_a = x @ matrix.T, y @ matrix
    missed = np.abs((y * line_b).sum(1))
    shorter = np.minimum(*(np.linalg.norm(v[:, :2], axis=1) for v in (line_a, line_b)))
    return np.asarray(missed / np.maximum(shorter, 1e-300))


def _limit(size: FloatArray, threshold: float) -> float:
    """Return where weights end: as few as the residuals within the threshold make likely."""
    near = size[size < threshold]
    if len(near) == 0:
        return threshold
    deviation = 1.4826 * float(np.median(near))
    return float(np.clip(_EFFICIENT * deviation, threshold / 8, threshold))


def _weights(size: FloatArray, limit: float) -> NDArray[np.float64]:
    return np.asarray(np.clip(1 - (size / limit) ** 2, 0, None) ** 2)


def residual(
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
    matrix: FloatArray,
    cameras: list[FloatArray] | None = None,
) -> FloatArray:
    """Return the residual (m,) of each match, in pixels.

    For homographies and affine maps it is the distance in the second image, otherwise Sampson's
    approximation of the distance from the epipolar lines.
    """
    x, y = homogeneous(p), homogeneous(q)
    if model == "affine":
        return np.asarray(np.linalg.norm(x @ matrix.T - q, axis=1))
    if model == "homography":
        z = x @ matrix.T
        with np.errstate(divide="ignore", invalid="ignore"):
            distances = np.linalg.norm(z[:, :2] / z[:, 2:] - q, axis=1)
        return np.where(np.isfinite(distances), distances, np.inf)
    if cameras is not None:
        matrix = np.linalg.inv(cameras[1]).T @ matrix @ np.linalg.inv(cameras[0])
    line_b, line_a = x @ matrix.T, y @ matrix
    numerator = np.einsum("ni,ni->n", y, line_b)
    denominator = (line_b[:, :2] ** 2).sum(1) + (line_a[:, :2] ** 2).sum(1)
    return np.asarray(np.abs(numerator) / np.sqrt(np.maximum(denominator, 1e-300)))
