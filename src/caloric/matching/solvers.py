"""Models of minimal samples of matches: points alone, or points and the local maps of their frames.

The frames of a match, A in the first image and B in the second, give its local affine map
L = B A⁻¹. A homography H maps p to q and has the derivative L there: 2 + 4 equations in H. A
fundamental matrix F satisfies q̃ᵀ F p̃ = 0 and (q̃ᵀ F) δ + (F p̃)ᵀ L δ = 0 for any δ: 1 + 2 equations
(Barath and Hajder, 2017; Bentolila and Francos, 2014). Two matches with frames determine a
homography, three a fundamental matrix.
"""

from dataclasses import dataclass
from math import cos, hypot, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from caloric.frames import local_maps, sigmas
from caloric.matching import models
from caloric.matching.models import Model, Units, cross, homogeneous
from caloric.types import FloatArray, GeometryModel

REACH = 2.0  # σ around a match within which its local map is assumed to hold
_EPIPOLAR_EQUATIONS = {"fundamental": 7, "essential": 5}
_SOLVER_STEPS = 8  # Newton steps to an essential matrix
_REGULAR = 1e-10  # smallest pivot of independent equations
Sample = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Solver:
    """Solves the equations of matches x and y (m, 2) in normalized coordinates.

    ``local`` (m, 2, 2) are the local maps, if there are frames, and ``reach`` (m,) the distances
    within which they hold.
    """

    x: FloatArray
    y: FloatArray
    model: GeometryModel
    cameras: list[FloatArray] | None
    local: FloatArray | None
    reach: FloatArray | None

    @classmethod
    def of(
        cls, x: FloatArray, y: FloatArray, model: GeometryModel, cameras: list[FloatArray] | None,
        frames: tuple[FloatArray, FloatArray] | None, units: Units,
    ) -> "Solver":  # fmt: skip
        """Return the solver of matches whose frames (m, 2, 3) are in pixels."""
        if frames is None:
            return cls(x, y, model, cameras, None, None)
        reach = REACH / units.scale * sigmas(frames[0])
        return cls(x, y, model, cameras, local_maps(*frames), reach)

    def models(self, sample: Sample, by_frames: bool, best: FloatArray | None) -> list[FloatArray]:
        """Return the matrices (3, 3) of a sample; ``best`` is the best so far, if there is one."""
        if models.is_planar(self.model):
            return self._planes(sample, by_frames)
        limit = _EPIPOLAR_EQUATIONS[self.model]
        rows = self._epipolar_rows(sample, by_frames)[:limit]
        if len(rows) < limit:
            return []
        if self.model == "fundamental":
            return _fundamental(rows)
        return self._essential(rows.reshape(5, 3, 3), sample, best)

    def parallax(self, sample: Sample, plane: FloatArray) -> list[FloatArray]:
        """Return F = [e]× H of a plane H and two matches that are not in it.

        Their lines through the points mapped by H intersect in e.
        """
        x, y = homogeneous(self.x[sample]), homogeneous(self.y[sample])
        first, second = np.cross(x @ plane.T, y)
        matrix = self.through(plane, np.cross(first, second))
        return [matrix] if np.isfinite(matrix).all() else []

    def through(self, plane: FloatArray, epipole: FloatArray) -> FloatArray:
        """Return F = [e]× H, or the nearest E; it is undefined if the epipole is."""
        matrix = cross(epipole) @ plane
        with np.errstate(invalid="ignore"):
            matrix = matrix / np.linalg.norm(matrix)
        if self.cameras is not None and np.isfinite(matrix).all():
            matrix = self.cameras[1].T @ matrix @ self.cameras[0]
            matrix = Model.of("essential", matrix, self.cameras).matrix
        return np.asarray(matrix)

    def _planes(self, sample: Sample, by_frames: bool) -> list[FloatArray]:
        """Least squares of the entries whose last is 1."""
        rows = []
        for m, x in zip(sample, homogeneous(self.x[sample]), strict=True):
            for i in range(2):
                row = np.zeros((3, 3))
                row[i], row[2] = x, -self.y[m, i] * x
                rows.append(row.ravel())
                if self.local is None or self.reach is None or not by_frames:
                    continue
                for j in range(2):
                    row = np.zeros((3, 3))
                    row[i, j], row[2] = 1, -self.local[m, i, j] * x
                    row[2, j] -= self.y[m, i]
                    rows.append(self.reach[m] * row.ravel())
        a = np.array(rows)
        used = a[:, : 8 if self.model == "homography" else 6]
        try:
            entries = np.linalg.solve(used.T @ used, -used.T @ a[:, 8])
        except np.linalg.LinAlgError:
            return []
        return [np.concatenate([entries, [0.0, 0.0, 1.0][len(entries) - 6 :]]).reshape(3, 3)]

    def _epipolar_rows(self, sample: Sample, by_frames: bool) -> FloatArray:
        """Return the equations (., 9) of F: those of points first."""
        x, y = homogeneous(self.x[sample]), homogeneous(self.y[sample])
        rows = [(b[:, None] * a).ravel() for a, b in zip(x, y, strict=True)]
        if self.local is None or self.reach is None or not by_frames:
            return np.array(rows)
        for k, m in enumerate(sample):
            for j in range(2):
                row = np.zeros((3, 3))
                row[:, j] = y[k]
                row[:2] += self.local[m, :, j, None] * x[k]
                rows.append(self.reach[m] * row.ravel())
        return np.array(rows)

    def _essential(
        self, rows: FloatArray, sample: Sample, best: FloatArray | None
    ) -> list[FloatArray]:
        """Return zeros of five equations (5, 3, 3) of F, found by Newton steps.

        They start from the best model so far, and from a rotation about the optical axis with a
        translation along each axis.
        """
        assert self.cameras is not None
        first, second = (np.linalg.inv(k) for k in self.cameras)
        rows = second @ rows @ first.T  # equations of E
        rows = rows / np.linalg.norm(rows, axis=(1, 2))[:, None, None]
        cosine, sine = ((1, 0), (0, 1), (-1, 0), (0, -1))[sample[0] % 4]
        if self.local is not None:  # the rotation of the first local map
            (a, b), (c, d) = self.local[sample[0]]
            length = max(hypot(a + d, c - b), 1e-300)
            cosine, sine = (a + d) / length, (c - b) / length
        turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
        starts = [cross(axis) @ turn for axis in np.eye(3)]
        solutions = []
        for start in starts if best is None else [best, *starts]:
            model = Model.of("essential", start, self.cameras)
            for _ in range(_SOLVER_STEPS):
                # The scalar product of an equation with U M Vᵀ is that of ``rotated`` with M.
                rotated = (model.u.T @ rows @ model.vt.T).reshape(5, 9).T
                values = rotated[0] + rotated[4]
                slopes = [rotated[7], -rotated[6], rotated[3] - rotated[1], rotated[5], -rotated[2]]
                try:
                    step = np.linalg.solve(np.stack(slopes, 1), -values)
                except np.linalg.LinAlgError:
                    break
                length = float(np.linalg.norm(step))
                if not length < 1e6:
                    break
                model = model.moved(np.asarray(step * min(1.0, 0.5 / max(length, 1e-300))))
                if length < 1e-4 and values @ values < 1e-8:
                    solutions.append(model.matrix)
                    break
        return solutions


def _fundamental(rows: FloatArray) -> list[FloatArray]:
    """Return F = t A + B with determinant 0, for the null space of seven equations (7, 9)."""
    null_space = _null_space(rows)
    if null_space is None:
        return []
    a, b = null_space
    # The determinant at four values of t gives its coefficients.
    zero, one, minus, two = (float(np.linalg.det(t * a + b)) for t in (0, 1, -1, 2))
    even, odd = (one + minus) / 2 - zero, (one - minus) / 2
    cubic = (two - 4 * even - 2 * odd - zero) / 6
    solutions = [t * a + b for t in _cubic_roots(cubic, even, odd - cubic, zero)]
    return [matrix / np.linalg.norm(matrix) for matrix in solutions]


def _null_space(rows: FloatArray) -> FloatArray | None:
    """Return the null space (2, 3, 3) by elimination with full pivoting, None if it is larger."""
    rows, order = rows.copy(), np.arange(9)
    for k in range(7):
        part = np.abs(rows[k:, order[k:]])
        i, j = divmod(int(part.argmax()), part.shape[1])
        if not part[i, j] > _REGULAR:
            return None
        rows[[k, k + i]] = rows[[k + i, k]]
        order[[k, k + j]] = order[[k + j, k]]
        rows[k] /= rows[k, order[k]]
        others = np.arange(7) != k
        rows[others] -= rows[others][:, order[k], None] * rows[k]
    result = np.zeros((2, 9))
    for vector, free in zip(result, order[7:], strict=True):
        vector[free] = 1
        vector[order[:7]] = -rows[:, free]
    return result.reshape(2, 3, 3)


def _cubic_roots(c3: float, c2: float, c1: float, c0: float) -> list[float]:
    """Return the real roots of c₃ t³ + c₂ t² + c₁ t + c₀."""
    if not abs(c3) > 1e-12 * max(abs(c) for c in (c3, c2, c1, c0)):
        return []
    a, b, c = c2 / c3, c1 / c3, c0 / c3
    q, r = (a * a - 3 * b) / 9, (2 * a**3 - 9 * a * b + 27 * c) / 54
    under = q**3 - r * r
    if under > 0:
        angle = np.arccos(min(max(r / sqrt(q**3), -1.0), 1.0))
        return [-2 * sqrt(q) * cos((angle + 2 * pi * k) / 3) - a / 3 for k in range(3)]
    s = (1 if r < 0 else -1) * (abs(r) + sqrt(-under)) ** (1 / 3)
    return [s + (q / s if s else 0.0) - a / 3]
