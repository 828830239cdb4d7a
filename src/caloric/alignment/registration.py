"""Algorithm 1 on fields: the diffused energy of a template and an image, and its descent.

At one σ both densities are blurred by it, the image's after it is warped by the current estimate:
in the theory's dot product that is a diffusion by √2 σ. What is minimised over the warp is::

    E(θ; σ) = mean over x of log(1 + |a U(x; f ∘ τ_θ) − U(x; p)|² / c²),   U = all fields at x

with the gain a fitted. Without the logarithm the best gain leaves |U_p|²(1 − cos²), which falls
where the normalised dot product of the two densities (eq. 15) grows; the logarithm, a Cauchy
weight, keeps what is covered or changed from pulling at the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Pixels, Pyramid
from caloric.theory.continuation import Step
from caloric.theory.gaussians import FloatArray

Model = Literal["translation", "similarity", "affine"]
Diffusion = Literal["partial", "all"]


@dataclass(frozen=True, eq=False)
class Scene:
    """A template and an image (h, w), with the pyramids of their fields."""

    template: Pixels
    image: Pixels
    feature: Feature
    diffusion: Diffusion
    of_template: Pyramid
    of_image: Pyramid
    _levels: "dict[tuple[float, Model, bool], Level]" = field(init=False, default_factory=dict)

    def level(self, sigma: float, model: Model, *, fine: bool = False) -> "Level":
        """The template's side of the energy at σ, made once; ``fine`` for the last few."""
        key = (sigma, model, fine)
        if key not in self._levels:
            self._levels[key] = _level(self, sigma, model, fine)
        return self._levels[key]

    @property
    def centre(self) -> FloatArray:
        """The middle of the template, about which it turns and grows."""
        h, w = self.template.shape
        return np.array([(w - 1) / 2, (h - 1) / 2])

    @property
    def radius(self) -> float:
        """R: half the side of the square of the template's area, the unit of the parameters."""
        return side(self.template.shape) / 2


def side(shape: tuple[int, ...]) -> float:
    """√(h w), for which what is thin is small."""
    return float(np.sqrt(shape[0] * shape[1]))


def light(template: Pixels) -> float:
    """Over how many pixels light is taken to be the same: R/4, but for a power of √2.

    So templates of about one size share the image's fields.
    """
    return float(2 ** (round(2 * np.log2(max(side(template.shape) / 8, 2.0))) / 2))


def scene(
    template: Pixels, image: Pixels, feature: Feature, diffusion: Diffusion = "partial"
) -> Scene:
    """Both measured; the image's fields can serve other templates by :func:`scene_of`."""
    of_image = fields.pyramid(feature.measure(image, light(template)))
    return scene_of(template, image, of_image, feature, diffusion)


def scene_fine(template: Pixels, image: Pixels, feature: Feature) -> Scene:
    """For the last σ alone, where the image is measured as it is warped."""
    own = feature.measure(template, light(template))
    return Scene(template, image, feature, "partial", Pyramid((own,), (0.0,)), Pyramid((), ()))


def scene_of(
    template: Pixels, image: Pixels, of_image: Pyramid, feature: Feature, diffusion: Diffusion
) -> Scene:
    """With the image's fields given."""
    of_template = fields.pyramid(feature.measure(template, light(template)))
    return Scene(template, image, feature, diffusion, of_template, of_image)


def scale(transform: FloatArray) -> float:
    """√|det A|."""
    A = transform[:, :2]
    return float(np.sqrt(abs(A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0])))


def plausible(transform: FloatArray) -> bool:
    """Finite, not mirrored, no scale in any direction beyond ten times or a tenth."""
    A = transform[:, :2]
    if not np.isfinite(transform).all() or np.linalg.det(A) <= 0:
        return False
    stretch = np.linalg.svd(A, compute_uv=False)
    return bool(stretch[0] < 10 and stretch[1] > 0.1)


def angle(transform: FloatArray) -> float:
    """Of the rotation nearest to A."""
    A = transform[:, :2]
    return float(np.arctan2(A[1, 0] - A[0, 1], A[0, 0] + A[1, 1]))


@dataclass(frozen=True, eq=False)
class Level:
    """The template at one σ: ``values`` (c, n) and their ``slopes`` (p, c, n) in the parameters.

    n samples ``spacing`` pixels apart, on a grid of ``size``; ``products`` are sums over channels
    of the slopes' products, of which the Hessian is a weighted sum.
    """

    sigma: float
    model: Model
    spacing: int
    stride: int
    size: tuple[int, int]
    fine: bool
    values: Pixels
    squares: Pixels
    slopes: Pixels
    products: Pixels

    @property
    def power(self) -> float:
        """The mean of |U|²."""
        return float(self.squares.mean()) + 1e-12


_PARAMETERS = {"translation": 2, "similarity": 4, "affine": 6}


def _slopes(
    values: Pixels,
    harmonics: tuple[int, ...],
    model: Model,
    x: Pixels,
    y: Pixels,
    per: float,
    stride: int,
) -> Pixels:
    """∂U(τx)/∂parameters at the identity, (p, c, h, w): ∇U · δ(x), and −imα U for the turn.

    At every ``stride``-th place, of which x and y are the coordinates.
    """
    dx, dy = (
        np.stack(
            [cv2.Sobel(v, cv2.CV_32F, *d, ksize=1, scale=0.5 * per)[::stride, ::stride]
             for v in values]
        )
        for d in ((1, 0), (0, 1))
    )  # fmt: skip
    values = values[:, ::stride, ::stride]
    spun = np.zeros_like(values)
    result = np.empty((_PARAMETERS[model], *values.shape), np.float32)
    if model == "translation":
        result[0], result[1] = dx, dy
        return result
    for m, channel in fields.channels(harmonics):
        if m:
            spun[channel] = m * values[channel + 1]
            spun[channel + 1] = -m * values[channel]
    if model == "similarity":
        result[0] = dx * x + dy * y
        result[1] = dy * x - dx * y + spun
    else:
        spun *= np.float32(0.5)
        result[0], result[1] = dx * x, dx * y - spun
        result[2], result[3] = dy * x + spun, dy * y
    result[-2], result[-1] = dx, dy
    return result


def _update(model: Model, p: FloatArray) -> FloatArray:
    """3 x 3, of the parameters in units of R about the template's middle."""
    if model == "translation":
        return np.array([[1, 0, p[0]], [0, 1, p[1]], [0, 0, 1]])
    if model == "similarity":
        return np.array([[1 + p[0], -p[1], p[2]], [p[1], 1 + p[0], p[3]], [0, 0, 1]])
    return np.array([[1 + p[0], p[1], p[4]], [p[2], 1 + p[3], p[5]], [0, 0, 1]])


@lru_cache(maxsize=64)
def _variances(size: tuple[int, int]) -> Pixels:
    """|x|²/R² over a grid: how much wider than σ² the affine diffusion of a place is (R of it)."""
    h, w = size
    y, x = np.mgrid[:h, :w].astype(np.float32)
    x, y = x - (w - 1) / 2, y - (h - 1) / 2
    return np.asarray((x * x + y * y) / (side(size) / 2) ** 2, np.float32)


def _widened(values: Pixels, sigma: float, have: float) -> Pixels:
    """To variance σ²(1 + |x|²/R²) at x: the affine diffusion of fields no rotation turns.

    Closed form (theory: A x + b is normal with this variance). Evaluated between a few blurs,
    linear in the variance, in which Gaussians change slowly.
    """
    wider = _variances(values.shape[1:])
    top = float(wider.max())
    steps = np.linspace(0, top, SCHEDULE.blended)
    result = np.zeros_like(values)
    for extra in steps:
        share = np.maximum(0, 1 - np.abs(wider - extra) * (SCHEDULE.blended - 1) / top)
        rest = fields.missing(sigma * float(np.sqrt(1 + extra)), have)
        result += share * fields.blurred(values, rest)
    return result


@lru_cache(maxsize=32)
def _similar(
    size: tuple[int, int], harmonics: tuple[int, ...], spread: float
) -> tuple[Callable[[Pixels], Pixels], ...]:
    """For every harmonic, E over α and s of e^{−imα} u_m(e^s R_α x), both of deviation ``spread``.

    By quadrature, seven nodes each; u between samples is bilinear. As sparse matrices, complex for
    m ≠ 0, where a pair of channels is u's real and imaginary part.
    """
    from scipy.sparse import csr_matrix

    h, w = size
    nodes = np.linspace(-2.4, 2.4, SCHEDULE.nodes)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    nodes *= spread / np.sqrt(mass @ nodes**2)
    y, x = np.mgrid[:h, :w].reshape(2, -1).astype(float)
    z = (x - (w - 1) / 2) + 1j * (y - (h - 1) / 2)
    turn, grow = (v.ravel() for v in np.meshgrid(nodes, nodes, indexing="ij"))
    weight = np.outer(mass, mass).ravel()
    to = np.exp(grow + 1j * turn)[:, None] * z
    column, row = to.real + (w - 1) / 2, to.imag + (h - 1) / 2
    left, top = np.floor(column), np.floor(row)
    parts = []
    for right in (0, 1):
        for down in (0, 1):
            share = np.abs(1 - right - (column - left)) * np.abs(1 - down - (row - top))
            i, j = (left + right).astype(int), (top + down).astype(int)
            inside = (i >= 0) & (i < w) & (j >= 0) & (j < h)
            node, point = np.nonzero(inside)
            parts.append(
                (point, (j * w + i)[inside], (weight[:, None] * share)[inside], turn[node])
            )
    points, places, shares, turns = (np.concatenate(v) for v in zip(*parts, strict=True))

    def operator(m: int) -> Callable[[Pixels], Pixels]:
        values = shares * np.exp(-1j * m * turns) if m else shares
        matrix = csr_matrix((values, (points, places)), (h * w, h * w))
        return lambda u: matrix @ u

    return tuple(operator(m) for m in harmonics)


def diffused(
    values: Pixels,
    feature: Feature,
    sigma: float,
    have: float,
    spacing: int,
    radius: float,
    model: Model,
    diffusion: Diffusion,
) -> Pixels:
    """Fields diffused to σ pixels, of which they ``have`` some already.

    Over translation exactly, by k_σ. Unless the model is a translation: over rotation, by Lemma 1,
    e^{−m²σr²/2} on the dot product and so half of that exponent here; and with ``diffusion="all"``
    over rotation and log-scale by what they do to places too, by quadrature, with σr = σs = σ/R.
    """
    rest = fields.missing(sigma, have) / spacing
    if model == "translation":
        return fields.blurred(values, rest)
    if feature.widens:
        return _widened(values, sigma / spacing, have / spacing)
    result = fields.blurred(values, rest)
    orders = feature.orders
    if diffusion == "partial":
        if orders.any():
            result = (
                result
                * np.exp(-((orders * SCHEDULE.rotation_diffusion * sigma / radius) ** 2) / 4)[
                    :, None, None
                ]
            )
        return result
    flat = result.reshape(len(result), -1)
    out = np.empty_like(flat)
    operators = _similar(values.shape[1:], feature.harmonics, sigma / radius / np.sqrt(2))
    for (m, channel), operator in zip(fields.channels(feature.harmonics), operators, strict=True):
        if m == 0:
            out[channel] = operator(flat[channel])
        else:
            u = operator(flat[channel] + 1j * flat[channel + 1])
            out[channel], out[channel + 1] = u.real, u.imag
    return out.reshape(result.shape)


def _level(of: Scene, sigma: float, model: Model, fine: bool) -> Level:
    if fine:
        values, spacing, have = of.of_template.levels[0], 1, 0.0
        values = fields.blurred(values, sigma)
    else:
        values, spacing, have = of.of_template.level(sigma / 1.4)
        values = diffused(
            values, of.feature, sigma, have, spacing, of.radius, model, of.diffusion
        )  # fmt: skip
    h, w = values.shape[1:]
    stride = max(1, int(np.ceil(np.sqrt(h * w / SCHEDULE.points))))
    x, y = (
        ((np.arange(0, n, stride) * spacing - middle) / of.radius).astype(np.float32)
        for n, middle in zip((w, h), of.centre, strict=True)
    )
    per = of.radius / spacing
    slopes = _slopes(
        values, of.feature.harmonics, model, x[None, None, :], y[None, :, None], per, stride
    )
    flat = np.ascontiguousarray(values[:, ::stride, ::stride]).reshape(len(values), -1)
    slopes = slopes.reshape(len(slopes), *flat.shape)
    first, second = np.triu_indices(len(slopes))
    products = np.stack(
        [np.einsum("cn,cn->n", slopes[i], slopes[j]) for i, j in zip(first, second, strict=True)]
    )
    squares = np.einsum("cn,cn->n", flat, flat)
    return Level(sigma, model, spacing, stride, (h, w), fine, flat, squares, slopes, products)


def warped(of: Scene, at: Level, transform: FloatArray) -> Pixels:
    """The image's side at σ, (c, n): its fields at τ(x), turned, diffused; below, measured anew."""
    size = at.size
    grown = scale(transform)
    if at.fine:
        values = fields.blurred(
            of.feature.measure(seen(of.image, transform, size), light(of.template)), at.sigma
        )
    else:
        values, spacing, have = of.of_image.level(at.spacing * grown)
        step = np.diag([at.spacing, at.spacing, 1.0])
        values = fields.sampled(values, transform @ step / spacing, size)
        fields.turned(values, of.feature.harmonics, angle(transform))
        values = diffused(
            values, of.feature, at.sigma, have / grown, at.spacing, of.radius,
            at.model, of.diffusion,
        )  # fmt: skip
    some = np.ascontiguousarray(values[..., :: at.stride, :: at.stride])
    return some.reshape(len(values), -1)


def _around(
    image: Pixels, transform: FloatArray, size: tuple[int, int], margin: float
) -> tuple[Pixels, FloatArray]:
    """The part of the image that a template falls on, and the transform into that part."""
    h, w = size
    corners = np.array([[0, 0, 1], [w - 1, 0, 1], [0, h - 1, 1], [w - 1, h - 1, 1]]) @ transform.T
    limits = np.array(image.shape[::-1])
    low = np.clip(np.floor(corners.min(0) - margin), 0, limits - 1).astype(int)
    high = np.clip(np.ceil(corners.max(0) + margin) + 1, low + 1, limits).astype(int)
    moved = np.array(transform)
    moved[:, 2] -= low
    return image[low[1] : high[1], low[0] : high[0]], moved


def seen(image: Pixels, transform: FloatArray, size: tuple[int, int]) -> Pixels:
    """The image as the template would see it, (h, w) = ``size``."""
    grown = scale(transform)
    image, transform = _around(image, transform, size, margin=4 * grown + 4)
    if grown > 1.05:  # what the template's pixels cannot hold would be aliased
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), 0.5 * float(np.sqrt(grown**2 - 1))))
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(image, transform, size[::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
    )


def _beyond(of: Scene, at: Level, transform: FloatArray) -> NDArray[np.bool_] | None:
    """Which of the level's places fall outside the image (n,), or None if none do."""
    h, w = at.size
    limits = np.array(of.image.shape[::-1]) - 0.5

    def out(places: FloatArray) -> NDArray[np.bool_]:
        moved = places @ transform[:, :2].T + transform[:, 2]
        return np.asarray(((moved < -0.5) | (moved > limits)).any(1))

    corners = np.array([[0, 0], [w - 1, 0], [0, h - 1], [w - 1, h - 1]], np.float64)
    if not out(at.spacing * corners).any():
        return None
    y, x = np.mgrid[: h : at.stride, : w : at.stride].reshape(2, -1).astype(np.float64)
    return out(at.spacing * np.stack([x, y], 1))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The energy at a transform, with what its next step is made of."""

    energy: float
    gain: float
    values: Pixels
    weights: Pixels


def evaluate(of: Scene, at: Level, transform: FloatArray) -> Evaluation:
    """E(θ; σ), and its Cauchy weights (n,).

    Beyond the image's edge there is nothing: it costs what the template has there, so that leaving
    does not pay, and pulls at nothing.
    """
    values = warped(of, at, transform)
    beyond = _beyond(of, at, transform) if at.fine else None
    if beyond is not None:
        values[:, beyond] = 0
    own = np.einsum("cn,cn->n", values, values)
    both = np.einsum("cn,cn->n", values, at.values)
    around = float(np.sqrt(at.power / (float(own.mean()) + 1e-12)))
    gain, scaled = around, np.float32(1 / (SCHEDULE.robust * at.power))
    weights = own
    for _ in range(3):
        residual = np.float32(gain**2) * own - np.float32(2 * gain) * both + at.squares
        weights = 1 / (1 + np.maximum(residual, 0) * scaled)
        fitted = float(weights @ both) / (float(weights @ own) + 1e-12)
        used, gain = gain, float(np.clip(fitted, 0.3 * around, 2 * around))
    energy = -float(np.log(weights).mean())
    if beyond is not None:
        weights = np.where(beyond, np.float32(0), weights)
    return Evaluation(energy, used, values, weights)


def normal_equations(at: Level, here: Evaluation) -> tuple[FloatArray, FloatArray]:
    """Half the energy's Gauss-Newton Hessian and gradient in the parameters, but for 1/(n c²)."""
    count = len(at.slopes)
    hessian = np.zeros((count, count))
    upper = np.triu_indices(count)
    hessian[upper] = at.products @ here.weights
    hessian = hessian + np.triu(hessian, 1).T
    residual = (np.float32(here.gain) * here.values - at.values) * here.weights
    gradient = at.slopes.reshape(count, -1) @ residual.ravel()
    return hessian, gradient.astype(np.float64)


def composed(of: Scene, model: Model, transform: FloatArray, step: FloatArray) -> FloatArray:
    """τ ∘ δ⁻¹: the template moved by δ is the image moved by its inverse."""
    unit = np.diag([1 / of.radius, 1 / of.radius, 1.0])
    unit[:2, 2] = -of.centre / of.radius
    inverse = np.linalg.inv(unit) @ np.linalg.inv(_update(model, step)) @ unit
    return np.asarray(transform @ inverse)


def minimise(of: Scene, at: Level, transform: FloatArray) -> Step:
    """A local minimum of E(·; σ) by Levenberg and Marquardt: only what lowers it is accepted."""
    damping, trials, resting = 1e-3, 0, False
    unit = max(at.sigma, 0.5)
    here = evaluate(of, at, transform)
    while trials < SCHEDULE.steps and not resting:
        hessian, gradient = normal_equations(at, here)
        diagonal = np.diag(hessian.diagonal() + 1e-9 * np.trace(hessian) + 1e-12)
        improved = False
        while trials < SCHEDULE.steps and not improved:
            trials += 1
            step = np.asarray(np.linalg.solve(hessian + damping * diagonal, gradient), np.float64)
            moved = float(np.abs(step).max()) * of.radius
            there = composed(of, at.model, transform, step)
            if plausible(there):
                new = evaluate(of, at, there)
                improved = new.energy < here.energy
            if improved:
                transform, here, damping = there, new, max(damping / 5, 1e-5)
            else:
                damping = max(8 * damping, 1e-2)
                if moved < 0.01 * unit:
                    break
        resting = not improved or moved < SCHEDULE.at_rest * unit
    return Step(at.sigma, transform, here.energy, resting or moved < SCHEDULE.nearly_at_rest * unit)
