"""Align a template with an image by Algorithm 1: repeated warping at decreasing σ.

The three columns of the paper's table are three values of ``method``:

* ``"continuation"``: σ₀ > σ₁ > … > 0, each minimum is the start of the next (the default)
* ``"single"``: a single σ; the candidate of a detector (Θ) with the lowest diffused energy
* ``"descriptor"``: the same with h_SIFT around each candidate, as SIFT matching does
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from caloric.alignment import paths, scenes, starts, transforms
from caloric.alignment.diffusion import Diffusion
from caloric.alignment.paths import CPU, Alignment, Device, Task
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature
from caloric.errors import InputError, known_options, unknown
from caloric.image import inputs
from caloric.runtime import progress, threads
from caloric.types import FloatArray, ImageLike, Pixels, TransformModel

__all__ = ["Alignment", "Diffusion", "Method", "align"]

Method = Literal["continuation", "single", "descriptor"]


@dataclass(frozen=True)
class Options:
    """The validated options of :func:`align`."""

    feature: Feature
    model: TransformModel
    method: Method = "continuation"
    diffusion: Diffusion = "partial"
    device: Device = CPU


_ROWS = 64  # per block
_REACH = 5  # rows above and below that a gradient depends on


def is_flat(pixels: Pixels) -> bool:
    """Return whether all gradients are below the noise level."""
    for top in range(0, len(pixels), _ROWS):  # the first rows usually decide
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
        raise InputError("initial must be a 2 x 3 array of numbers") from None
    if start.shape == (3, 3) and np.allclose(start[2], [0, 0, 1]):
        start = start[:2]
    if start.shape != (2, 3) or not np.isfinite(start).all():
        raise InputError("initial must be a finite 2 x 3 transform from template to image pixels")
    if not transforms.plausible(start):
        raise InputError(
            "initial must not mirror the template or scale it by more than 10 or less than 0.1"
        )
    share = transforms.inside(start, template.shape, image.shape)
    if share < SCHEDULE.inside_at_start:
        raise InputError(
            f"initial puts only {share:.0%} of the template inside the image; at least "
            f"{SCHEDULE.inside_at_start:.0%} is needed"
        )
    return start


def checked(template: ImageLike, image: ImageLike) -> tuple[Pixels, Pixels]:
    """Return both images in grayscale; the template must be large enough and fit into the image."""
    try:
        small = inputs.gray(template)
    except InputError as error:
        raise InputError(str(error).replace("image:", "template:", 1)) from None
    large = inputs.gray(image)
    if min(small.shape) < SCHEDULE.min_template:
        raise InputError(
            f"template: {small.shape[0]} x {small.shape[1]} pixels; at least "
            f"{SCHEDULE.min_template} x {SCHEDULE.min_template} are needed"
        )
    if small.shape[0] > large.shape[0] or small.shape[1] > large.shape[1]:
        raise InputError(
            f"template: {small.shape[0]} x {small.shape[1]} pixels do not fit into an image of "
            f"{large.shape[0]} x {large.shape[1]}; crop the template, or swap the two and invert "
            "the transform"
        )
    return small, large


def check_choice(value: str, kind: object, what: str) -> None:
    """Raise InputError unless the value is one of those of a Literal type."""
    if value not in get_args(kind):
        raise unknown(what, value, get_args(kind))


@known_options
@threads.single_threaded_blas
def align(
    template: ImageLike,
    image: ImageLike,
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
    template, image : array, PIL image, path, bytes, file object or tensor
        See :func:`caloric.read_image`. The template must have at
        least 8 x 8 pixels and fit into the image.
    model : "affine", "similarity" or "translation"
        The class of transforms.
    initial : array (2, 3), optional
        Starting point: a transform from template to image pixels. By default the whole image is
        searched at all rotations and at scales from 1/2 to 2; if the result is uncertain, features
        are matched too.
    feature : str
        "orientation", "unsigned-orientation" (selected by ``inverted``), "distribution-field" or
        "distribution-field-heat". The last two compare intensities and need constant illumination.
    inverted : bool
        Allow inverted contrast: orientations are compared modulo π.
    method : "continuation", "single" or "descriptor"
        Follow the minimum at decreasing σ, or choose among the candidates of a detector by energy
        or by SIFT descriptors.
    diffusion : "partial" or "all"
        "partial" diffuses over translations and over the effect of rotations on orientations. "all"
        also diffuses over the effect of rotations and scales on positions; it is slower and not
        more accurate in our benchmark.
    device : str
        Device for the search, and for registering templates above 192 pixels: "cpu", "cuda",
        "cuda:1" or "auto".

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
    options = Options(kind, model, method, diffusion, paths.device_of(device))
    start = None
    if initial is not None:
        if method != "continuation":
            raise InputError(f"method {method!r} uses a detector's candidates; omit initial")
        given = _initial(initial, small, large)
        start = transforms.restricted(given, model, transforms.center(small.shape))
    return aligned(small, large, options, start)


def aligned(
    template: Pixels, image: Pixels, options: Options, start: FloatArray | None = None
) -> Alignment:
    """Return the result of :func:`align` for grayscale images."""
    flat = [name for name, v in (("template", template), ("image", image)) if is_flat(v)]
    if flat:
        transform = transforms.centered(template.shape, image.shape) if start is None else start
        covariance = np.full((6, 6), np.inf)
        reason = f"the {flat[0]} is flat"
        return Alignment(transform, np.inf, (), False, 0.0, reason, covariance, 0.0)
    feature, model = options.feature, options.model
    sizes = paths.octaves(template, image)
    factor = 2.0 ** (len(sizes) - 1)
    top = scenes.scene(*sizes[-1], feature, options.diffusion)
    if options.method != "continuation":
        path = starts.from_detector(top, model, options.method)
        return paths.result(scenes.fine_scene(template, image, feature), model, [(factor, path)])
    task = Task(sizes, top, model, options.device)
    if start is not None:
        path = paths.from_start(top, model, transforms.rescaled(start, 1 / factor))
        return paths.descend(task, path)
    progress.report("searching the whole image")
    candidates = starts.searched([top], model, SCHEDULE.candidates, options.device)[0]
    progress.report("refining the position")
    best = paths.descend(task, paths.from_candidates(top, model, candidates))
    return (
        best if best.confidence >= SCHEDULE.high_confidence else escalated(task, candidates, best)
    )


def escalated(task: Task, candidates: list[FloatArray], best: Alignment) -> Alignment:
    """Return the best alignment from other starting points, tried until the confidence is high."""
    progress.report("trying other starting points")
    for transform in starts.other_starts(task, candidates):
        path = paths.fine(task.top, task.model, transform, SCHEDULE.further_sigmas)
        best = min(best, paths.descend(task, path), key=lambda result: result.energy)
        if best.confidence >= SCHEDULE.high_confidence:
            break
    return best
