"""Algorithm 1 on fields: the diffused energy of a template and an image, and its minimisation.

At each σ both densities are blurred by σ, the image's after warping by the current estimate; in the
theory's dot product that is a diffusion by √2 σ. The energy that is minimised over the warp is::

    E(θ; σ) = mean over x of log(1 + |a U(x; f ∘ τ_θ) − U(x; p)|² / c²),   U = all fields at x

with a fitted gain a. Without the logarithm, the best gain leaves |U_p|²(1 − cos²), which decreases
as the normalised dot product of the two densities (eq. 15) increases. The logarithm (a Cauchy
weight) limits the influence of occluded and changed parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Pyramid
from caloric.theory.continuation import Step
from caloric.types import FloatArray, Pixels, TransformModel

Diffusion = Literal["partial", "all"]


class Problem(Protocol):
    """A template and an image at one size, and the energy of transforms, on some device.

    Levels and evaluations are those of the device: here :class:`Level` and :class:`Evaluation`.
    """

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(h, w) of the template and of the image."""

    def level(self, sigma: float, model: TransformModel, *, fine: bool = False) -> Any:
        """Return the template at σ."""

    def evaluate(self, level: Any, transform: FloatArray) -> Any:
        """Return the energy of a transform, and what follows from it."""

    def normal_equations(self, level: Any, evaluation: Any) -> tuple[FloatArray, FloatArray]:
        """Return the Hessian (p, p) and the gradient (p,)."""

    def cosines(self, level: Any, evaluation: Any, width: float) -> float:
        """Return the median cosine of both densities, each around a place, over the template."""

    def noise(self, level: Any, evaluation: Any) -> float:
        """Return the weighted mean square of the residuals."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A template and an image (h, w), with the pyramids of their fields."""

    template: Pixels
    image: Pixels
    feature: Feature
    diffusion: Diffusion
    template_fields: Pyramid
    image_fields: Pyramid
    _levels: "dict[tuple[float, TransformModel, bool], Level]" = field(
        init=False, default_factory=dict
    )

    def level(self, sigma: float, model: TransformModel, *, fine: bool = False) -> "Level":
        """Return the cached :class:`Level` of the template at σ; ``fine`` for the last few σ."""
        key = (sigma, model, fine)
        if key not in self._levels:
            self._levels[key] = _level(self, sigma, model, fine)
        return self._levels[key]

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(h, w) of the template and of the image."""
        return self.template.shape, self.image.shape

    def evaluate(self, level: "Level", transform: FloatArray) -> "Evaluation":
        """Return :func:`evaluate`."""
        return evaluate(self, level, transform)

    def normal_equations(
        self, level: "Level", evaluation: "Evaluation"
    ) -> tuple[FloatArray, FloatArray]:
        """Return :func:`normal_equations`."""
        return normal_equations(level, evaluation)

    def cosines(self, level: "Level", evaluation: "Evaluation", width: float) -> float:
        """Return :func:`cosines`."""
        return cosines(level, evaluation, width)

    def noise(self, level: "Level", evaluation: "Evaluation") -> float:
        """Return :func:`noise`."""
        return noise(level, evaluation)


def centre(template: tuple[int, ...]) -> FloatArray:
    """Return the centre (x, y) of a template (h, w), about which it is rotated and scaled."""
    return np.array([(template[1] - 1) / 2, (template[0] - 1) / 2])


def radius(template: tuple[int, ...]) -> float:
    """Return R, the unit of the parameters: half the side of a square of the template's area."""
    return side(template) / 2


def side(shape: tuple[int, ...]) -> float:
    """Return √(h w), which is small for thin templates."""
    return float(np.sqrt(shape[0] * shape[1]))


def light(template: tuple[int, ...]) -> float:
    """Return the width, in pixels, over which illumination counts as constant: about R/4.

    It is rounded to a power of √2, so that templates of similar size share the fields of the image.
    """
    return float(2 ** (round(2 * np.log2(max(side(template) / 8, 2.0))) / 2))


def scene(
    template: Pixels, image: Pixels, feature: Feature, diffusion: Diffusion = "partial"
) -> Scene:
    """Return a scene with the fields of both images; see also :func:`scene_with_fields`."""
    image_fields = fields.pyramid(feature.measure(image, light(template.shape)))
    return scene_with_fields(template, image, image_fields, feature, diffusion)


def scene_fine(template: Pixels, image: Pixels, feature: Feature) -> Scene:
    """Return a scene for the last σ only, where the fields of the warped image are computed."""
    measured = feature.measure(template, light(template.shape))
    return Scene(template, image, feature, "partial", Pyramid((measured,), (0.0,)), Pyramid((), ()))


def scene_with_fields(
    template: Pixels, image: Pixels, image_fields: Pyramid, feature: Feature, diffusion: Diffusion
) -> Scene:
    """Return a scene with given fields of the image, which several templates can share."""
    template_fields = fields.pyramid(feature.measure(template, light(template.shape)))
    return Scene(template, image, feature, diffusion, template_fields, image_fields)


def scale(transform: FloatArray) -> float:
    """Return the scale √|det A| of a transform [A | b]."""
    A = transform[:, :2]
    return float(np.sqrt(abs(A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0])))


def plausible(transform: FloatArray) -> bool:
    """Return whether a transform is finite, not mirrored, and scales by 0.1 to 10 everywhere."""
    A = transform[:, :2]
    if not np.isfinite(transform).all() or np.linalg.det(A) <= 0:
        return False
    stretch = np.linalg.svd(A, compute_uv=False)
    return bool(stretch[0] < 10 and stretch[1] > 0.1)


def angle(transform: FloatArray) -> float:
    """Return the angle of the rotation nearest to A, in radians."""
    A = transform[:, :2]
    return float(np.arctan2(A[1, 0] - A[0, 1], A[0, 0] + A[1, 1]))


@dataclass(frozen=True, eq=False)
class Level:
    """The template at one σ: ``values`` (c, n) and their ``slopes`` (p, c, n) in the parameters.

    The n samples are every ``stride``-th of a grid of ``size`` (h, w) with ``spacing`` pixels.
    ``products`` are sums over channels of products of slopes, whose weighted sum is the Hessian.
    """

    sigma: float
    model: TransformModel
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
        """The mean of |U|² over the samples."""
        return float(self.squares.mean()) + 1e-12


PARAMETERS = {"translation": 2, "similarity": 4, "affine": 6}


def spin(result: Any, values: Any, harmonics: tuple[int, ...]) -> Any:
    """Write −im u_m, the slope of e^{−imα} u_m in α, into ``result`` (c, h, w), and return it."""
    for m, channel in fields.channels(harmonics):
        if m:
            result[channel] = m * values[channel + 1]
            result[channel + 1] = -m * values[channel]
    return result


def slopes(result: Any, dx: Any, dy: Any, spun: Any, model: TransformModel, x: Any, y: Any) -> None:
    """Write ∂U(τx)/∂parameters at the identity into ``result`` (p, c, h, w), arrays or tensors.

    They are ∇U · δ(x), and ``spun`` (c, h, w) for a rotation; x and y are coordinates.
    """
    if model == "similarity":
        result[0] = dx * x + dy * y
        result[1] = dy * x - dx * y + spun
    elif model == "affine":
        result[0], result[1] = dx * x, dx * y - 0.5 * spun
        result[2], result[3] = dy * x + 0.5 * spun, dy * y
    result[-2], result[-1] = dx, dy


def _slopes(
    values: Pixels,
    harmonics: tuple[int, ...],
    model: TransformModel,
    x: Pixels,
    y: Pixels,
    per: float,
    stride: int,
) -> Pixels:
    """Return :func:`slopes` at every ``stride``-th place; x and y are their coordinates."""
    dx, dy = (
        np.stack(
            [cv2.Sobel(v, cv2.CV_32F, *d, ksize=1, scale=0.5 * per)[::stride, ::stride]
             for v in values]
        )
        for d in ((1, 0), (0, 1))
    )  # fmt: skip
    values = values[:, ::stride, ::stride]
    spun = spin(np.zeros_like(values), values, harmonics)
    result = np.empty((PARAMETERS[model], *values.shape), np.float32)
    slopes(result, dx, dy, spun, model, x, y)
    return result


def _update(model: TransformModel, p: FloatArray) -> FloatArray:
    """Return the 3 x 3 matrix of parameters in units of R about the centre of the template."""
    if model == "translation":
        return np.array([[1, 0, p[0]], [0, 1, p[1]], [0, 0, 1]])
    if model == "similarity":
        return np.array([[1 + p[0], -p[1], p[2]], [p[1], 1 + p[0], p[3]], [0, 0, 1]])
    return np.array([[1 + p[0], p[1], p[4]], [p[2], 1 + p[3], p[5]], [0, 0, 1]])


@lru_cache(maxsize=64)
def _variances(size: tuple[int, int]) -> Pixels:
    """Return |x|²/R² over a grid (h, w), by which affine diffusion exceeds σ², relative to σ²."""
    h, w = size
    y, x = np.mgrid[:h, :w].astype(np.float32)
    x, y = x - (w - 1) / 2, y - (h - 1) / 2
    return np.asarray((x * x + y * y) / (side(size) / 2) ** 2, np.float32)


def _widened(values: Pixels, sigma: float, have: float) -> Pixels:
    """Return the fields with variance σ²(1 + |x|²/R²) at x: the affine diffusion of scalar fields.

    This is the closed form, because A x + b is normal with this variance. It is interpolated
    between a few blurs, linearly in the variance, in which Gaussians change slowly.
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
    """Return an operator per harmonic: the mean over α and s of e^{−imα} u_m(e^s R_α x).

    α and s are normal with deviation ``spread``; the mean is a quadrature with
    ``SCHEDULE.nodes`` nodes each, and u is interpolated bilinearly. The operators are sparse
    matrices, complex for m ≠ 0, where two channels are the real and imaginary part of u.
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
    model: TransformModel,
    diffusion: Diffusion,
) -> Pixels:
    """Return the fields (c, h, w) diffused to σ pixels; they are already smoothed by ``have``.

    Translation is diffused exactly, by k_σ. Unless the model is a translation, rotation is diffused
    by Lemma 1: e^{−m²σr²/2} on the dot product, hence half of that exponent here. With
    ``diffusion="all"`` the effect of rotation and log-scale on positions is diffused too, by
    quadrature with σr = σs = σ/R.
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


def stride(size: tuple[int, ...]) -> int:
    """Return the stride at which a grid (h, w) has at most ``SCHEDULE.points`` samples."""
    return max(1, int(np.ceil(np.sqrt(size[0] * size[1] / SCHEDULE.points))))


def coordinates(
    template: tuple[int, ...], size: tuple[int, ...], spacing: int, step: int
) -> tuple[Pixels, Pixels]:
    """Return x (1, 1, w) and y (1, h, 1) of every ``step``-th sample, in units of R."""
    x, y = (
        ((np.arange(0, n, step) * spacing - middle) / radius(template)).astype(np.float32)
        for n, middle in zip(size[::-1], centre(template), strict=True)
    )
    return x[None, None, :], y[None, :, None]


def _level(scene: Scene, sigma: float, model: TransformModel, fine: bool) -> Level:
    if fine:
        values, spacing, have = scene.template_fields.levels[0], 1, 0.0
        values = fields.blurred(values, sigma)
    else:
        values, spacing, have = scene.template_fields.level(sigma / 1.4)
        values = diffused(
            values, scene.feature, sigma, have, spacing, radius(scene.template.shape), model,
            scene.diffusion,
        )  # fmt: skip
    h, w = values.shape[1:]
    step = stride((h, w))
    x, y = coordinates(scene.template.shape, (h, w), spacing, step)
    per = radius(scene.template.shape) / spacing
    found = _slopes(values, scene.feature.harmonics, model, x, y, per, step)
    flat = np.ascontiguousarray(values[:, ::step, ::step]).reshape(len(values), -1)
    found = found.reshape(len(found), *flat.shape)
    first, second = np.triu_indices(len(found))
    products = np.stack(
        [np.einsum("cn,cn->n", found[i], found[j]) for i, j in zip(first, second, strict=True)]
    )
    squares = np.einsum("cn,cn->n", flat, flat)
    return Level(sigma, model, spacing, step, (h, w), fine, flat, squares, found, products)


def warped(scene: Scene, level: Level, transform: FloatArray) -> Pixels:
    """Return the fields (c, n) of the warped image at σ.

    Coarse fields are warped, rotated and diffused; at a fine level the pixels are warped and their
    fields are computed again.
    """
    size = level.size
    grown = scale(transform)
    if level.fine:
        values = fields.blurred(
            scene.feature.measure(seen(scene.image, transform, size), light(scene.template.shape)),
            level.sigma,
        )
    else:
        values, spacing, have = scene.image_fields.level(level.spacing * grown)
        step = np.diag([level.spacing, level.spacing, 1.0])
        values = fields.sampled(values, transform @ step / spacing, size)
        fields.turned(values, scene.feature.harmonics, angle(transform))
        values = diffused(
            values, scene.feature, level.sigma, have / grown, level.spacing,
            radius(scene.template.shape), level.model, scene.diffusion,
        )  # fmt: skip
    samples = np.ascontiguousarray(values[..., :: level.stride, :: level.stride])
    return samples.reshape(len(values), -1)


def covered(image: Any, transform: FloatArray, size: tuple[int, ...]) -> tuple[Any, FloatArray]:
    """Return the part of an image, array or tensor, that a template covers, and the map into it.

    It has a margin for the blur against aliasing and for interpolation.
    """
    h, w = size
    margin = 4 * scale(transform) + 4
    corners = np.array([[0, 0, 1], [w - 1, 0, 1], [0, h - 1, 1], [w - 1, h - 1, 1]]) @ transform.T
    limits = np.array(image.shape[::-1])
    low = np.clip(np.floor(corners.min(0) - margin), 0, limits - 1).astype(int)
    high = np.clip(np.ceil(corners.max(0) + margin) + 1, low + 1, limits).astype(int)
    moved = np.array(transform)
    moved[:, 2] -= low
    return image[low[1] : high[1], low[0] : high[0]], moved


ALIASING = 1.05  # scale above which an image is blurred before it is warped to a template


def smoothing(grown: float) -> float:
    """Return the width of the blur before an image is reduced by ``grown``."""
    return 0.5 * float(np.sqrt(grown**2 - 1))


def seen(image: Pixels, transform: FloatArray, size: tuple[int, int]) -> Pixels:
    """Return the image warped to the template, (h, w) = ``size``."""
    grown = scale(transform)
    image, transform = covered(image, transform, size)
    if grown > ALIASING:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), smoothing(grown)))
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(image, transform, size[::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
    )


def _outside(
    points: FloatArray, image: tuple[int, ...], transform: FloatArray
) -> NDArray[np.bool_]:
    mapped = points @ transform[:, :2].T + transform[:, 2]
    return np.asarray(((mapped < -0.5) | (mapped > np.array(image[::-1]) - 0.5)).any(1))


def beyond(
    size: tuple[int, ...], step: int, image: tuple[int, ...], transform: FloatArray
) -> NDArray[np.bool_] | None:
    """Return which samples of a template fall outside the image (n,), or None if none do.

    The samples are every ``step``-th pixel of the template (h, w) = ``size``.
    """
    h, w = size
    corners = np.array([[0, 0], [w - 1, 0], [0, h - 1], [w - 1, h - 1]], np.float64)
    if not _outside(corners, image, transform).any():
        return None
    y, x = np.mgrid[:h:step, :w:step].reshape(2, -1).astype(np.float64)
    return _outside(np.stack([x, y], 1), image, transform)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The energy at a transform, and the quantities that the next step needs."""

    energy: float
    gain: float
    values: Pixels
    weights: Pixels

    @property
    def count(self) -> int:
        """The number of samples that have a weight."""
        return int((self.weights > 0).sum())


def evaluate(scene: Scene, level: Level, transform: FloatArray) -> Evaluation:
    """Return E(θ; σ), with its gain and Cauchy weights (n,).

    Outside the image the fields are 0: these samples cost the energy of the template there, so that
    leaving the image is not rewarded, but they have no weight in the step.
    """
    values = warped(scene, level, transform)
    away = beyond(level.size, level.stride, scene.image.shape, transform) if level.fine else None
    if away is not None:
        values[:, away] = 0
    image_squares = np.einsum("cn,cn->n", values, values)
    products = np.einsum("cn,cn->n", values, level.values)
    balanced = float(np.sqrt(level.power / (float(image_squares.mean()) + 1e-12)))
    gain, inverse = balanced, np.float32(1 / (SCHEDULE.robust * level.power))
    weights = image_squares
    for _ in range(3):
        residual = (
            np.float32(gain**2) * image_squares - np.float32(2 * gain) * products + level.squares
        )
        weights = 1 / (1 + np.maximum(residual, 0) * inverse)
        fitted = float(weights @ products) / (float(weights @ image_squares) + 1e-12)
        used, gain = gain, float(np.clip(fitted, 0.3 * balanced, 2 * balanced))
    energy = -float(np.log(weights).mean())
    if away is not None:
        weights = np.where(away, np.float32(0), weights)
    return Evaluation(energy, used, values, weights)


def normal_equations(level: Level, evaluation: Evaluation) -> tuple[FloatArray, FloatArray]:
    """Return the Gauss-Newton Hessian (p, p) and gradient (p,) of the energy times n c² / 2."""
    count = len(level.slopes)
    hessian = np.zeros((count, count))
    upper = np.triu_indices(count)
    hessian[upper] = level.products @ evaluation.weights
    hessian = hessian + np.triu(hessian, 1).T
    residual = (np.float32(evaluation.gain) * evaluation.values - level.values) * evaluation.weights
    gradient = level.slopes.reshape(count, -1) @ residual.ravel()
    return hessian, gradient.astype(np.float64)


def cosines(level: Level, evaluation: Evaluation, width: float) -> float:
    """Return the median, over the template, of the cosine of both densities around each place.

    Their means are removed; around is a Gaussian of ``width`` samples.
    """
    inside = evaluation.weights > 0
    if not inside.any():
        return 0.0
    size = tuple(-(-n // level.stride) for n in level.size)
    both = [
        np.where(inside, v - v[:, inside].mean(1, keepdims=True), 0)
        for v in (evaluation.values, level.values)
    ]
    across, of_image, of_template = (
        cv2.GaussianBlur(np.einsum("cn,cn->n", u, v).reshape(size), (0, 0), width).ravel()
        for u, v in (both, (both[0], both[0]), (both[1], both[1]))
    )
    found = across / np.sqrt(of_image * of_template + 1e-9)
    return float(np.median(found[inside]))


def noise(level: Level, evaluation: Evaluation) -> float:
    """Return the weighted mean square of the residuals."""
    residual = np.float32(evaluation.gain) * evaluation.values - level.values
    total = max(float(evaluation.weights.sum()), 1e-12)
    return float((evaluation.weights * (residual**2).mean(0)).sum() / total)


def composed(
    scene: Problem, model: TransformModel, transform: FloatArray, step: FloatArray
) -> FloatArray:
    """Return τ ∘ δ⁻¹: moving the template by δ is moving the image by δ⁻¹."""
    shape, _ = scene.shapes
    unit = np.diag([1 / radius(shape), 1 / radius(shape), 1.0])
    unit[:2, 2] = -centre(shape) / radius(shape)
    inverse = np.linalg.inv(unit) @ np.linalg.inv(_update(model, step)) @ unit
    return np.asarray(transform @ inverse)


def minimise(scene: Problem, level: Any, transform: FloatArray) -> Step:
    """Return a local minimum of E(·; σ) by Levenberg-Marquardt."""
    damping, trials, resting = 1e-3, 0, False
    unit = max(level.sigma, 0.5)
    current = scene.evaluate(level, transform)
    while trials < SCHEDULE.steps and not resting:
        hessian, gradient = scene.normal_equations(level, current)
        diagonal = np.diag(hessian.diagonal() + 1e-9 * np.trace(hessian) + 1e-12)
        improved = False
        while trials < SCHEDULE.steps and not improved:
            trials += 1
            step = np.asarray(np.linalg.solve(hessian + damping * diagonal, gradient), np.float64)
            shift = float(np.abs(step).max()) * radius(scene.shapes[0])
            candidate = composed(scene, level.model, transform, step)
            if plausible(candidate):
                trial = scene.evaluate(level, candidate)
                improved = trial.energy < current.energy
            if improved:
                transform, current, damping = candidate, trial, max(damping / 5, 1e-5)
            else:
                damping = max(8 * damping, 1e-2)
                if shift < 0.01 * unit:
                    break
        resting = not improved or shift < SCHEDULE.at_rest * unit
    return Step(
        level.sigma, transform, current.energy, resting or shift < SCHEDULE.nearly_at_rest * unit
    )
