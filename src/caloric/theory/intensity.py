"""The paper's first problem (eq. 11): which of some signals is in f, and where, by intensity.

    Σ_k c_k² E_k(θ) + λ q(c),   E_k(θ) = mean over x of (f(x + θ) − p_k(x))²

for sampled signals of one or two dimensions, with q the penalty that leaves one winner. Diffused in
all of (c, θ), in closed form: c² becomes c² + σ², and E_k blurs f and f² (not f alone).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from caloric.theory import diffusion
from caloric.theory.continuation import Path, continuation
from caloric.theory.gaussians import FloatArray

# Of half the template's length, which is the unit of θ.
SIGMAS = (0.12, 0.08, 0.05, 0.03, 0.0)


@dataclass(frozen=True, eq=False)
class IntensityMatch:
    """``template`` k* of the highest ``choice`` c, at ``offset`` θ* samples from the corner."""

    template: int
    offset: FloatArray
    choice: FloatArray
    path: Path


@dataclass(frozen=True, eq=False)
class _Blurred:
    """f ⋆ k_σ and f² ⋆ k_σ as splines: values and slopes (dim, n) at places (n, dim)."""

    signal: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    square: Callable[[FloatArray], tuple[FloatArray, FloatArray]]


def _spline(values: FloatArray) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """A cubic spline of samples; beyond the ends, the value there."""
    from scipy.interpolate import RectBivariateSpline, make_interp_spline

    last = np.array(values.shape) - 1
    if values.ndim == 1:
        line = make_interp_spline(np.arange(len(values)), values, k=3)
        slope = line.derivative()

        def one(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            at = np.clip(x[:, 0], 0, last[0])
            return line(at), np.where(at == x[:, 0], slope(at), 0)[None]

        return one
    surface = RectBivariateSpline(*(np.arange(n) for n in values.shape), values, s=0)

    def two(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        at = np.clip(x, 0, last)
        slopes = np.stack([surface.ev(*at.T, *d) for d in ((1, 0), (0, 1))])
        return surface.ev(*at.T), np.where((at == x).T, slopes, 0)

    return two


def _blurred(image: FloatArray, width: float) -> _Blurred:
    from scipy.ndimage import gaussian_filter

    signal, square = (
        gaussian_filter(v, width, mode="nearest", truncate=6) if width else v
        for v in (image, image**2)
    )
    return _Blurred(_spline(signal), _spline(square))


@dataclass(frozen=True, eq=False)
class Problem:
    """An image and templates, all of one dimension (1 or 2) and the templates of one shape."""

    image: FloatArray
    templates: FloatArray
    penalty: float

    @property
    def unit(self) -> float:
        """Half the templates' longer side, in samples: θ is measured in it."""
        return float(max(self.templates.shape[1:]) / 2)

    def diffused(self, sigma: float) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        """g(·; σ) and its gradient at points (c₁ … c_n, θ)."""
        blurred = _blurred(self.image, sigma * self.unit)
        grid = np.stack(
            np.meshgrid(*(np.arange(n) for n in self.templates.shape[1:]), indexing="ij"), -1
        )
        places = grid.reshape(-1, grid.shape[-1]).astype(np.float64)
        flat = self.templates.reshape(len(self.templates), -1)
        own = (flat**2).mean(1)

        def cost(point: FloatArray) -> tuple[float, FloatArray]:
            c, theta = point[: len(flat)], point[len(flat) :]
            at = places + theta * self.unit
            value, slope = blurred.signal(at)
            square, square_slope = blurred.square(at)
            errors = square.mean() - 2 * (flat @ value) / len(value) + own
            weights = diffusion.squared_choice(c, sigma)
            total = weights @ errors + self.penalty * diffusion.choice_penalty(c, sigma)
            in_c = 2 * c * errors + self.penalty * diffusion.choice_penalty_gradient(c, sigma)
            moved = square_slope.mean(1)[:, None] - 2 * (slope @ flat.T) / len(value)
            return float(total), np.concatenate([in_c, self.unit * (moved @ weights)])

        return cost


def match(
    image: ArrayLike,
    templates: Sequence[ArrayLike],
    *,
    sigmas: Sequence[float] = SIGMAS,
    penalty: float | None = None,
    start: ArrayLike | None = None,
) -> IntensityMatch:
    """Algorithm 1 on intensities: which template, and at which offset (dim,) of its corner.

    ``sigmas`` are in units of half a template; ``penalty`` λ, by default ten times the image's
    variance; ``start`` an offset in samples, by default the middle of the image, with every
    template equally likely. The template stays within the image.
    """
    signal = np.asarray(image, np.float64)
    if signal.ndim not in (1, 2):
        raise ValueError(f"the image must have 1 or 2 dimensions, got {signal.ndim}")
    arrays = [np.asarray(p, np.float64) for p in templates]
    if len({a.shape for a in arrays}) != 1:
        raise ValueError(f"templates of one shape are needed, got {[a.shape for a in arrays]}")
    patches = np.stack(arrays)
    if patches.ndim != signal.ndim + 1:
        raise ValueError("the templates must have as many dimensions as the image")
    if not (np.isfinite(signal).all() and np.isfinite(patches).all()):
        raise ValueError("NaN or infinite values in the image or a template")
    if min(patches.shape[1:]) < 4 or min(signal.shape) < 4:
        raise ValueError("the image and the templates must have at least 4 samples a side")
    problem = Problem(signal, patches, 10 * signal.var() if penalty is None else penalty)
    if any(n < m for n, m in zip(signal.shape, patches.shape[1:], strict=True)):
        raise ValueError("the templates must not be larger than the image")
    free = np.array(signal.shape) - np.array(patches.shape[1:])
    where = free / 2 if start is None else np.asarray(start, np.float64)
    if where.shape != free.shape or not np.isfinite(where).all():
        raise ValueError(f"start must be {len(free)} finite numbers, an offset in samples")
    count = len(patches)
    seed = np.concatenate([np.full(count, 1 / count), where / problem.unit])
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
