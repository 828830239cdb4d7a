"""Random samples of matched frames: two matches determine a homography, three a fundamental matrix.

The frames of a match, A in the first image and B in the second, give its local affine map
L = B A⁻¹. A homography H maps p to q and has the derivative L there: 2 + 4 equations in H. A
fundamental matrix F satisfies q̃ᵀ F p̃ = 0 and (q̃ᵀ F) δ + (F p̃)ᵀ L δ = 0 for any δ: 1 + 2 equations
(Barath and Hajder, 2017; Bentolila and Francos, 2014). With such small samples, one correct match
in ten is enough.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.frames import inverses, products, sigmas
from caloric.matching import fitting
from caloric.matching.models import homogeneous, in_pixels
from caloric.types import FloatArray, GeometryModel

# If one match in ten is correct, so is one sample of two matches in a hundred, and one of three
# matches in a thousand.
_SAMPLES = {"homography": 3000, "affine": 3000, "fundamental": 10_000, "essential": 10_000}
_SAMPLE_SIZE = {
    "homography": 2,
    "affine": 1,
    "fundamental": 3,
    "essential": 3,
}  # matches per sample
MIN_MATCHES = 4
_REACH = 2.0  # σ around a match within which its local map is assumed to hold
_SCORED = 400  # matches with which all samples are scored
_KEPT = 200  # best samples, which are solved again from all matches close to them
_CLOSE = (8.0, 8.0, 4.0, 2.0)  # thresholds within which matches are close, per iteration
_FITTED = 5  # best models that are fitted
_BLOCK = 500  # models whose residuals are computed at once


def local_maps(maps_a: FloatArray, maps_b: FloatArray) -> FloatArray:
    """Return the affine maps (m, 2, 2) from frames (m, 2, 3) of one image to those of another."""
    return products(maps_b[:, :, :2], inverses(maps_a))


def search(
    frames: tuple[FloatArray, FloatArray],
    model: GeometryModel,
    threshold: float,
    seed: int,
    cameras: list[FloatArray] | None = None,
) -> FloatArray | None:
    """Return the best model from samples of matched frames (m, 2, 3), or None."""
    maps_a, maps_b = frames
    p, q, count = maps_a[:, :, 2], maps_b[:, :, 2], len(maps_a)
    if count < MIN_MATCHES:
        return None
    samples = _samples(count, _SAMPLE_SIZE[model], _SAMPLES[model], seed)
    if model == "affine":
        models = _affine(frames)[samples[:, 0]]
    else:
        models = _improved(_Equations.of(frames, model), samples, threshold, seed)
    if cameras is not None:
        # An essential matrix has two equal singular values.
        u, _, vt = np.linalg.svd(cameras[1].T @ models @ cameras[0])
        models = (u * (1.0, 1.0, 0.0)) @ vt
    scores = _weights(_squares(in_pixels(models, cameras), p, q, model), 2 * threshold).sum(1)
    best, highest = None, 0.0
    matches = fitting.Correspondences(p, q, model, cameras)
    for i in np.argsort(-scores, kind="stable")[:_FITTED]:
        matrix = models[i]
        for factor in (2.0, 1.0):
            fitted = fitting.fit(matches, matrix, factor * threshold)
            if not np.isfinite(fitted).all():
                break
            matrix = fitted
        score = fitting.score(matches.residuals(matrix), threshold)
        if score > highest:
            best, highest = matrix, score
    return best


def _improved(
    equations: "_Equations", samples: NDArray[np.intp], threshold: float, seed: int
) -> FloatArray:
    """Return the best models (k, 3, 3), each solved again from the matches close to it."""
    count = len(equations.x)
    models = equations.solved(equations.squares[samples].sum(1))
    subset = np.random.default_rng(seed).permutation(count)[:_SCORED]
    limit = _CLOSE[0] * threshold
    scores = np.concatenate([
        _weights(equations.errors(models[i : i + _BLOCK], subset), limit).sum(1)
        for i in range(0, len(models), _BLOCK)
    ])  # fmt: skip
    models = models[np.argsort(-scores, kind="stable")[:_KEPT]]
    all_matches = np.arange(count)
    flat = equations.squares.reshape(count, 81)
    for factor in _CLOSE:
        weights = _weights(equations.errors(models, all_matches), factor * threshold)
        models = equations.solved((weights @ flat).reshape(-1, 9, 9))
    return equations.in_pixels(models)


def _weights(squares: FloatArray, limit: float) -> FloatArray:
    return np.asarray(np.clip(1 - squares / limit**2, 0, None))


def _squares(models: FloatArray, p: FloatArray, q: FloatArray, model: GeometryModel) -> FloatArray:
    """Return the squared residuals (k, m) of models (k, 3, 3) or (k, 2, 3)."""
    x, y = (homogeneous(v).astype(np.float32).T for v in (p, q))
    scale = np.ones((len(models), 1, 1), np.float32)
    if model != "affine":  # residuals do not depend on the scale, but float32 could overflow
        scale = np.maximum(np.abs(models).max((1, 2), keepdims=True), 1e-300)
    along = (models / scale).astype(np.float32) @ x
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if model == "affine":
            squares = ((along - y[:2]) ** 2).sum(1)
        elif model == "homography":
            squares = ((along[:, :2] / along[:, 2:] - y[:2]) ** 2).sum(1)
        else:
            back = np.swapaxes(models / scale, 1, 2).astype(np.float32) @ y
            normal = (along[:, :2] ** 2).sum(1) + (back[:, :2] ** 2).sum(1)
            squares = (y * along).sum(1) ** 2 / normal
    return np.asarray(np.nan_to_num(squares, nan=np.inf, posinf=np.inf))


def _samples(count: int, size: int, limit: int, seed: int) -> NDArray[np.intp]:
    """Return samples (k, size) of distinct matches, or all samples if there are few."""
    if size == 1:
        return np.arange(min(count, limit))[:, None]
    if size == 2 and count * (count - 1) // 2 <= limit:
        return np.stack(np.triu_indices(count, 1), 1)
    samples = np.random.default_rng(seed).integers(0, count, (limit, size))
    ordered = np.sort(samples, 1)
    return np.asarray(samples[(np.diff(ordered, axis=1) > 0).all(1)])


def _units(points: FloatArray) -> FloatArray:
    """Return the map (3, 3) to normalized coordinates, with mean 0 and mean magnitude 1."""
    mean = points.mean(0)
    scale = 1 / max(float(np.abs(points - mean).mean()), 1e-9)
    return np.array([[scale, 0, -scale * mean[0]], [0, scale, -scale * mean[1]], [0, 0, 1]])


def _affine(frames: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return the affine map (m, 2, 3) that each match determines."""
    local = local_maps(*frames)
    p, q = (maps[:, :, 2:] for maps in frames)
    return np.concatenate([local, q - local @ p], 2)


@dataclass(frozen=True, eq=False)
class _Equations:
    """The linear equations that matches give for the nine entries of a model.

    ``squares`` (m, 9, 9) are AᵀA of the coefficients A of each match; a model is solved from their
    sum over some matches. ``x`` and ``y`` (m, 3) are the matches in normalized coordinates, and
    ``to_a`` and ``to_b`` (3, 3) map pixels to them.
    """

    x: FloatArray
    y: FloatArray
    model: GeometryModel
    squares: FloatArray
    to_a: FloatArray
    to_b: FloatArray

    @classmethod
    def of(cls, frames: tuple[FloatArray, FloatArray], model: GeometryModel) -> "_Equations":
        """Return the equations of matched frames (m, 2, 3)."""
        p, q = (maps[:, :, 2] for maps in frames)
        to_a, to_b = _units(p), _units(q)
        x, y = (homogeneous(v) @ u.T for v, u in ((p, to_a), (q, to_b)))
        local = to_b[0, 0] / to_a[0, 0] * local_maps(*frames)
        reach = _REACH * to_a[0, 0] * sigmas(frames[0])
        make_rows = _plane_rows if model == "homography" else _epipolar_rows
        rows = make_rows(x, y, local, reach)
        return cls(x, y, model, np.swapaxes(rows, 1, 2) @ rows, to_a, to_b)

    def solved(self, squares: FloatArray) -> FloatArray:
        """Return the least-squares models (k, 3, 3) of the matrices AᵀA (k, 9, 9)."""
        _, vectors = np.linalg.eigh(squares)
        models = vectors[:, :, 0].reshape(-1, 3, 3)
        if self.model == "homography":
            return np.asarray(models)
        u, s, vt = np.linalg.svd(models)
        s[:, 2] = 0
        return np.asarray((u * s[:, None]) @ vt)

    def errors(self, models: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
        """Return the errors (k, m) of matches and their frames in square pixels."""
        flat = models.reshape(-1, 9)
        outer = (flat[:, :, None] * flat[:, None]).reshape(-1, 81)
        squares = outer @ self.squares[rows].reshape(-1, 81).T
        x, y = self.x[rows].T, self.y[rows].T
        if self.model == "homography":
            depth = (models @ x)[:, 2]
            divisor = (self.to_b[0, 0] * depth) ** 2
        else:
            line_b, line_a = models @ x, np.swapaxes(models, 1, 2) @ y
            divisor = self.to_b[0, 0] ** 2 * (line_b[:, :2] ** 2).sum(1)
            divisor += self.to_a[0, 0] ** 2 * (line_a[:, :2] ** 2).sum(1)
        return np.asarray(squares / np.maximum(divisor, 1e-30))

    def in_pixels(self, models: FloatArray) -> FloatArray:
        """Return models (k, 3, 3) in pixel coordinates."""
        if self.model == "homography":
            return np.asarray(np.linalg.inv(self.to_b) @ models @ self.to_a)
        return np.asarray(self.to_b.T @ models @ self.to_a)


def _plane_rows(x: FloatArray, y: FloatArray, local: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the equations (m, 6, 9) for H of matches x and y (m, 3) with local maps (m, 2, 2)."""
    rows = np.zeros((len(x), 6, 9))
    for i in range(2):
        rows[:, i, 3 * i : 3 * i + 3] = x
        rows[:, i, 6:] = -y[:, i, None] * x
        for j in range(2):
            row = rows[:, 2 + 2 * i + j]
            row[:, 3 * i + j] = 1
            row[:, 6:] = -local[:, i, j, None] * x
            row[:, 6 + j] -= y[:, i]
            row *= reach[:, None]
    return rows


def _epipolar_rows(
    x: FloatArray, y: FloatArray, local: FloatArray, reach: FloatArray
) -> FloatArray:
    """Return the equations (m, 3, 9) for F of matches x and y (m, 3) with local maps (m, 2, 2)."""
    rows = np.zeros((len(x), 3, 3, 3))
    rows[:, 0] = y[:, :, None] * x[:, None]
    for j in range(2):
        rows[:, 1 + j, :, j] = y
        rows[:, 1 + j, :2] += local[:, :, j, None] * x[:, None]
        rows[:, 1 + j] *= reach[:, None, None]
    return rows.reshape(len(x), 3, 9)
