"""The last fit of a geometry: robust nonlinear least squares over all matches.

Gauss-Newton steps minimize Tukey's biweight of the residuals: distances in the second image for
homographies and affine maps, Sampson's distances for fundamental and essential matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray, GeometryModel

_STEPS = 15
_TOLERANCE = 1e-7  # largest change of a parameter in the last step
_TUKEY = 4.685  # standard deviations at which Tukey's weight is 0, for 95 % efficiency
_MODEL_ERROR = 0.05  # pixels: error of the model itself, from lenses and surfaces
_UNREFINED_ERROR = 0.3  # pixels: error of a match that was not refined
_GENERATORS = np.array(  # of rotations about x, y and z
    [[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
     [[0, -1, 0], [1, 0, 0], [0, 0, 0]]], np.float64,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Fit:
    """Residuals (m, k) of a model and their derivatives (m, k, d) by its d parameters."""

    residuals: FloatArray
    slopes: FloatArray


def homogeneous(points: FloatArray) -> FloatArray:
    """Return points (m, 2) with a third coordinate of 1."""
    return np.concatenate([points, np.ones((len(points), 1))], 1)


def _cross(t: FloatArray) -> FloatArray:
    return np.asarray(np.tensordot(t, _GENERATORS, 1))


def _rotation(w: FloatArray) -> FloatArray:
    return np.asarray(cv2.Rodrigues(w)[0], np.float64)


class _Plane:
    """A homography, parametrized by its nine entries; their norm stays constant to first order."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix / np.linalg.norm(matrix)

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        z = x @ self.matrix.T
        depth = np.where(np.abs(z[:, 2:]) > 1e-12, z[:, 2:], 1e-12)
        mapped = z[:, :2] / depth
        slopes = np.zeros((len(x), 2, 9))
        over = x / depth
        slopes[:, 0, :3] = slopes[:, 1, 3:6] = over
        slopes[:, :, 6:] = -mapped[:, :, None] * over[:, None]
        flat = self.matrix.ravel()
        slopes -= (slopes @ flat)[..., None] * flat
        return _Fit(mapped - y[:, :2], slopes)

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
    """Return Sampson's distances (m, 1) and their derivatives along changes (d, 3, 3)."""
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
    """F = U diag(1, s, 0) Vᵀ, parametrized by rotations of U and V, and s."""

    def __init__(self, matrix: FloatArray) -> None:
        self.u, values, self.vt = np.linalg.svd(matrix)
        self.s = values[1] / values[0] if values[0] > 0 else 0.0

    @property
    def matrix(self) -> FloatArray:
        return np.asarray(self.u * (1.0, self.s, 0.0) @ self.vt)

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        middle = np.diag([1.0, self.s, 0.0])
        left = self.u @ _GENERATORS @ middle @ self.vt
        right = -self.u @ middle @ _GENERATORS @ self.vt
        changes = np.concatenate([left, right, (self.u[:, 1:2] @ self.vt[1:2])[None]])
        return _sampson(self.matrix, changes, x, y)

    def moved(self, step: FloatArray) -> "_Fundamental":
        new = _Fundamental.__new__(_Fundamental)
        new.u = self.u @ _rotation(step[:3])
        new.vt = _rotation(step[3:6]).T @ self.vt
        new.s = self.s + float(step[6])
        return new


class _Essential:
    """E = [t]× R, parametrized by a rotation of R and two changes of the unit vector t."""

    def __init__(self, matrix: FloatArray, cameras: Sequence[FloatArray]) -> None:
        self.rotation, _, translation = cv2.decomposeEssentialMat(matrix)
        self.translation = np.asarray(translation[:, 0], np.float64)
        self.inverses = tuple(np.linalg.inv(k) for k in cameras)

    @property
    def matrix(self) -> FloatArray:
        return _cross(self.translation) @ self.rotation

    def at(self, x: FloatArray, y: FloatArray) -> _Fit:
        first, second = self.inverses
        rotations = _cross(self.translation) @ _GENERATORS @ self.rotation
        across = np.linalg.svd(self.translation[None])[2][1:]
        self.across = across
        changes = np.concatenate([rotations, np.tensordot(across, _GENERATORS, 1) @ self.rotation])
        return _sampson(second.T @ self.matrix @ first, second.T @ changes @ first, x, y)

    def moved(self, step: FloatArray) -> "_Essential":
        new = _Essential.__new__(_Essential)
        new.rotation = _rotation(step[:3]) @ self.rotation
        translation = self.translation + step[3:] @ self.across
        new.translation = translation / np.linalg.norm(translation)
        new.inverses = self.inverses
        return new


_Model = _Plane | _Affine | _Fundamental | _Essential


@dataclass(frozen=True, eq=False)
class _Units:
    """Normalized coordinates, in which the parameters of a model have a similar magnitude."""

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
    ) -> _Model:
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
    """Return weights (m,) of matches with covariances (m, 2, 2) in square pixels."""
    variance = np.trace(covariances, axis1=1, axis2=2) / 2
    variance = np.where(np.isfinite(variance), variance, _UNREFINED_ERROR**2)
    return np.asarray(_MODEL_ERROR**2 / (_MODEL_ERROR**2 + variance))


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points p and q (m, 2), and the kind of model to estimate from them.

    ``cameras`` are the calibration matrices (3, 3) of both images, for an essential matrix;
    ``factors`` (m,) are weights; ``frames`` are the frames (m, 2, 3) in both images, if known.
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
    """Return the matrix of the model at the local minimum reached from ``matrix``.

    Matches with a residual above ``threshold`` pixels have no weight; the limit decreases if most
    residuals are smaller. The iteration stops if a step is not finite.
    """
    p, q, model, factors = matches.p, matches.q, matches.model, matches.factors
    units = _Units.of(p, q)
    x, y, scale = units.of_points(p), units.of_points(q), units.scale
    current = units.start(model, matrix, matches.cameras)
    limit = threshold
    for _ in range(_STEPS):
        fit = current.at(x, y)
        size = scale * np.linalg.norm(fit.residuals, axis=1)
        weights = _weights(size, limit)
        limit = _limit(size, threshold)
        if factors is not None:
            weights = weights * factors
        weighted = weights[:, None, None] * fit.slopes
        hessian = np.einsum("mki,mkj->ij", weighted, fit.slopes)
        gradient = np.einsum("mki,mk->i", weighted, fit.residuals)
        hessian += 1e-12 * np.trace(hessian) * np.eye(len(hessian))
        try:
            step = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        current = current.moved(step)
        if np.abs(step).max() < _TOLERANCE:
            break
    return units.finish(model, current.matrix)


def uncertainty(
    p: FloatArray, q: FloatArray, model: GeometryModel, matrix: FloatArray, points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return points (k, 2) mapped by a planar model and their standard deviations (k,) in pixels.

    The deviations follow from the residuals of the matches p and q (m, 2).
    """
    units = _Units.of(np.concatenate([p, points]), q)
    current = units.start(model, matrix, None)
    fit = current.at(units.of_points(p), units.of_points(q))
    hessian = np.einsum("mki,mkj->ij", fit.slopes, fit.slopes)
    freedom = max(fit.residuals.size - (8 if model == "homography" else 6), 1)
    variance = max(float((fit.residuals**2).sum()) / freedom, (_MODEL_ERROR / units.scale) ** 2)
    covariance = variance * np.linalg.pinv(hessian, rcond=1e-12, hermitian=True)
    # With matches at 0 the residuals are the mapped points.
    at_points = current.at(units.of_points(points), np.zeros((len(points), 3)))
    spread = np.einsum("mki,ij,mkj->m", at_points.slopes, covariance, at_points.slopes)
    mapped = units.scale * at_points.residuals + units.shift
    return mapped, units.scale * np.sqrt(np.maximum(spread, 0))


def score(residuals: FloatArray, threshold: float) -> float:
    """Return the number of inliers, weighted by 1 − (residual / threshold)²."""
    return float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())


def line_distances(
    p: FloatArray, q: FloatArray, matrix: FloatArray, cameras: Sequence[FloatArray] | None = None
) -> FloatArray:
    """Return the larger distance (m,) of each match from its two epipolar lines, in pixels."""
    if cameras is not None:
        matrix = np.linalg.inv(cameras[1]).T @ matrix @ np.linalg.inv(cameras[0])
    x, y = homogeneous(p), homogeneous(q)
    line_b, line_a = x @ matrix.T, y @ matrix
    product = np.abs((y * line_b).sum(1))
    shorter = np.minimum(*(np.linalg.norm(v[:, :2], axis=1) for v in (line_a, line_b)))
    return np.asarray(product / np.maximum(shorter, 1e-300))


def _limit(size: FloatArray, threshold: float) -> float:
    """Return the residual at which weights become 0, from the median of those within threshold."""
    near = size[size < threshold]
    if len(near) == 0:
        return threshold
    deviation = 1.4826 * float(np.median(near))
    return float(np.clip(_TUKEY * deviation, threshold / 8, threshold))


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

    It is the distance in the second image for homographies and affine maps, and Sampson's distance
    for fundamental and essential matrices.
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
