"""Models of two-view geometry: their parameters, residuals and derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.runtime import native
from caloric.types import FloatArray, GeometryModel

_GENERATORS = np.array(  # of rotations about x, y and z
    [[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
     [[0, -1, 0], [1, 0, 0], [0, 0, 0]]], np.float64,
)  # fmt: skip


_QUARTER_TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


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
class LineFit:
    """Sampson's distances (m,) of matches x and y (m, 3), in homogeneous coordinates.

    ``normals`` (m, 3) are those of the epipolar lines in both images, with a third entry of 0, and
    ``length`` (m,) is the root of the sum of their squares.
    """

    residuals: FloatArray
    x: FloatArray
    y: FloatArray
    normals: tuple[FloatArray, FloatArray]
    length: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray, x: FloatArray, y: FloatArray) -> "LineFit":
        """Return the distances of matches x and y (m, 2) from F = ``matrix`` (3, 3)."""
        x, y = homogeneous(x), homogeneous(y)
        line_b, line_a = x @ matrix.T, y @ matrix
        normal_b, normal_a = (np.concatenate([v[:, :2], 0 * x[:, 2:]], 1) for v in (line_b, line_a))
        square = (normal_b**2).sum(1) + (normal_a**2).sum(1)
        length = np.sqrt(np.maximum(square, 1e-300))
        return cls((y * line_b).sum(1) / length, x, y, (normal_a, normal_b), length)

    @property
    def slopes(self) -> FloatArray:
        """The derivatives (m, 9) of the distances by the entries of F."""
        x, y, (normal_a, normal_b) = self.x, self.y, self.normals
        along = normal_b[:, :, None] * x[:, None] + y[:, :, None] * normal_a[:, None]
        relative = (self.residuals / self.length)[:, None, None]
        products = y[:, :, None] * x[:, None] - relative * along
        return np.asarray(products.reshape(-1, 9) / self.length[:, None])

    @property
    def squares(self) -> FloatArray:
        """The squares (m,) of the residuals."""
        return self.residuals**2

    def selected(self, rows: NDArray[np.intp]) -> "LineFit":
        """Return the same for some of the matches."""
        a, b = self.normals
        return LineFit(
            self.residuals[rows], self.x[rows], self.y[rows], (a[rows], b[rows]), self.length[rows]
        )

    def equations(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the normal equations of weighted matches: Hessian (9, 9) and gradient (9,)."""
        slopes = self.slopes
        weighted = slopes.T * weights
        return weighted @ slopes, weighted @ self.residuals


@dataclass(frozen=True, eq=False)
class PlaneFit:
    """Residuals (m, 2) of points ``mapped`` (m, 2) by a homography or an affine map.

    ``ratio`` (m, 3) are the points before, divided by their depth after the homography. ``metric``
    (3, m) are the entries xx, xy and yy of the metric of residuals.
    """

    residuals: FloatArray
    mapped: FloatArray
    ratio: FloatArray
    metric: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray, x: FloatArray, y: FloatArray) -> "PlaneFit":
        """Return the residuals of a homography (3, 3) at matches x and y (m, 2)."""
        x = homogeneous(x)
        z = x @ matrix.T
        depth = np.where(np.abs(z[:, 2:]) > 1e-12, z[:, 2:], 1e-12)
        mapped = z[:, :2] / depth
        slopes = (matrix[:2, :2] - mapped[:, :, None] * matrix[2, :2]) / depth[:, :, None]
        return cls(mapped - y, mapped, x / depth, _metric(slopes))

    @property
    def squares(self) -> FloatArray:
        """The squares (m,) of Sampson's distances."""
        (u, v), (a, b, c) = self.residuals.T, self.metric
        squares: FloatArray = a * u * u + 2 * b * u * v + c * v * v
        return squares

    def selected(self, rows: NDArray[np.intp]) -> "PlaneFit":
        """Return the same for some of the matches."""
        return PlaneFit(
            self.residuals[rows], self.mapped[rows], self.ratio[rows], self.metric[:, rows]
        )

    @property
    def slopes(self) -> FloatArray:
        """The derivatives (m, 2, 9) of the residuals by the entries of the homography."""
        slopes = np.zeros((len(self.ratio), 2, 9))
        slopes[:, 0, :3] = slopes[:, 1, 3:6] = self.ratio
        slopes[:, :, 6:] = -self.mapped[:, :, None] * self.ratio[:, None]
        return slopes

    def equations(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the normal equations of weighted matches: Hessian (9, 9) and gradient (9,)."""
        (u, v), (ru, rv), (a, b, c) = self.mapped.T, self.residuals.T, weights * self.metric
        au, bv = a * u + b * v, b * u + c * v
        hessian = np.empty((3, 3, 3, 3))
        for i, j, factors in (
            (0, 0, a), (0, 1, b), (1, 1, c), (0, 2, -au), (1, 2, -bv), (2, 2, au * u + bv * v),
        ):  # fmt: skip
            hessian[i, :, j] = hessian[j, :, i] = (self.ratio.T * factors) @ self.ratio
        gu, gv = a * ru + b * rv, b * ru + c * rv
        gradient = np.stack([gu, gv, -u * gu - v * gv]) @ self.ratio
        return hessian.reshape(9, 9), gradient.ravel()


def _metric(slopes: FloatArray) -> FloatArray:
    """Return the metric (3, m) of residuals in the second image, for a map's slopes (m, 2, 2).

    Errors of equal size in both images, with unit covariances, give residuals with the covariance
    I + J Jᵀ (Sampson's approximation). Its inverse measures residuals in the same way if the images
    are exchanged.
    """
    xx, xy, yx, yy = slopes.reshape(-1, 4).T
    a, b, c = 1 + xx * xx + xy * xy, xx * yx + xy * yy, 1 + yx * yx + yy * yy
    return np.asarray(np.stack([c, -b, a]) / (a * c - b * b))


def homogeneous(points: FloatArray) -> FloatArray:
    """Return points (m, 2) with a third coordinate of 1."""
    return np.concatenate([points, np.ones_like(points[:, :1])], 1)


def cross(t: FloatArray) -> FloatArray:
    """Return the matrix [t]× (3, 3) of the cross product with a vector (3,)."""
    return np.asarray(np.tensordot(t, _GENERATORS, 1))


def _rotation(w: FloatArray) -> FloatArray:
    return np.asarray(cv2.Rodrigues(w)[0], np.float64)


class _InUnits:
    """A model whose residuals use its matrix directly."""

    def in_units(self, matrices: FloatArray) -> FloatArray:
        """Return the matrices (..., 3, 3) of the residuals, in normalized coordinates."""
        return matrices


class _Plane(_InUnits):
    """A homography, parametrized by its nine entries; it is defined up to scale."""

    changes = np.eye(9).reshape(9, 3, 3)  # derivatives of the matrix by the parameters

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix / np.linalg.norm(matrix)

    def moved(self, step: FloatArray) -> "_Plane":
        return _Plane(self.matrix + step.reshape(3, 3))


class _Affine(_InUnits):
    """An affine map: a homography whose last row stays 0, 0, 1."""

    changes = np.eye(9).reshape(9, 3, 3)[:6]

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix

    def moved(self, step: FloatArray) -> "_Affine":
        return _Affine(np.concatenate([self.matrix[:2] + step.reshape(2, 3), self.matrix[2:]]))


class _Fundamental(_InUnits):
    """F = U diag(1, s, 0) Vᵀ, parametrized by rotations of U and V, and s."""

    def __init__(self, matrix: FloatArray) -> None:
        self.u, values, self.vt = np.linalg.svd(matrix)
        self.s = values[1] / values[0] if values[0] > 0 else 0.0

    @property
    def matrix(self) -> FloatArray:
        return np.asarray(self.u * (1.0, self.s, 0.0) @ self.vt)

    @property
    def changes(self) -> FloatArray:
        middle = np.diag([1.0, self.s, 0.0])
        left = self.u @ _GENERATORS @ middle @ self.vt
        right = -self.u @ middle @ _GENERATORS @ self.vt
        return np.concatenate([left, right, (self.u[:, 1:2] @ self.vt[1:2])[None]])

    def moved(self, step: FloatArray) -> "_Fundamental":
        new = _Fundamental.__new__(_Fundamental)
        new.u = self.u @ _rotation(step[:3])
        new.vt = _rotation(step[3:6]).T @ self.vt
        new.s = self.s + float(step[6])
        return new


class _Essential:
    """E = [t]× R, parametrized by a rotation of R and two changes of the unit vector t."""

    def __init__(self, matrix: FloatArray, cameras: Sequence[FloatArray]) -> None:
        u, _, vt = np.linalg.svd(matrix)
        # Two rotations are possible, which give the same matrix.
        both = (u @ _QUARTER_TURN @ vt, u @ _QUARTER_TURN.T @ vt)
        proper = [np.asarray(np.linalg.det(rotation) * rotation) for rotation in both]
        self.rotation: FloatArray = max(proper, key=np.trace)
        self.translation = u[:, 2]
        self.inverses = tuple(np.linalg.inv(k) for k in cameras)

    @property
    def matrix(self) -> FloatArray:
        return cross(self.translation) @ self.rotation

    @property
    def across(self) -> FloatArray:
        """Two unit vectors (2, 3) orthogonal to the translation."""
        return np.asarray(np.linalg.svd(self.translation[None])[2][1:])

    @property
    def changes(self) -> FloatArray:
        rotations = cross(self.translation) @ _GENERATORS @ self.rotation
        translations = np.tensordot(self.across, _GENERATORS, 1) @ self.rotation
        return np.concatenate([rotations, translations])

    def in_units(self, matrices: FloatArray) -> FloatArray:
        """Return the matrices (..., 3, 3) of the residuals, in normalized coordinates."""
        first, second = self.inverses
        return np.asarray(second.T @ matrices @ first)

    def moved(self, step: FloatArray) -> "_Essential":
        new = _Essential.__new__(_Essential)
        new.rotation = _rotation(step[:3]) @ self.rotation
        translation = self.translation + step[3:] @ self.across
        new.translation = translation / np.linalg.norm(translation)
        new.inverses = self.inverses
        return new


Model = _Plane | _Affine | _Fundamental | _Essential


def in_normalized(
    model: GeometryModel, matrix: FloatArray, cameras: Sequence[FloatArray] | None
) -> Model:
    """Return the model with a matrix in normalized coordinates, to which the cameras map."""
    if model == "essential":
        assert cameras is not None
        return _Essential(matrix, cameras)
    if model == "fundamental":
        return _Fundamental(matrix)
    return _Plane(matrix) if model == "homography" else _Affine(matrix)


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
            squares = (PlaneFit if planar else LineFit).of(matrix, p, q).squares
    else:
        p, q, matrix = (np.ascontiguousarray(v, np.float64) for v in (p, q, matrix))
        squares = core.square_residuals(p, q, matrix, planar)
    factor = 2.0 if planar else 1.0
    valid = np.isfinite(squares) & (squares >= 0)  # rounding may make a metric indefinite
    return np.where(valid, np.sqrt(factor * np.where(valid, squares, 0)), np.inf)


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
    line_b, line_a = x @ matrix.T, y @ matrix
    product = np.abs((y * line_b).sum(1))
    shorter = np.minimum(*(np.linalg.norm(v[:, :2], axis=1) for v in (line_a, line_b)))
    return np.asarray(product / np.maximum(shorter, 1e-300))


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
        slopes = PlaneFit.of(whole(matrix), p, np.zeros_like(p)).slopes[:, :, : len(covariance)]
    else:
        assert q is not None
        slopes = LineFit.of(in_pixels(matrix, cameras), p, q).slopes
        if cameras is not None:  # derivatives by the entries of the essential matrix
            first, second = (np.linalg.inv(k) for k in cameras)
            slopes = slopes @ np.kron(second.T, first.T)
        slopes = slopes[:, None]
    spread = (slopes @ covariance * slopes).sum((1, 2))
    return np.asarray(np.sqrt(np.maximum(spread, 0.0)))
