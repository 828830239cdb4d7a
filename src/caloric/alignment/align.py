"""Align a template with an image: the theory's algorithm, with gradual sharpening and warping.

The three columns of the paper's table are three settings of one routine, ``method``:

* ``"continuation"``: σ₀ > σ₁ > … > 0, each minimum the start of the next (the default)
* ``"single"``: one σ, and of a detector's candidates Θ the one of lowest diffused energy
* ``"descriptor"``: the same with h_SIFT of each candidate's neighbourhood: what a SIFT matcher does
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from caloric import pipeline
from caloric.alignment import confidence as believing
from caloric.alignment import registration
from caloric.alignment import search as searching
from caloric.alignment.registration import Diffusion, Model, Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Correlate
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Pixels
from caloric.errors import InputError, unknown
from caloric.gpu import devices
from caloric.image.pixels import to_grey
from caloric.matching import geometry
from caloric.runtime import threads
from caloric.theory.continuation import Path, Step, follow
from caloric.theory.gaussians import FloatArray

Method = Literal["continuation", "single", "descriptor"]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where a template is in an image.

    ``transform`` (2, 3) maps template pixels to image pixels. ``path`` has the σ, in pixels of the
    template, the transform (``point``) and the energy (``cost``) of every step. ``confidence`` is
    the probability that it is right, of how alike the two are and how sharply that fixes the place
    (:mod:`caloric.confidence`): below 0.5 do not trust it. ``converged`` is that confidence, a path
    that came to rest, and a template that lies in the image; ``reason`` says what is missing.
    ``covariance`` (6, 6) is that of the transform's entries in the order of its rows; ``inside``
    the share of the template that lies in the image.
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
        """In one line."""
        rows = "; ".join(" ".join(f"{v:.4g}" for v in row) for row in self.transform)
        return f"Alignment([{rows}], confidence {self.confidence:.2f}, {self.reason})"


def _sigmas(radius: float) -> tuple[float, ...]:
    """The coarse σ in pixels, each 1/√2 of the one before."""
    last = max(2.0, min(radius / 11.5, 6.0))
    count = int(np.floor(2 * np.log2(SCHEDULE.given_start * radius / last) + 1e-9)) + 1
    return tuple(float(SCHEDULE.given_start * radius * 2 ** (-k / 2)) for k in range(max(count, 1)))


def _model_at(sigma: float, radius: float, turns_from: float, model: Model) -> Model:
    """The model grows along the path: a translation, a similarity, an affine map."""
    if sigma > 1.01 * turns_from * radius:
        return "translation"
    if model == "affine" and sigma > 1.01 * SCHEDULE.affine_from * radius:
        return "similarity"
    return model


def _coarse(top: Scene, model: Model, start: FloatArray, begin: float, turns_from: float) -> Path:
    """Through the coarse σ from ``begin`` R down."""
    every = _sigmas(top.radius)
    sigmas = [sigma for sigma in every if sigma <= 1.01 * begin * top.radius] or every[-1:]

    def local(transform: FloatArray, sigma: float) -> Step:
        at = top.level(sigma, _model_at(sigma, top.radius, turns_from, model))
        return registration.minimise(top, at, transform)

    return follow(sigmas, start, local)


def from_start(top: Scene, model: Model, start: FloatArray) -> Path:
    """The coarse σ from one transform."""
    plans = SCHEDULE.shift_paths if model == "translation" else SCHEDULE.paths
    return _first_low((_coarse(top, model, start, *plan) for plan in plans), SCHEDULE.low_energy)


def _first_low(paths: Iterable[Path], low: float) -> Path:
    """The first path that ends below an energy, or the one that ends lowest."""
    found = []
    for path in paths:
        found.append(path)
        if path.cost < low:
            break
    return min(found, key=lambda path: path.cost)


def from_candidates(
    top: Scene, model: Model, candidates: list[FloatArray], low: float = SCHEDULE.low_energy
) -> Path:
    """The coarse σ from the best of some transforms, or the first with an energy below ``low``."""
    turns = 0.0 if model == "translation" else SCHEDULE.candidate_start
    return _first_low(
        (_coarse(top, model, c, SCHEDULE.candidate_start, turns) for c in candidates), low
    )


def correlator(device: str) -> Correlate:
    """What compares templates with all places of an image, on a device."""
    target = devices.resolve(device)
    if target is None:
        return searching.correlate

    from caloric.alignment import search_on_device

    return search_on_device.on(target)


def searched(
    scenes: Sequence[Scene], model: Model, most: int, by: Correlate = searching.correlate
) -> list[list[FloatArray]]:
    """Candidates of the coarse density everywhere in the image, for templates of one shape."""
    if max(scenes[0].template.shape) > SCHEDULE.thin * min(scenes[0].template.shape):
        return [_by_parts(one, model, _pieces(one.template.shape), by)[:most] for one in scenes]
    turns, scales = SCHEDULE.turns, SCHEDULE.scales
    if model == "translation":
        turns, scales = 1, (1.0,)
    first, shape = scenes[0], scenes[0].template.shape
    columns = [
        searching.turned_templates(one.of_template, shape, one.feature, turns) for one in scenes
    ]
    found = searching.search(
        first.of_image, first.image.shape, columns, shape,
        turns=turns, scales=scales, most=most, by=by,
    )  # fmt: skip
    return [[candidate.transform for candidate in own] for own in found]


def _restricted(transform: FloatArray, model: Model, centre: FloatArray) -> FloatArray:
    """The nearest transform of a model that moves the template's middle alike."""
    if model == "affine":
        return transform
    A = np.eye(2)
    if model == "similarity":
        a = (transform[0, 0] + transform[1, 1]) / 2
        c = (transform[1, 0] - transform[0, 1]) / 2
        A = np.array([[a, -c], [c, a]])
    middle = transform[:, :2] @ centre + transform[:, 2]
    return np.column_stack([A, middle - A @ centre])


def _matched(of: Scene, model: Model) -> FloatArray | None:
    """The transform that matches of features agree on."""
    a, b = pipeline.extract(of.template), pipeline.extract(of.image)
    found = pipeline.match(a, b)
    p, q = a.frames.xy[found.indices[:, 0]], b.frames.xy[found.indices[:, 1]]
    matrix = geometry.estimate(p, q, model="affine", threshold=3.0).matrix
    if matrix is None or not registration.plausible(matrix):
        return None
    return _restricted(matrix, model, of.centre)


Part = tuple[int, int, int, int]  # its corner's row and column, its height and width


def _quarters(shape: tuple[int, ...]) -> list[Part]:
    h, w = shape[0] // 2, shape[1] // 2
    if min(h, w) < SCHEDULE.smallest_quarter:
        return []
    return [(y, x, h, w) for y in (0, shape[0] - h) for x in (0, shape[1] - w)]


def _pieces(shape: tuple[int, ...]) -> list[Part]:
    """Of a thin template, all along it."""
    longer, shorter = max(shape), min(shape)
    length = int(SCHEDULE.thin * shorter)
    count = min(-(-longer // length), SCHEDULE.parts)
    begins = [round(v) for v in np.linspace(0, longer - length, count)]
    if shape[0] < shape[1]:
        return [(0, at, shorter, length) for at in begins]
    return [(at, 0, length, shorter) for at in begins]


def _by_parts(top: Scene, model: Model, parts: list[Part], by: Correlate) -> list[FloatArray]:
    """Where each part of the template would put all of it, the lowest energy first."""
    found = []
    for y, x, h, w in parts:
        part = np.s_[..., y : y + h, x : x + w]
        own = fields.pyramid(np.ascontiguousarray(top.of_template.levels[0][part]))
        of = replace(top, template=top.template[part], of_template=own)
        path = from_candidates(of, model, searched([of], model, SCHEDULE.candidates, by)[0])
        transform = path.point.copy()
        transform[:, 2] -= transform[:, :2] @ (x, y)
        found.append((path.cost, transform))
    return [transform for _, transform in sorted(found, key=lambda one: one[0])]


def escalated(
    sizes: list[tuple[Pixels, Pixels]],
    top: Scene,
    model: Model,
    found: list[FloatArray],
    best: Alignment,
    by: Correlate = searching.correlate,
) -> Alignment:
    """The best of other starts too, until one is sure: for when a search's first was not enough."""
    for transform in _other_starts(top, model, found, by):
        path = fine(
            top, model, transform, (4 * SCHEDULE.fine_sigmas[0], 2 * SCHEDULE.fine_sigmas[0])
        )
        best = min(best, descend(sizes, top, model, path), key=lambda one: one.energy)
        if best.confidence >= SCHEDULE.sure:
            break
    return best


def _other_starts(
    top: Scene, model: Model, found: list[FloatArray], by: Correlate
) -> Iterator[FloatArray]:
    matched = _matched(top, model)
    if matched is not None:
        yield matched
    yield from_candidates(top, model, found, low=0.0).point
    # Of a template that is covered in the middle, the whole finds no place, but a quarter may.
    yield from _by_parts(top, model, _quarters(top.template.shape), by)


def fine(
    of: Scene, model: Model, start: FloatArray, sigmas: tuple[float, ...] = SCHEDULE.fine_sigmas
) -> Path:
    """The last σ, in pixels, down to 0."""

    def local(transform: FloatArray, sigma: float) -> Step:
        return registration.minimise(of, of.level(sigma, model, fine=True), transform)

    return follow(sigmas, start, local)


def inside(transform: FloatArray, template: tuple[int, ...], image: tuple[int, ...]) -> float:
    """The share of the template that lies in the image."""
    y, x = np.meshgrid(np.linspace(0, template[0] - 1, 33), np.linspace(0, template[1] - 1, 33))
    at = np.stack([x.ravel(), y.ravel()], 1) @ transform[:, :2].T + transform[:, 2]
    low, high = (at >= -0.5).all(1), (at <= np.array(image[::-1]) - 0.5).all(1)
    return float((low & high).mean())


def _scaled(transform: FloatArray, by: float) -> FloatArray:
    """The same transform where pixels are ``by`` times as many across."""
    result = np.array(transform, np.float64)
    result[:, 2] *= by
    return result


def octaves(template: Pixels, image: Pixels) -> list[tuple[Pixels, Pixels]]:
    """Both, and both of half the size, until the template is small enough to begin with."""
    return list(zip(smaller(template), fields.halves(image), strict=False))


def smaller(template: Pixels) -> list[Pixels]:
    """The template, and it at half its size, until it is small enough to begin with."""
    sizes = []
    for size in fields.halves(template):
        sizes.append(size)
        if (
            registration.side(size.shape) / 2 <= SCHEDULE.coarse_radius
            or min(size.shape) < 4 * SCHEDULE.smallest_template
        ):
            break
    return sizes


def is_flat(pixels: Pixels) -> bool:
    """Whether no gradient is more than noise."""
    gx, gy = fields.gradients(pixels)
    return float((gx * gx + gy * gy).max()) < fields.NOISE**2


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
    """Both in grey; a template must have 8 x 8 pixels and fit into the image."""
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
    """An error unless the value is one of a Literal's."""
    if value not in get_args(kind):
        raise unknown(what, value, get_args(kind))


@threads.single_threaded_blas
def align(
    template: ArrayLike,
    image: ArrayLike,
    *,
    model: Model = "affine",
    initial: ArrayLike | None = None,
    feature: str = "orientation",
    inverted: bool = False,
    method: Method = "continuation",
    diffusion: Diffusion = "partial",
    device: str = "cpu",
) -> Alignment:
    """Where a template is in an image, by diffusion and continuation.

    With ``initial`` (2 x 3, from template to image pixels) the path begins there and nowhere else;
    without, the whole image is searched, at all turns and at scales from 1/2 to 2, and features
    are matched where that is not enough. ``inverted`` lets bright be dark (orientations modulo π).
    ``feature`` is one of "orientation", "unsigned-orientation" (what ``inverted`` sets),
    "distribution-field" and "distribution-field-heat", which compare intensities and so need the
    same light. ``diffusion`` is "partial", in translation and in what a turn does to orientations,
    or "all": also in what turns and scales do to places (slower, and measured to be no better).
    ``device`` is where the image is searched: "cuda", "auto"; what follows is small, and done here.
    """
    small, large = checked(template, image)
    check_choice(model, Model, "model")
    check_choice(method, Method, "method")
    check_choice(diffusion, Diffusion, "diffusion")
    kind = fields.feature(feature, inverted)
    start = None
    if initial is not None:
        if method != "continuation":
            raise InputError(f"method {method!r} takes a detector's candidates, not an initial one")
        begin = _initial(initial, small, large)
        start = _restricted(begin, model, (np.array(small.shape[::-1]) - 1) / 2)
    return aligned(small, large, kind, model, start, method, diffusion, correlator(device))


def aligned(
    template: Pixels,
    image: Pixels,
    feature: Feature,
    model: Model,
    start: FloatArray | None,
    method: Method = "continuation",
    diffusion: Diffusion = "partial",
    by: Correlate = searching.correlate,
) -> Alignment:
    """:func:`align` of what has been checked."""
    flat = [name for name, v in (("template", template), ("image", image)) if is_flat(v)]
    if flat:
        where = start if start is not None else centred(template.shape, image.shape)
        unknown = np.full((6, 6), np.inf)
        return Alignment(where, np.inf, (), False, 0.0, f"the {flat[0]} is flat", unknown, 0.0)
    sizes = octaves(template, image)
    times = 2.0 ** (len(sizes) - 1)
    top = registration.scene(*sizes[-1], feature, diffusion)
    if method != "continuation":
        step = _of_detector(top, model, method)
        return _result(registration.scene_fine(template, image, feature), model, [(times, step)])
    if start is not None:
        path = from_start(top, model, _scaled(start, 1 / times))
        return descend(sizes, top, model, path)
    found = searched([top], model, SCHEDULE.candidates, by)[0]
    best = descend(sizes, top, model, from_candidates(top, model, found))
    return (
        best if best.confidence >= SCHEDULE.sure else escalated(sizes, top, model, found, best, by)
    )


def centred(template: tuple[int, ...], image: tuple[int, ...]) -> FloatArray:
    """A template of a shape upright in the middle of an image of another."""
    (h, w), (rows, columns) = template[:2], image[:2]
    return np.array([[1.0, 0, (columns - w) / 2], [0, 1.0, (rows - h) / 2]])


def descend(sizes: list[tuple[Pixels, Pixels]], top: Scene, model: Model, path: Path) -> Alignment:
    """The last σ at the size the path was found at, and at every larger one."""
    last = len(sizes) - 1
    steps = [(2.0**last, path)]
    of = top
    for octave in reversed(range(len(sizes))):
        if octave != last:
            of = registration.scene_fine(*sizes[octave], top.feature)
        before, earlier = steps[-1]
        begin = _scaled(earlier.point, before / 2.0**octave)
        steps.append((2.0**octave, fine(of, model, begin)))
    return _result(of, model, steps)


def _result(of: Scene, model: Model, paths: list[tuple[float, Path]]) -> Alignment:
    """Everything in pixels of the full size, and whether to believe it."""
    steps = tuple(
        replace(step, sigma=by * step.sigma, point=_scaled(step.point, by))
        for by, path in paths
        for step in path.steps
    )
    transform = steps[-1].point
    share = inside(transform, of.template.shape, of.image.shape)
    confidence = believing.confidence(of, transform) if share else 0.0
    reason = "converged"
    if share < SCHEDULE.inside_at_end:
        reason = f"it left the image: {share:.0%} of the template lies in it"
    elif confidence < SCHEDULE.believed:
        reason = f"no agreement: a confidence of {confidence:.2f} is below {SCHEDULE.believed}"
    elif not steps[-1].converged:
        reason = "still moving at the last step"
    return Alignment(
        transform=transform,
        energy=steps[-1].cost,
        path=steps,
        converged=reason == "converged",
        confidence=confidence,
        reason=reason,
        covariance=believing.covariance(of, model, transform),
        inside=share,
    )


def detector_candidates(template: Pixels, image: Pixels) -> list[tuple[int, int, FloatArray]]:
    """Θ: the transforms that take a frame of the template to one of the image, with their rows."""
    own, others = (
        pipeline.detect(v, max_features=n).maps
        for v, n in zip((template, image), SCHEDULE.detected, strict=True)
    )
    row = np.array([0.0, 0, 1])
    inverses = [np.linalg.inv(np.vstack([frame, row])) for frame in own]
    found = (
        (i, j, np.asarray(other @ inverse))
        for i, inverse in enumerate(inverses)
        for j, other in enumerate(others)
    )
    return [one for one in found if registration.plausible(one[2])]


def _of_detector(top: Scene, model: Model, method: Method) -> Path:
    """The middle and the right column: no σ but one, no place but a detector's."""
    candidates = detector_candidates(top.template, top.image)
    sigma = SCHEDULE.candidate_start * top.radius
    if not candidates:
        return Path((Step(sigma, centred(top.template.shape, top.image.shape), np.inf, False),))
    at = top.level(sigma, "similarity")
    if method == "single":
        energies = [registration.evaluate(top, at, c).energy for _, _, c in candidates]
    else:
        own, others = (
            np.asarray(pipeline.extract(v, "sift", max_features=n).descriptors, np.float32)
            for v, n in zip((top.template, top.image), SCHEDULE.detected, strict=True)
        )
        scores = own @ others.T
        energies = [-float(scores[i, j]) for i, j, _ in candidates]
    best = int(np.argmin(energies))
    transform = _restricted(candidates[best][2], model, top.centre)
    return Path((Step(sigma, transform, float(energies[best]), True),))
