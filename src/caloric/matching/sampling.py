"""Models of few matches: frames tell how a match turns and stretches, so two make a homography.

The frames of a match, A in the first image and B in the second, give its local affine map
L = B A⁻¹. A homography H with H p = q has the derivative L there, which are 2 + 4 equations in H;
a fundamental matrix F has q̃ᵀ F p̃ = 0 and, along any δ, (q̃ᵀ F) δ + (F p̃)ᵀ L δ = 0, which are 1 + 2
(Barath and Hajder, 2017; Bentolila and Francos, 2014). So few matches are sampled that one right
match among ten is enough.
"""

import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.matching import fitting
from caloric.matching.fitting import Model
from caloric.theory.gaussians import FloatArray

SAMPLES = 3000
_TAKEN = {"homography": 2, "affine": 1, "fundamental": 3, "essential": 3}  # matches per sample
_REACH = 2.0  # σ around a match within which its local map is trusted
_WIDE = 4.0  # thresholds: what a model of few matches may miss by
_SCORED = 400  # matches by which a sample is scored
_FITTED = 5  # of the best samples
_NARROWING = (4.0, 2.0, 1.0)  # thresholds of the fits that follow each other
_BLOCK = 500  # samples whose residuals are computed at once


def local_maps(maps_a: FloatArray, maps_b: FloatArray) -> FloatArray:
    """Return the affine maps (m, 2, 2) from frames (m, 2, 3) of one image to those of another."""
    return np.asarray(maps_b[:, :, :2] @ np.linalg.inv(maps_a[:, :, :2]))


def search(
    frames: tuple[FloatArray, FloatArray],
    model: Model,
    threshold: float,
    seed: int,
    cameras: list[FloatArray] | None = None,
) -> FloatArray | None:
    """Return the best model of samples of matched frames (m, 2, 3), or None."""
    maps_a, maps_b = frames
    p, q, count = maps_a[:, :, 2], maps_b[:, :, 2], len(maps_a)
    taken = _TAKEN[model]
    if count < max(taken, 4):
        return None
    samples = _samples(count, taken, seed)
    local, sigma = local_maps(maps_a, maps_b), sigmas(maps_a)
    if cameras is None:
        models = _models(p, q, local, sigma, samples, model)
    else:
        models = _essential(p, q, local, sigma, samples, cameras)
    # All models are scored by some of the matches, the best by all.
    some = np.random.default_rng(seed).permutation(count)[:_SCORED]
    scores = _scores(models, p[some], q[some], model, _WIDE * threshold, cameras)
    best, highest = None, 0.0
    for i in np.argsort(-scores, kind="stable")[:_FITTED]:
        matrix = models[i]
        for times in _NARROWING:
            fitted = fitting.fit(p, q, model, matrix, times * threshold, cameras)
            if not np.isfinite(fitted).all():
                break
            matrix = fitted
        residuals = fitting.residual(p, q, model, matrix, cameras)
        score = float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())
        if score > highest:
            best, highest = matrix, score
    return best


def _scores(
    models: FloatArray,
    p: FloatArray,
    q: FloatArray,
    model: Model,
    limit: float,
    cameras: list[FloatArray] | None,
) -> FloatArray:
    """Return how well models (k, 3, 3) explain matches p and q (m, 2), as numbers (k,)."""
    if cameras is not None:
        models = np.linalg.inv(cameras[1]).T @ models @ np.linalg.inv(cameras[0])
    x, y = (fitting.homogeneous(v).astype(np.float32).T for v in (p, q))
    # Residuals do not change with the scale of a matrix; that of float32 is limited.
    scale = np.abs(models).max((1, 2), keepdims=True)
    models = (models / np.where(scale > 0, scale, 1)).astype(np.float32)
    result = np.empty(len(models))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, len(models), _BLOCK):
            part = models[start : start + _BLOCK]
            along = part @ x
            if model == "affine":
                squares = ((along * scale[start : start + _BLOCK] - y[:2]) ** 2).sum(1)
            elif model == "homography":
                squares = ((along[:, :2] / along[:, 2:] - y[:2]) ** 2).sum(1)
            else:
                back = np.swapaxes(part, 1, 2) @ y
                normal = (along[:, :2] ** 2).sum(1) + (back[:, :2] ** 2).sum(1)
                squares = (y * along).sum(1) ** 2 / normal
            good = np.clip(1 - np.nan_to_num(squares, nan=np.inf) / limit**2, 0, None)
            result[start : start + _BLOCK] = good.sum(1)
    return result


def _samples(count: int, taken: int, seed: int) -> NDArray[np.intp]:
    """Return samples (k, taken) of different matches; all of them if they are few."""
    if taken == 1:
        return np.arange(min(count, SAMPLES))[:, None]
    if taken == 2 and count * (count - 1) // 2 <= SAMPLES:
        return np.stack(np.triu_indices(count, 1), 1)
    samples = np.random.default_rng(seed).integers(0, count, (SAMPLES, taken))
    ordered = np.sort(samples, 1)
    return np.asarray(samples[(np.diff(ordered, axis=1) > 0).all(1)])


def _units(points: FloatArray) -> FloatArray:
    """Return the map (3, 3) that brings points around 0 and to about 1."""
    middle = points.mean(0)
    scale = 1 / max(float(np.abs(points - middle).mean()), 1e-9)
    return np.array([[scale, 0, -scale * middle[0]], [0, scale, -scale * middle[1]], [0, 0, 1]])


def _models(
    p: FloatArray,
    q: FloatArray,
    local: FloatArray,
    sigma: FloatArray,
    samples: NDArray[np.intp],
    model: Model,
) -> FloatArray:
    """Return the models (k, 3, 3), of affine maps (k, 2, 3), of the samples (k, s)."""
    if model == "affine":
        rows = samples[:, 0]
        shift = q[rows] - np.einsum("kij,kj->ki", local[rows], p[rows])
        return np.concatenate([local[rows], shift[:, :, None]], 2)
    to_a, to_b = _units(p), _units(q)
    x, y = (fitting.homogeneous(v) @ u.T for v, u in ((p, to_a), (q, to_b)))
    within = to_b[0, 0] / to_a[0, 0] * local
    reach = _REACH * to_a[0, 0] * sigma
    make = _plane_rows if model == "homography" else _epipolar_rows
    equations = make(x, y, within, reach)
    system = equations[samples].reshape(len(samples), -1, 9)
    _, vectors = np.linalg.eigh(np.swapaxes(system, 1, 2) @ system)
    solved = vectors[:, :, 0].reshape(-1, 3, 3)
    if model == "homography":
        return np.asarray(np.linalg.inv(to_b) @ solved @ to_a)
    u, s, vt = np.linalg.svd(solved)
    s[:, 2] = 0
    return np.asarray(to_b.T @ ((u * s[:, None]) @ vt) @ to_a)


def _plane_rows(x: FloatArray, y: FloatArray, local: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the equations (m, 6, 9) in H of matches x and y (m, 3) with local maps (m, 2, 2)."""
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
    """Return the equations (m, 3, 9) in F of matches x and y (m, 3) with local maps (m, 2, 2)."""
    rows = np.zeros((len(x), 3, 3, 3))
    rows[:, 0] = y[:, :, None] * x[:, None]
    for j in range(2):
        rows[:, 1 + j, :, j] = y
        rows[:, 1 + j, :2] += local[:, :, j, None] * x[:, None]
        rows[:, 1 + j] *= reach[:, None, None]
    return rows.reshape(len(x), 3, 9)


def _essential(
    p: FloatArray,
    q: FloatArray,
    local: FloatArray,
    sigma: FloatArray,
    samples: NDArray[np.intp],
    cameras: list[FloatArray],
) -> FloatArray:
    """Return the essential matrices (k, 3, 3) nearest to the fundamental ones of the samples."""
    fundamental = _models(p, q, local, sigma, samples, "fundamental")
    u, _, vt = np.linalg.svd(cameras[1].T @ fundamental @ cameras[0])
    return np.asarray((u * (1.0, 1.0, 0.0)) @ vt)
