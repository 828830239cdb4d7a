"""Find which of several templates is in an image, by the paper's boxed solution and alignment.

The best pair of a candidate transform j and a template k is::

    (j*, k*) = argmax ∫∫ h_K(β, x; f ∘ τ_j) h(β, x; p_k) dβ dx

h_K is the density diffused by any kernel K, for example ``h_heat`` or ``h_sift``, and h(p_k) is the
raw density. The paper does not specify the norms. Here both densities have norm 1 in the metric of
K, so that a template scores 1 with itself and strong gradients give no advantage. The best
templates are then aligned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from caloric.alignment import align, paths, scenes, starts
from caloric.alignment.align import Alignment, Options
from caloric.alignment.paths import Sizes, Task
from caloric.alignment.scenes import Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import density, engine, fields
from caloric.descriptor.density import Measure
from caloric.descriptor.fields import Feature
from caloric.descriptor.layout import Grid
from caloric.descriptor.recipes import descriptor
from caloric.errors import InputError, known_options
from caloric.image import inputs
from caloric.kernels import Kernel
from caloric.runtime import threads
from caloric.types import FloatArray, ImageLike, Pixels, TransformModel


@dataclass(frozen=True, eq=False)
class TemplateMatch:
    """The result of :func:`find_template`.

    Attributes
    ----------
    template : int
        The index of the best template.
    alignment : Alignment
        The alignment of the best template.
    scores : array (n,)
        The best score of each template before alignment; 1 is a perfect fit.
    others : dict of int to Alignment
        The alignments of the other templates that were aligned, by index, best first.
    unusable : dict of int to str
        Reasons why templates were not searched for, by index; for example, they are too large.
    """

    template: int
    alignment: Alignment
    scores: FloatArray
    others: dict[int, Alignment]
    unusable: dict[int, str] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Whether the best template is in the image, that is, its alignment converged."""
        return self.alignment.converged

    @property
    def all_found(self) -> dict[int, Alignment]:
        """The alignments of all templates that were found, by index, best first."""
        alignments = {self.template: self.alignment, **self.others}
        return {index: result for index, result in alignments.items() if result.converged}

    def __repr__(self) -> str:
        """Return a one-line summary."""
        state = "found" if self.found else "not found"
        return f"TemplateMatch(template {self.template}, {state}, {self.alignment!r})"


@dataclass(frozen=True, eq=False)
class _Group:
    """Templates of the same shape, which share the fields of the image in the search."""

    indices: list[int]
    scenes: list[Scene]
    sizes: list[Sizes]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (h, w) of the templates at the size at which they are searched for."""
        h, w = self.scenes[0].template.shape
        return h, w


def _groups(image: Pixels, templates: list[Pixels], feature: Feature) -> list[_Group]:
    shapes: dict[tuple[int, ...], list[int]] = {}
    for index, template in enumerate(templates):
        shapes.setdefault(template.shape, []).append(index)
    groups = []
    halves = fields.halves(image)
    images: list[Pixels] = []
    measured: dict[tuple[int, float], fields.Pyramid] = {}
    for indices in shapes.values():
        smaller = [paths.smaller(templates[i]) for i in indices]
        count = len(smaller[0])
        images += [next(halves) for _ in range(count - len(images))]
        sizes = [list(zip(levels, images, strict=False)) for levels in smaller]
        key = count, scenes.illumination_width(smaller[0][-1].shape)
        if key not in measured:
            measured[key] = fields.pyramid(feature.measure(images[count - 1], key[1]))
        tops = [scenes.scene_with_fields(*levels[-1], measured[key], feature) for levels in sizes]
        groups.append(_Group(indices, tops, sizes))
    return groups


def _patch(pixels: Pixels, transform: FloatArray, shape: tuple[int, int]) -> Pixels:
    """Return the part of the image that a template covers, resampled to a square patch."""
    side = SCHEDULE.patch_side
    x, y = shape[1] / side, shape[0] / side
    step = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]])
    return scenes.warped(pixels, np.asarray(transform @ step), (side, side))


def raw_density(measure: Measure) -> Pixels:
    """Return h(β, x; p) (n, positions x directions) on the grid of :func:`scores`.

    Each gradient is distributed over the directions by its truncated harmonic series. The sum over
    directions then equals the integral with any diffused density that has no higher harmonics.
    """
    beta = 2 * np.pi * np.arange(SCHEDULE.directions) / SCHEDULE.directions
    difference = measure.angles[..., None] - beta
    orders = np.arange(1, (SCHEDULE.directions + 1) // 2)
    share = (1 + 2 * sum(np.cos(m * difference) for m in orders)) / SCHEDULE.directions
    result = measure.weights[..., None] * share
    return np.asarray(result.reshape(len(result), -1), np.float32)


def scores(kernel: Kernel, patches: Pixels, templates: Pixels) -> FloatArray:
    """Return the normalized ⟨h_K(f_j), h(p_k)⟩ (j, k) of patches and templates (n, S, S)."""
    layout = Grid(cells=SCHEDULE.patch_side, directions=SCHEDULE.directions, average=False)

    def densities(pixels: Pixels) -> tuple[Pixels, Pixels]:
        smooth = np.asarray(
            engine.describe_patches(pixels, kernel, layout=layout, normalisation="none"),
            np.float32,
        )
        raw = raw_density(density.measure(pixels, kernel))
        square = np.einsum("ij,ij->i", smooth, raw)
        norm = np.sqrt(np.maximum(square, 1e-12))[:, None]
        return np.asarray(smooth / norm, np.float32), np.asarray(raw / norm, np.float32)

    return np.asarray(densities(patches)[0] @ densities(templates)[1].T, np.float64)


@known_options
@threads.single_threaded_blas
def find_template(
    image: ImageLike,
    templates: Sequence[ImageLike],
    *,
    kernel: str | Kernel = "heat",
    model: TransformModel = "affine",
    feature: str = "orientation",
    inverted: bool = False,
    names: Sequence[str] | None = None,
    device: str = "cpu",
) -> TemplateMatch:
    """Find which of several templates appear in an image, and align them.

    The image is searched for each template at all positions and rotations and at scales from 1/2 to
    2. The eight templates with the best scores are aligned, and more until one is not found.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        See :func:`caloric.read_image`.
    templates : sequence of n images
        Images of any size from 8 x 8 pixels to the size of ``image``; others are skipped.
    kernel : str or Kernel
        The kernel of the scores: a name, or the result of :func:`caloric.kernel`.
    model : "affine", "similarity" or "translation"
        The class of transforms.
    feature, inverted
        As in :func:`caloric.align`.
    names : sequence of n str, optional
        Names of the templates for error messages.
    device : str
        Device for the search: "cpu", "cuda", "cuda:1" or "auto".

    Returns
    -------
    TemplateMatch
        The index ``template`` of the best template, its ``alignment``, whether it was ``found``,
        the ``scores`` (n,) of all templates, and ``all_found``, the alignments of all that were
        found.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((160, 200))
    >>> match = caloric.find_template(image, [image[60:, 120:].T, image[40:100, 50:130]])
    >>> match.template, match.found
    (1, True)
    """
    is_single = inputs.is_encoded(templates) or getattr(templates, "ndim", 3) == 2
    if is_single:
        raise InputError("templates: got a single image; expected a list of images")
    if len(templates) == 0:
        raise InputError("templates: the list is empty; expected at least one image")
    align.check_choice(model, TransformModel, "model")
    chosen = kernel if isinstance(kernel, Kernel) else descriptor(kernel).kernel
    if chosen.feature != "orientation":
        raise InputError(f"kernel {chosen.name!r} is not a kernel of gradient orientations")
    kind = fields.feature(feature, inverted)
    if names is None:
        names = [inputs.label(t, f"template {i}") for i, t in enumerate(templates)]
    pixels = inputs.gray(image)
    checked: dict[int, Pixels] = {}
    unusable: dict[int, str] = {}
    for index, template in enumerate(templates):
        try:
            checked[index], large = align.checked(template, pixels)
        except InputError as error:
            unusable[index] = str(error)
    if not checked:
        first = min(unusable)
        raise inputs.named(unusable[first], names[first])
    textured = {i: t for i, t in checked.items() if not align.is_flat(t)}
    if textured:
        flat = checked.keys() - textured.keys()
        unusable |= dict.fromkeys(flat, "the template is flat")
    scores = np.zeros(len(templates))
    options = Options(kind, model, device=paths.device_of(device))
    if not textured or align.is_flat(large):
        first = min(checked)
        return TemplateMatch(
            first, align.aligned(checked[first], large, options), scores, {}, unusable
        )
    result = _best(large, textured, chosen, options)
    scores[list(textured)] = result.scores
    return replace(result, scores=scores, unusable=unusable)


def _best(
    image: Pixels, templates: dict[int, Pixels], kernel: Kernel, options: Options
) -> TemplateMatch:
    """Return the result for textured templates, given by index; ``scores`` covers only these."""
    names, model = list(templates), options.model
    groups = _groups(image, list(templates.values()), options.feature)
    tasks: dict[int, tuple[Task, list[FloatArray]]] = {}
    best: dict[int, float] = {}
    for group in groups:
        by_template = starts.searched(
            group.scenes, model, SCHEDULE.template_candidates, options.device
        )
        transforms = [transform for candidates in by_template for transform in candidates]
        patches = np.stack(
            [_patch(group.scenes[0].image, transform, group.shape) for transform in transforms]
        )
        identity = np.hstack([np.eye(2), np.zeros((2, 1))])
        raw = np.stack([_patch(s.template, identity, group.shape) for s in group.scenes])
        table = scores(kernel, patches, raw)
        if options.feature is fields.FEATURES["unsigned-orientation"]:
            table = np.maximum(table, scores(kernel, 1 - patches, raw))
        for k, scene in enumerate(group.scenes):
            order = np.argsort(-table[:, k])[: SCHEDULE.template_candidates]
            index = names[group.indices[k]]
            best[index] = float(table[order[0], k])
            task = Task(group.sizes[k], scene, model, options.device)
            tasks[index] = task, [transforms[j] for j in order]
    aligned: dict[int, Alignment] = {}
    last_converged = True
    for index in sorted(tasks, key=lambda i: -best[i]):
        if len(aligned) >= SCHEDULE.aligned_templates and not last_converged:
            break
        task, candidates = tasks[index]
        path = paths.from_candidates(task.top, model, candidates)
        aligned[index] = paths.descend(task, path)
        last_converged = aligned[index].converged
    ranked = _ranked(aligned)
    if aligned[ranked[0]].confidence < SCHEDULE.high_confidence:
        # The best alignment may be at an incorrect position even if it converged. The second best
        # is tried only if none converged.
        count = 1 if aligned[ranked[0]].converged else SCHEDULE.escalated_templates
        for index in ranked[:count]:
            aligned[index] = align.escalated(*tasks[index], aligned[index])
        ranked = _ranked(aligned)
    others = {i: aligned[i] for i in ranked[1:]}
    best_scores = np.array([best[i] for i in names])
    return TemplateMatch(ranked[0], aligned[ranked[0]], best_scores, others)


def _ranked(aligned: dict[int, Alignment]) -> list[int]:
    """Return the indices ordered by energy, converged alignments first."""
    return sorted(aligned, key=lambda i: (not aligned[i].converged, aligned[i].energy))
