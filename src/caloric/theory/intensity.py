"""The paper's first problem (eq. 11): find which of several templates is in f, and where.

    Σ_k c_k² E_k(θ) + λ q(c),   E_k(θ) = mean over x of (f(x + θ) − p_k(x))²

for sampled signals of one or two dimensions. The penalty q enforces a single winner. The cost is
diffused over (c, θ) in closed form: c² becomes c² + σ², and both f and f² in E_k are blurred.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from caloric.theory import diffusion
from caloric.theory.continuation import Path, continuation
from caloric.types import FloatArray

# In units of half the length of the template, like θ.
SIGMAS = (0.12, 0.08, 0.05, 0.03, 0.0)


@dataclass(frozen=True, eq=False)
class IntensityMatch:
    """The result of :func:`match`.

    ``template`` is the index k* of the largest entry of ``choice`` (n,), and ``offset`` (dim,) is
    the position θ* of its corner in samples.
    """

    template: int
    offset: FloatArray
    choice: FloatArray
    path: Path


@dataclass(frozen=True, eq=False)
class _Blurred:
    """Splines of f ⋆ k_σ and f² ⋆ k_σ: values (n,) and derivatives (dim, n) at points (n, dim)."""

    signal: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    square: Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def _spline(values: FloatArray) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """Return the cubic spline of samples, constant outside."""
    from scipy.interpolate import RectBivariateSpline, make_interp_spline

    last = np.array(values.shape) - 1
    if values.ndim == 1:
        line = make_interp_spline(np.arange(len(values)), values, k=3)
        slope = line.derivative()

        def evaluate_line(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            inside = np.clip(x[:, 0], 0, last[0])
            return line(inside), np.where(inside == x[:, 0], slope(inside), 0)[None]

        return evaluate_line
    surface = RectBivariateSpline(*(np.arange(n) for n in values.shape), values, s=0)

    def evaluate_surface(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        inside = np.clip(x, 0, last)
        slopes = np.stack([surface.ev(*inside.T, *d) for d in ((1, 0), (0, 1))])
        return surface.ev(*inside.T), np.where((inside == x).T, slopes, 0)

    return evaluate_surface


def _blurred(image: FloatArray, width: float) -> _Blurred:
    from scipy.ndimage import gaussian_filter

    signal, square = (
        gaussian_filter(v, width, mode="nearest", truncate=6) if width else v
        for v in (image, image**2)
    )
    return _Blurred(_spline(signal), _spline(square))


@dataclass(frozen=True, eq=False)
class Problem:
    """An image and templates of one or two dimensions; all templates have the same shape."""

    image: FloatArray
    templates: FloatArray
    penalty: float

    @property
    def unit(self) -> float:
        """The unit of θ in samples, half the longer side of the templates."""
        return float(max(self.templates.shape[1:]) / 2)

    def diffused(self, sigma: float) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        """Return the function that gives g(·; σ) and its gradient at a point (c₁ … c_n, θ)."""
        blurred = _blurred(self.image, sigma * self.unit)
        grid = np.stack(
            np.meshgrid(*(np.arange(n) for n in self.templates.shape[1:]), indexing="ij"), -1
        )
        positions = grid.reshape(-1, grid.shape[-1]).astype(np.float64)
        flat = self.templates.reshape(len(self.templates), -1)
        template_squares = (flat**2).mean(1)

        def cost(point: FloatArray) -> tuple[float, FloatArray]:
            c, theta = point[: len(flat)], point[len(flat) :]
            points = positions + theta * self.unit
            value, slope = blurred.signal(points)
            square, square_slope = blurred.square(points)
            errors = square.mean() - 2 * (flat @ value) / len(value) + template_squares
            weights = diffusion.squared_choice(c, sigma)
            total = weights @ errors + self.penalty * diffusion.choice_penalty(c, sigma)
            c_slope = 2 * c * errors + self.penalty * diffusion.choice_penalty_gradient(c, sigma)
            theta_slopes = square_slope.mean(1)[:, None] - 2 * (slope @ flat.T) / len(value)
            return float(total), np.concatenate([c_slope, self.unit * (theta_slopes @ weights)])

        return cost


def match(
    image: ArrayLike,
    templates: Sequence[ArrayLike],
    *,
    sigmas: Sequence[float] = SIGMAS,
    penalty: float | None = None,
    start: ArrayLike | None = None,
) -> IntensityMatch:
    """Return the template that Algorithm 1 chooses by intensity, and the offset of its corner.

    ``sigmas`` are in units of half a template. ``penalty`` is λ, by default ten times the image's
    variance. ``start`` is an offset in samples, by default the one that centers the template; all
    templates start with equal weight. The template stays within the image.
    """
    signal = np.asarray(image, np.float64)
    if signal.ndim not in (1, 2):
        raise ValueError(f"the image must have 1 or 2 dimensions, got {signal.ndim}")
    arrays = [np.asarray(p, np.float64) for p in templates]
    if len({a.shape for a in arrays}) != 1:
        raise ValueError(f"the templates must have the same shape, got {[a.shape for a in arrays]}")
    patches = np.stack(arrays)
    if patches.ndim != signal.ndim + 1:
        raise ValueError("the templates must have as many dimensions as the image")
    if not (np.isfinite(signal).all() and np.isfinite(patches).all()):
        raise ValueError("the image or a template contains NaN or infinite values")
    if min(patches.shape[1:]) < 4 or min(signal.shape) < 4:
        raise ValueError("the image and the templates must have at least 4 samples per side")
    problem = Problem(signal, patches, 10 * signal.var() if penalty is None else penalty)
    if any(n < m for n, m in zip(signal.shape, patches.shape[1:], strict=True)):
        raise ValueError("the templates must not be larger than the image")
    free = np.array(signal.shape) - np.array(patches.shape[1:])
    offset = free / 2 if start is None else np.asarray(start, np.float64)
    if offset.shape != free.shape or not np.isfinite(offset).all():
        raise ValueError(f"start must be {len(free)} finite numbers, an offset in samples")
    count = len(patches)
    seed = np.concatenate([np.full(count, 1 / count), offset / problem.unit])
    costs = {sigma: problem.diffused(sigma) for sigma in sigmas}
    path = continuation(
        lambda point, sigma: costs[sigma](point)[0],
        sigmas,
        seed[None],
        gradient=lambda point, sigma: costs[sigma](point)[1],
        bounds=[(-0.5, 1.5)] * count + [(0, n / problem.unit) for n in free.tolist()],
    )
    choice, theta = path.point[:count], path.point[count:]
    return IntensityMatch(int(np.argmax(choice)), theta * problem.unit, choice, path)
