"""Models of two-view geometry: their parameters, residuals and derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from caloric.runtime import native
from caloric.types import FloatArray, GeometryModel

_GENERATORS = np.array(  # of rotations about x, y and z
    [[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
     [[0, -1, 0], [1, 0, 0], [0, 0, 0]]], np.float64,
)  # fmt: skip


def is_planar(model: GeometryModel) -> bool:
    """Return whether a model maps points to points."""
    return model in ("homography", "affine")


@dataclass(frozen=True, eq=False)
class Box:
    """The part of an image that is seen: its smallest and largest coordinates (x, y)."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, size: tuple[float, float] | None, points: FloatArray) -> "Box":
        """Return the box of an image of size (h, w), or of points (m, 2) if it is None."""
        if size is None:
            return cls(points.min(0), points.max(0))
        return cls(np.zeros(2), np.array([size[1] - 1.0, size[0] - 1.0]))

    @property
    def size(self) -> tuple[float, float]:
        """The height and the width in pixels."""
        w, h = self.high - self.low + 1
        return float(h), float(w)

    def contains(self, points: FloatArray) -> NDArray[np.bool_]:
        """Return which points (m, 2) are inside."""
        return np.asarray(((points >= self.low) & (points <= self.high)).all(1))


def overlap(matrix: FloatArray, boxes: tuple[Box, Box], count: int) -> FloatArray:
    """Return points (k, 2) of the first image that a planar model maps into the second.

    They are those of a grid of ``count`` by ``count`` points.
    """
    steps = np.linspace(0, 1, count)
    grid = np.stack([np.tile(steps, count), np.repeat(steps, count)], 1)
    points = boxes[0].low + grid * (boxes[0].high - boxes[0].low)
    return np.asarray(points[boxes[1].contains(mapped(points, matrix))])


@dataclass(frozen=True, eq=False)
class Fit:
    """Independent residuals (m, d) of matches, and their derivatives (m, d, 9) by the matrix.

    ``precisions`` (m, d) are the inverses of their variances, for unit variances of all positions.
    d is 2 for planar models and 1 for others. The sum of the squares times the precisions is the
    square of Sampson's distance, which does not depend on the order of the images.
    """

    residuals: FloatArray
    precisions: FloatArray
    slopes: FloatArray

    @property
    def squares(self) -> FloatArray:
        """The squares (m,) of Sampson's distances."""
        return np.asarray((self.precisions * self.residuals**2).sum(1))

    def equations(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the normal equations of weighted matches: Hessian (9, 9) and gradient (9,)."""
        used = np.flatnonzero(weights > 0)
        slopes = self.slopes[used].reshape(-1, 9)
        weighted = slopes.T * (weights[used, None] * self.precisions[used]).ravel()
        return weighted @ slopes, weighted @ self.residuals[used].ravel()


def fit(planar: bool, matrix: FloatArray, x: FloatArray, y: FloatArray) -> Fit:
    """Return the residuals of a homography or a fundamental matrix at matches x and y (m, 2)."""
    return (_plane_fit if planar else _line_fit)(matrix, homogeneous(x), homogeneous(y))


def _line_fit(matrix: FloatArray, x: FloatArray, y: FloatArray) -> Fit:
    """Return the epipolar constraints of matches; their derivatives by positions are normals."""
    x, y = x.T, y.T  # faster along rows
    line_b, line_a = matrix @ x, matrix.T @ y
    constraints = (y * line_b).sum(0)
    line_b[2] = line_a[2] = 0
    precisions = 1 / np.maximum((line_a**2 + line_b**2).sum(0), 1e-30)
    relative = constraints * precisions
    slopes = (y - relative * line_b)[:, None] * x - y[:, None] * (relative * line_a)
    return Fit(constraints[:, None], precisions[:, None], slopes.reshape(9, -1).T[:, None])


def _plane_fit(matrix: FloatArray, x: FloatArray, y: FloatArray) -> Fit:
    """Return the differences of mapped points from y, in coordinates that are independent.

    Errors of equal size in both images give differences with the covariance I + J Jᵀ for the
    derivative J of the map.
    """
    points, slopes, (xx, xy, yx, yy) = _mapped_with_slopes(matrix, x)
    first, covariance = 1 + xx * xx + xy * xy, xx * yx + xy * yy
    slope = covariance / first
    second = 1 + yx * yx + yy * yy - slope * covariance
    residuals = points - y[:, :2]
    residuals[:, 1] -= slope * residuals[:, 0]
    slopes[:, 1] -= slope[:, None] * slopes[:, 0]
    return Fit(residuals, 1 / np.stack([first, second], 1), slopes)


def _mapped_with_slopes(
    matrix: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mapped points (m, 2), and derivatives by the matrix (m, 2, 9) and position (4, m)."""
    z = x @ matrix.T
    depth = np.where(np.abs(z[:, 2:]) > 1e-12, z[:, 2:], 1e-12)
    points, ratio, slopes = z[:, :2] / depth, x / depth, np.zeros((len(x), 2, 9))
    slopes[:, 0, :3] = slopes[:, 1, 3:6] = ratio
    slopes[:, :, 6:] = -points[:, :, None] * ratio[:, None]
    by_position = (matrix[:2, :2] - points[:, :, None] * matrix[2, :2]) / depth[:, :, None]
    return points, slopes, by_position.reshape(-1, 4).T


def homogeneous(points: FloatArray) -> FloatArray:
    """Return points (m, 2) with a third coordinate of 1."""
    result = np.ones((len(points), 3))
    result[:, :2] = points
    return result


def cross(t: FloatArray) -> FloatArray:
    """Return the matrix [t]× (3, 3) of the cross product with a vector (3,)."""
    return np.asarray(np.tensordot(t, _GENERATORS, 1))


def _rotation(w: FloatArray) -> FloatArray:
    """Return a rotation by about the vector w (3,) of axis and angle: Cayley's formula."""
    half = cross(w / 2)
    return np.asarray(np.eye(3) + 2 / (1 + w @ w / 4) * (half + half @ half))


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its parameters.

    They are the nine entries of the ``middle`` matrix of a homography, which is defined up to
    scale, and the first six of an affine map. For F = U diag(1, s, 0) Vᵀ they are rotations of U
    and V, and s. For an essential matrix s is 1, and U and V rotate about z by the same angle.
    ``inverses`` are those of the cameras (3, 3), to which normalized coordinates refer.
    """

    kind: GeometryModel
    middle: FloatArray
    u: FloatArray
    vt: FloatArray
    inverses: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls, kind: GeometryModel, matrix: FloatArray, cameras: Sequence[FloatArray] | None
    ) -> "Model":
        """Return the model with a matrix in normalized coordinates, or the nearest one."""
        inverses = tuple(np.asarray(np.linalg.inv(k), np.float64) for k in cameras or ())
        if is_planar(kind):
            norm = np.linalg.norm(matrix) if kind == "homography" else 1.0
            return cls(kind, matrix / norm, np.eye(3), np.eye(3), inverses)
        u, (first, second, _), vt = np.linalg.svd(matrix)
        s = 1.0 if kind == "essential" else second / first if first > 0 else 0.0
        return cls(kind, np.diag([1.0, s, 0.0]), u, vt, inverses)

    @property
    def matrix(self) -> FloatArray:
        """The matrix (3, 3) of the model."""
        return self.u @ self.middle @ self.vt

    @property
    def changes(self) -> FloatArray:
        """The derivatives (n, 3, 3) of the matrix by the parameters."""
        unit = np.eye(9).reshape(9, 3, 3)
        if is_planar(self.kind):
            return unit if self.kind == "homography" else unit[:6]
        left, right = _GENERATORS @ self.middle, -self.middle @ _GENERATORS
        changes = np.concatenate([left, right, unit[4:5]])
        count = 5 if self.kind == "essential" else 7
        return np.asarray(self.u @ changes[:count] @ self.vt)

    def of_residuals(self, matrices: FloatArray) -> FloatArray:
        """Return the matrices (..., 3, 3) of residuals, for that of the model or derivatives."""
        if self.kind != "essential":
            return matrices
        first, second = self.inverses
        return np.asarray(second.T @ matrices @ first)

    def fit(self, x: FloatArray, y: FloatArray) -> Fit:
        """Return the residuals of matches x and y (m, 2) in normalized coordinates."""
        with np.errstate(all="ignore"):
            return fit(is_planar(self.kind), self.of_residuals(self.matrix), x, y)

    def moved(self, step: FloatArray) -> "Model":
        """Return the model after a step (n,) of its parameters."""
        steps = np.zeros(9)
        steps[: len(step)] = step
        if is_planar(self.kind):
            return Model.of(self.kind, self.middle + steps.reshape(3, 3), None)
        u, vt = self.u @ _rotation(steps[:3]), _rotation(steps[3:6]).T @ self.vt
        return replace(self, u=u, vt=vt, middle=self.middle + np.diag([0, steps[6], 0]))


@dataclass(frozen=True, eq=False)
class Units:
    """Normalized coordinates, in which the parameters of a model have a similar magnitude."""

    shift: FloatArray
    scale: float

    @classmethod
    def of(cls, p: FloatArray, q: FloatArray) -> "Units":
        """Return the units of points (m, 2)."""
        x, y = np.concatenate([p.T, q.T], 1)  # faster along rows
        largest = max(max(-float(v.min()), float(v.max())) for v in (x, y))
        return cls(np.array([x.mean(), y.mean()]), max(1.0, largest))

    @property
    def unit(self) -> FloatArray:
        """The map (3, 3) from pixels."""
        (x, y), scale = self.shift, self.scale
        return np.array([[1 / scale, 0, -x / scale], [0, 1 / scale, -y / scale], [0, 0, 1]])

    def of_points(self, points: FloatArray) -> FloatArray:
        """Return points (m, 2) in these units."""
        return np.ascontiguousarray((points - self.shift) / self.scale)

    def normalized(self, model: GeometryModel, matrix: FloatArray) -> FloatArray:
        """Return a matrix in pixels as one (3, 3) in these units; essential matrices are equal."""
        unit = self.unit
        back = np.linalg.inv(unit)
        if is_planar(model):
            return np.asarray(unit @ whole(matrix) @ back)
        return np.asarray(back.T @ matrix @ back if model == "fundamental" else matrix)

    def finish(self, model: GeometryModel, matrix: FloatArray) -> FloatArray:
        """Return the matrix of a model in pixels, or several (..., 3, 3)."""
        unit = self.unit
        back = np.linalg.inv(unit)
        if model == "homography":
            matrix = back @ matrix @ unit
        elif model == "affine":
            matrix = (back @ matrix @ unit)[..., :2, :]
        elif model == "fundamental":
            matrix = unit.T @ matrix @ unit
        return np.asarray(matrix)


def residual(
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
    matrix: FloatArray,
    cameras: list[FloatArray] | None = None,
) -> FloatArray:
    """Return the residual (m,) of each match of points (m, 2), in pixels.

    It is Sampson's distance, times the square root of 2 for homographies and affine maps, so that
    for a translation it is the distance in either image. It does not depend on the order of the
    images.
    """
    planar = is_planar(model)
    matrix = whole(matrix) if planar else in_pixels(matrix, cameras)
    core = native.core()
    if core is None:
        with np.errstate(all="ignore"):
            distances = np.sqrt(fit(planar, matrix, p, q).squares)
        distances = np.where(np.isfinite(distances), distances, np.inf)
    else:
        p, q, matrix = (np.ascontiguousarray(v, np.float64) for v in (p, q, matrix))
        distances = core.sampson_distances(p, q, matrix, planar)
    return np.asarray(distances * (2**0.5 if planar else 1.0))


def whole(matrix: FloatArray) -> FloatArray:
    """Return a homography (3, 3) or an affine map (2, 3) as a matrix (3, 3)."""
    return matrix if len(matrix) == 3 else np.concatenate([matrix, [[0, 0, 1]]])


def in_pixels(matrix: FloatArray, cameras: Sequence[FloatArray] | None) -> FloatArray:
    """Return the fundamental matrix of an essential matrix and its cameras, or the matrix.

    Several matrices (..., 3, 3) are accepted.
    """
    if cameras is None:
        return matrix
    return np.asarray(np.linalg.inv(cameras[1]).T @ matrix @ np.linalg.inv(cameras[0]))


def line_distances(
    p: FloatArray, q: FloatArray, matrix: FloatArray, cameras: Sequence[FloatArray] | None = None
) -> FloatArray:
    """Return the larger distance (m,) of each match from its two epipolar lines, in pixels."""
    matrix = in_pixels(matrix, cameras)
    x, y = homogeneous(p), homogeneous(q)
    (b, c, d), (e, f, _) = matrix @ x.T, matrix.T @ y.T
    shorter = np.sqrt(np.minimum(b * b + c * c, e * e + f * f))
    return np.asarray(np.abs(y[:, 0] * b + y[:, 1] * c + d) / np.maximum(shorter, 1e-300))


def mapped(points: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return points (k, 2) mapped by a homography (3, 3) or an affine map (2, 3)."""
    z = homogeneous(points) @ matrix.T
    if len(matrix) == 2:
        return np.asarray(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(z[:, :2] / z[:, 2:])


def errors(
    points: tuple[FloatArray, FloatArray | None],
    model: GeometryModel,
    matrix: FloatArray,
    covariance: FloatArray,
    cameras: list[FloatArray] | None = None,
) -> FloatArray:
    """Return the expected errors (k,) of a model in pixels, from the covariance of its entries.

    For a planar model it is the root mean square of the error of the first points (k, 2) mapped to
    the second image; otherwise that of Sampson's distance of points (k, 2) in both images.
    """
    p, q = points
    if is_planar(model):
        slopes = _mapped_with_slopes(whole(matrix), homogeneous(p))[1][:, :, : len(covariance)]
    else:
        assert q is not None
        if cameras is not None:  # the covariance of the entries of the fundamental matrix
            first, second = (np.linalg.inv(k) for k in cameras)
            change = np.kron(second.T, first.T)
            covariance = change @ covariance @ change.T
        epipolar = fit(False, in_pixels(matrix, cameras), p, q)
        slopes = epipolar.slopes * np.sqrt(epipolar.precisions)[:, None]
    rows = slopes.reshape(-1, len(covariance)).T
    variances = (rows * (covariance @ rows)).sum(0).reshape(len(p), -1).sum(1)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))
