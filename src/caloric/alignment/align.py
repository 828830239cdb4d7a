"""Alignment of a template with an image by Algorithm 1: repeated warping at decreasing σ.

The three columns of the paper's table are three values of ``method``:

* ``"continuation"``: σ₀ > σ₁ > … > 0, each minimum is the start of the next (the default)
* ``"single"``: one σ, and the lowest diffused energy among the candidates Θ of a detector
* ``"descriptor"``: the same with h_SIFT around each candidate, as in a SIFT matcher
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from caloric import pipeline
from caloric.alignment import confidence, registration, search
from caloric.alignment.registration import Diffusion, Problem, Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Correlate
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature
from caloric.errors import InputError, known_options, unknown
from caloric.gpu import devices
from caloric.image.pixels import to_grey
from caloric.matching import geometry
from caloric.runtime import threads
from caloric.theory.continuation import Path, Step, follow
from caloric.types import FloatArray, Pixels, TransformModel

Method = Literal["continuation", "single", "descriptor"]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where a template is in an image.

    Attributes
    ----------
    transform : array (2, 3)
        It maps template pixels to image pixels.
    energy : float
        The energy at the end.
    path : tuple of steps
        σ (``sigma``, in pixels of the template), transform (``point``) and energy (``cost``) of
        every step.
    converged : bool
        Whether the confidence is at least 0.5, the last step no longer moved, and the template lies
        in the image.
    confidence : float
        The probability that the transform is correct (:mod:`caloric.alignment.confidence`).
    reason : str
        "converged", or which of these is missing.
    covariance : array (6, 6)
        That of the entries of ``transform``, row by row.
    inside : float
        The share of the template that lies in the image.
    """

    transform: FloatArray
    energy: float
    path: tuple[Step, ...]
    converged: bool
    confidence: float
    reason: str
    covariance: FloatArray
    inside: float

    def __repr__(self) -> str:
        """Return a description of one line."""
        rows = "; ".join(" ".join(f"{v:.4g}" for v in row) for row in self.transform)
        return f"Alignment([{rows}], confidence {self.confidence:.2f}, {self.reason})"


def _sigmas(radius: float) -> tuple[float, ...]:
    """Return the coarse σ in pixels, each 1/√2 of the previous one."""
    last = max(2.0, min(radius / 11.5, 6.0))
    count = int(np.floor(2 * np.log2(SCHEDULE.given_start * radius / last) + 1e-9)) + 1
    return tuple(float(SCHEDULE.given_start * radius * 2 ** (-k / 2)) for k in range(max(count, 1)))


def _model_at(
    sigma: float, radius: float, turns_from: float, model: TransformModel
) -> TransformModel:
    """Return the model at σ: a translation first, then a similarity, then an affine map."""
    if sigma > 1.01 * turns_from * radius:
        return "translation"
    if model == "affine" and sigma > 1.01 * SCHEDULE.affine_from * radius:
        return "similarity"
    return model


def _coarse(
    top: Scene, model: TransformModel, start: FloatArray, begin: float, turns_from: float
) -> Path:
    """Return the path through the coarse σ from ``begin`` · R down."""
    radius = registration.radius(top.template.shape)
    every = _sigmas(radius)
    sigmas = [sigma for sigma in every if sigma <= 1.01 * begin * radius] or every[-1:]

    def local(transform: FloatArray, sigma: float) -> Step:
        level = top.level(sigma, _model_at(sigma, radius, turns_from, model))
        return registration.minimise(top, level, transform)

    return follow(sigmas, start, local)


def from_start(top: Scene, model: TransformModel, start: FloatArray) -> Path:
    """Return the best path through the coarse σ from a given transform."""
    plans = SCHEDULE.shift_paths if model == "translation" else SCHEDULE.paths
    return _first_low((_coarse(top, model, start, *plan) for plan in plans), SCHEDULE.low_energy)


def _first_low(paths: Iterable[Path], low: float) -> Path:
    """Return the first path that ends below the energy ``low``, or the one that ends lowest."""
    tried = []
    for path in paths:
        tried.append(path)
        if path.cost < low:
            break
    return min(tried, key=lambda path: path.cost)


def from_candidates(
    top: Scene,
    model: TransformModel,
    candidates: list[FloatArray],
    low: float = SCHEDULE.low_energy,
) -> Path:
    """Return the best path from several transforms, or the first that ends below ``low``."""
    turns = 0.0 if model == "translation" else SCHEDULE.candidate_start
    return _first_low(
        (_coarse(top, model, c, SCHEDULE.candidate_start, turns) for c in candidates), low
    )


@dataclass(frozen=True)
class Device:
    """What another device does: compare templates with windows, and descend at the last σ."""

    correlate: Correlate
    fine: Callable[[Pixels, Pixels, Feature], Problem]


CPU = Device(search.correlate, registration.scene_fine)


def device_of(name: str) -> Device:
    """Return the functions of a device."""
    target = devices.resolve(name)
    if target is None:
        return CPU

    from caloric.alignment import registration_on_device, search_on_device

    return Device(search_on_device.on(target), registration_on_device.on(target))


def searched(
    scenes: Sequence[Scene], model: TransformModel, most: int, on: Device = CPU
) -> list[list[FloatArray]]:
    """Return up to ``most`` candidate transforms per scene; all templates have the same shape."""
    if max(scenes[0].template.shape) > SCHEDULE.thin * min(scenes[0].template.shape):
        return [
            _by_parts(scene, model, _pieces(scene.template.shape), on)[:most] for scene in scenes
        ]
    turns, scales = SCHEDULE.turns, SCHEDULE.scales
    if model == "translation":
        turns, scales = 1, (1.0,)
    first, shape = scenes[0], scenes[0].template.shape
    columns = [
        search.turned_templates(scene.template_fields, shape, scene.feature, turns)
        for scene in scenes
    ]
    found = search.search(
        first.image_fields, first.image.shape, columns, shape,
        turns=turns, scales=scales, most=most, correlate=on.correlate,
    )  # fmt: skip
    return [[candidate.transform for candidate in candidates] for candidates in found]


def _restricted(transform: FloatArray, model: TransformModel, centre: FloatArray) -> FloatArray:
    """Return the nearest transform of the model that maps ``centre`` to the same point."""
    if model == "affine":
        return transform
    A = np.eye(2)
    if model == "similarity":
        a = (transform[0, 0] + transform[1, 1]) / 2
        c = (transform[1, 0] - transform[0, 1]) / 2
        A = np.array([[a, -c], [c, a]])
    middle = transform[:, :2] @ centre + transform[:, 2]
    return np.column_stack([A, middle - A @ centre])


def _matched(scene: Scene, model: TransformModel) -> FloatArray | None:
    """Return the transform estimated from matched features, or None."""
    a, b = pipeline.extract_many([scene.template, scene.image], max_features=None)
    matches = pipeline.match(a, b)
    p, q = a.frames.xy[matches.indices[:, 0]], b.frames.xy[matches.indices[:, 1]]
    matrix = geometry.estimate(p, q, model="affine", threshold=3.0).matrix
    if matrix is None or not registration.plausible(matrix):
        return None
    return _restricted(matrix, model, registration.centre(scene.template.shape))


Part = tuple[int, int, int, int]  # row and column of the corner, height, width


def _quarters(shape: tuple[int, ...]) -> list[Part]:
    h, w = shape[0] // 2, shape[1] // 2
    if min(h, w) < SCHEDULE.smallest_quarter:
        return []
    return [(y, x, h, w) for y in (0, shape[0] - h) for x in (0, shape[1] - w)]


def _pieces(shape: tuple[int, ...]) -> list[Part]:
    """Return parts along the longer side of a thin template."""
    longer, shorter = max(shape), min(shape)
    length = int(SCHEDULE.thin * shorter)
    count = min(-(-longer // length), SCHEDULE.parts)
    begins = [round(v) for v in np.linspace(0, longer - length, count)]
    if shape[0] < shape[1]:
        return [(0, begin, shorter, length) for begin in begins]
    return [(begin, 0, length, shorter) for begin in begins]


def _by_parts(top: Scene, model: TransformModel, parts: list[Part], on: Device) -> list[FloatArray]:
    """Return the transform of the template according to each part, the lowest energy first."""
    results = []
    for y, x, h, w in parts:
        part = np.s_[..., y : y + h, x : x + w]
        pyramid = fields.pyramid(np.ascontiguousarray(top.template_fields.levels[0][part]))
        scene = replace(top, template=top.template[part], template_fields=pyramid)
        candidates = searched([scene], model, SCHEDULE.candidates, on)[0]
        path = from_candidates(scene, model, candidates)
        transform = path.point.copy()
        transform[:, 2] -= transform[:, :2] @ (x, y)
        results.append((path.cost, transform))
    return [transform for _, transform in sorted(results, key=lambda result: result[0])]


def escalated(
    sizes: list[tuple[Pixels, Pixels]],
    top: Scene,
    model: TransformModel,
    candidates: list[FloatArray],
    best: Alignment,
    on: Device = CPU,
) -> Alignment:
    """Return the best alignment from further starts, tried until one has a high confidence."""
    for transform in _other_starts(top, model, candidates, on):
        path = fine(
            top, model, transform, (4 * SCHEDULE.fine_sigmas[0], 2 * SCHEDULE.fine_sigmas[0])
        )
        best = min(best, descend(sizes, top, model, path, on), key=lambda result: result.energy)
        if best.confidence >= SCHEDULE.sure:
            break
    return best


def _other_starts(
    top: Scene, model: TransformModel, candidates: list[FloatArray], on: Device
) -> Iterator[FloatArray]:
    matched = _matched(top, model)
    if matched is not None:
        yield matched
    yield from_candidates(top, model, candidates, low=0.0).point
    # If the centre of the template is occluded, a quarter may match where the whole does not.
    yield from _by_parts(top, model, _quarters(top.template.shape), on)


def fine(
    scene: Problem,
    model: TransformModel,
    start: FloatArray,
    sigmas: tuple[float, ...] = SCHEDULE.fine_sigmas,
) -> Path:
    """Return the path through the last σ, in pixels, down to 0."""

    def local(transform: FloatArray, sigma: float) -> Step:
        return registration.minimise(scene, scene.level(sigma, model, fine=True), transform)

    return follow(sigmas, start, local)


def inside(transform: FloatArray, template: tuple[int, ...], image: tuple[int, ...]) -> float:
    """Return the share of a template that lies in the image, given the shapes of both."""
    y, x = np.meshgrid(np.linspace(0, template[0] - 1, 33), np.linspace(0, template[1] - 1, 33))
    xy = np.stack([x.ravel(), y.ravel()], 1) @ transform[:, :2].T + transform[:, 2]
    low, high = (xy >= -0.5).all(1), (xy <= np.array(image[::-1]) - 0.5).all(1)
    return float((low & high).mean())


def _scaled(transform: FloatArray, factor: float) -> FloatArray:
    """Return the transform for images enlarged by ``factor``."""
    result = np.array(transform, np.float64)
    result[:, 2] *= factor
    return result


def octaves(template: Pixels, image: Pixels) -> list[tuple[Pixels, Pixels]]:
    """Return both images at each size, halved until the template is small enough to search for."""
    return list(zip(smaller(template), fields.halves(image), strict=False))


def smaller(template: Pixels) -> list[Pixels]:
    """Return the template at each size, halved until it is small enough to search for."""
    sizes = []
    for size in fields.halves(template):
        sizes.append(size)
        if (
            registration.side(size.shape) / 2 <= SCHEDULE.coarse_radius
            or min(size.shape) < 4 * SCHEDULE.smallest_template
        ):
            break
    return sizes


_ROWS = 64
_REACH = 5  # rows that a gradient depends on, on each side


def is_flat(pixels: Pixels) -> bool:
    """Return whether all gradients are below the noise level."""
    for top in range(0, len(pixels), _ROWS):  # most images are not flat at their first rows
        begin = max(0, top - _REACH)
        gx, gy = fields.gradients(pixels[begin : top + _ROWS + _REACH])
        square = (gx * gx + gy * gy)[top - begin : top - begin + _ROWS]
        if float(square.max()) >= fields.NOISE**2:
            return False
    return True


def _initial(initial: ArrayLike, template: Pixels, image: Pixels) -> FloatArray:
    try:
        start = np.asarray(initial, np.float64)
    except (TypeError, ValueError):
        raise InputError("initial must be numbers: a 2 x 3 transform") from None
    if start.shape == (3, 3) and np.allclose(start[2], [0, 0, 1]):
        start = start[:2]
    if start.shape != (2, 3) or not np.isfinite(start).all():
        raise InputError("initial must be a finite 2 x 3 transform from template to image pixels")
    if not registration.plausible(start):
        raise InputError(
            "initial mirrors the template, or scales it by more than 10 or less than 0.1"
        )
    share = inside(start, template.shape, image.shape)
    if share < SCHEDULE.inside_at_start:
        raise InputError(
            f"initial puts {share:.0%} of the template into the image; at least "
            f"{SCHEDULE.inside_at_start:.0%} are needed"
        )
    return start


def checked(template: object, image: object) -> tuple[Pixels, Pixels]:
    """Return both images in grey, after checking that the template is large enough and fits."""
    try:
        small = to_grey(template)
    except InputError as error:
        raise InputError(str(error).replace("image:", "template:", 1)) from None
    large = to_grey(image)
    if min(small.shape) < SCHEDULE.smallest_template:
        raise InputError(
            f"template: {small.shape[0]} x {small.shape[1]} pixels; at least "
            f"{SCHEDULE.smallest_template} x {SCHEDULE.smallest_template} are needed"
        )
    if small.shape[0] > large.shape[0] or small.shape[1] > large.shape[1]:
        raise InputError(
            f"template: {small.shape[0]} x {small.shape[1]} pixels do not fit into an image of "
            f"{large.shape[0]} x {large.shape[1]}; exchange the two and invert the transform, or "
            "cut out a part"
        )
    return small, large


def check_choice(value: str, kind: object, what: str) -> None:
    """Raise InputError unless the value is one of a Literal's."""
    if value not in get_args(kind):
        raise unknown(what, value, get_args(kind))


@known_options
@threads.single_threaded_blas
def align(
    template: ArrayLike,
    image: ArrayLike,
    *,
    model: TransformModel = "affine",
    initial: ArrayLike | None = None,
    feature: str = "orientation",
    inverted: bool = False,
    method: Method = "continuation",
    diffusion: Diffusion = "partial",
    device: str = "cpu",
) -> Alignment:
    """Align a template with an image by diffusion and continuation.

    Parameters
    ----------
    template, image : array (h, w) or (h, w, 3 or 4)
        uint8, uint16, bool, or floats in [0, 1]; colours in RGB order. The template has at least
        8 x 8 pixels and is not larger than the image.
    model : "affine", "similarity" or "translation"
        The transforms to consider.
    initial : array (2, 3), optional
        The transform to start from, from template to image pixels. By default the whole image is
        searched, at all rotations and at scales from 1/2 to 2, and features are matched if the
        result is uncertain.
    feature : str
        "orientation", "unsigned-orientation" (what ``inverted`` selects), "distribution-field" or
        "distribution-field-heat"; the last two compare intensities and need constant illumination.
    inverted : bool
        Allow inverted contrast: orientations are compared modulo π.
    method : "continuation", "single" or "descriptor"
        Follow the minimum at decreasing σ, or choose among the candidates of a detector by energy
        or by SIFT descriptors.
    diffusion : "partial" or "all"
        "partial" diffuses over translations and over the effect of rotations on orientations. "all"
        also diffuses over the effect of rotations and scales on positions; it is slower, and no
        better in our measurements.
    device : str
        Where the image is searched, and templates above 192 pixels are registered: "cpu",
        "cuda", "cuda:1" or "auto".

    Returns
    -------
    Alignment
        ``transform`` (2, 3) from template to image pixels, with ``confidence`` and ``converged``.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((160, 200))
    >>> result = caloric.align(image[40:100, 50:130], image)
    >>> result.converged
    True
    >>> np.allclose(result.transform[:, 2], (50, 40), atol=0.1)
    True
    """
    small, large = checked(template, image)
    check_choice(model, TransformModel, "model")
    check_choice(method, Method, "method")
    check_choice(diffusion, Diffusion, "diffusion")
    kind = fields.feature(feature, inverted)
    start = None
    if initial is not None:
        if method != "continuation":
            raise InputError(f"method {method!r} takes a detector's candidates, not an initial one")
        begin = _initial(initial, small, large)
        start = _restricted(begin, model, (np.array(small.shape[::-1]) - 1) / 2)
    return aligned(small, large, kind, model, start, method, diffusion, device_of(device))


def aligned(
    template: Pixels,
    image: Pixels,
    feature: Feature,
    model: TransformModel,
    start: FloatArray | None,
    method: Method = "continuation",
    diffusion: Diffusion = "partial",
    on: Device = CPU,
) -> Alignment:
    """Return the result of :func:`align` for grey images and checked options."""
    flat = [name for name, v in (("template", template), ("image", image)) if is_flat(v)]
    if flat:
        transform = start if start is not None else centred(template.shape, image.shape)
        covariance = np.full((6, 6), np.inf)
        reason = f"the {flat[0]} is flat"
        return Alignment(transform, np.inf, (), False, 0.0, reason, covariance, 0.0)
    sizes = octaves(template, image)
    times = 2.0 ** (len(sizes) - 1)
    top = registration.scene(*sizes[-1], feature, diffusion)
    if method != "continuation":
        step = _from_detector(top, model, method)
        return _result(registration.scene_fine(template, image, feature), model, [(times, step)])
    if start is not None:
        path = from_start(top, model, _scaled(start, 1 / times))
        return descend(sizes, top, model, path, on)
    candidates = searched([top], model, SCHEDULE.candidates, on)[0]
    best = descend(sizes, top, model, from_candidates(top, model, candidates), on)
    if best.confidence >= SCHEDULE.sure:
        return best
    return escalated(sizes, top, model, candidates, best, on)


def centred(template: tuple[int, ...], image: tuple[int, ...]) -> FloatArray:
    """Return the translation that centres a template in an image, given the shapes of both."""
    (h, w), (rows, columns) = template[:2], image[:2]
    return np.array([[1.0, 0, (columns - w) / 2], [0, 1.0, (rows - h) / 2]])


def descend(
    sizes: list[tuple[Pixels, Pixels]],
    top: Scene,
    model: TransformModel,
    path: Path,
    on: Device = CPU,
) -> Alignment:
    """Return the alignment after the last σ at the size of ``top`` and at every larger size.

    The size of ``top`` is small, and registered on the CPU; the others on the device.
    """
    if on is CPU or len(sizes) == 1:
        return _descend(sizes, top, model, path, CPU)
    h, w = sizes[0][0].shape
    result = devices.fitting(
        lambda: _descend(sizes, top, model, path, on), f"a registration of {h} x {w} pixels"
    )
    return _descend(sizes, top, model, path, CPU) if result is None else result


def _descend(
    sizes: list[tuple[Pixels, Pixels]], top: Scene, model: TransformModel, path: Path, on: Device
) -> Alignment:
    last = len(sizes) - 1
    steps = [(2.0**last, path)]
    scene: Problem = top
    for octave in reversed(range(len(sizes))):
        if octave != last:
            scene = on.fine(*sizes[octave], top.feature)
        before, earlier = steps[-1]
        begin = _scaled(earlier.point, before / 2.0**octave)
        steps.append((2.0**octave, fine(scene, model, begin)))
    return _result(scene, model, steps)


def _result(scene: Problem, model: TransformModel, paths: list[tuple[float, Path]]) -> Alignment:
    """Return an Alignment in pixels of the full size, with its confidence."""
    steps = tuple(
        replace(step, sigma=factor * step.sigma, point=_scaled(step.point, factor))
        for factor, path in paths
        for step in path.steps
    )
    transform = steps[-1].point
    share = inside(transform, *scene.shapes)
    probability = confidence.confidence(scene, transform) if share else 0.0
    reason = "converged"
    if share < SCHEDULE.inside_at_end:
        reason = f"it left the image: {share:.0%} of the template lies in it"
    elif probability < SCHEDULE.believed:
        reason = f"no agreement: a confidence of {probability:.2f} is below {SCHEDULE.believed}"
    elif not steps[-1].converged:
        reason = "still moving at the last step"
    return Alignment(
        transform=transform,
        energy=steps[-1].cost,
        path=steps,
        converged=reason == "converged",
        confidence=probability,
        reason=reason,
        covariance=confidence.covariance(scene, model, transform),
        inside=share,
    )


def detector_candidates(template: Pixels, image: Pixels) -> list[tuple[int, int, FloatArray]]:
    """Return Θ: (i, j, transform) for frame i of the template mapped to frame j of the image."""
    template_maps, image_maps = (
        pipeline.detect(v, max_features=n).maps
        for v, n in zip((template, image), SCHEDULE.detected, strict=True)
    )
    row = np.array([0.0, 0, 1])
    inverses = [np.linalg.inv(np.vstack([frame, row])) for frame in template_maps]
    candidates = (
        (i, j, np.asarray(frame @ inverse))
        for i, inverse in enumerate(inverses)
        for j, frame in enumerate(image_maps)
    )
    return [candidate for candidate in candidates if registration.plausible(candidate[2])]


def _from_detector(top: Scene, model: TransformModel, method: Method) -> Path:
    """Return the best candidate of a detector at a single σ: methods "single" and "descriptor"."""
    candidates = detector_candidates(top.template, top.image)
    sigma = SCHEDULE.candidate_start * registration.radius(top.template.shape)
    if not candidates:
        return Path((Step(sigma, centred(top.template.shape, top.image.shape), np.inf, False),))
    level = top.level(sigma, "similarity")
    if method == "single":
        energies = [registration.evaluate(top, level, c).energy for _, _, c in candidates]
    else:
        template_descriptors, image_descriptors = (
            np.asarray(pipeline.extract(v, "sift", max_features=n).descriptors, np.float32)
            for v, n in zip((top.template, top.image), SCHEDULE.detected, strict=True)
        )
        scores = template_descriptors @ image_descriptors.T
        energies = [-float(scores[i, j]) for i, j, _ in candidates]
    best = int(np.argmin(energies))
    transform = _restricted(candidates[best][2], model, registration.centre(top.template.shape))
    return Path((Step(sigma, transform, float(energies[best]), True),))
