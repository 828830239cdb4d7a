"""Which of some templates is in an image, and where: the paper's boxed solution, then refined.

For candidates j of the transformation and templates k, all of them::

    (j*, k*) = argmax ∫∫ h_K(β, x; f ∘ τ_j) h(β, x; p_k) dβ dx

h_K is the density diffused by any kernel K, ``h_heat`` or ``h_sift`` for example, and h(p_k) the
raw one. The paper leaves the norms open; here both densities have norm 1 in the metric of K, so
that a template fits itself by 1 and none wins by having more ink.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from caloric.alignment import align, registration
from caloric.alignment.align import Alignment
from caloric.alignment.registration import Model
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Correlate
from caloric.descriptor import density, engine, fields
from caloric.descriptor.density import Measure
from caloric.descriptor.fields import Feature, Pixels
from caloric.descriptor.layout import Grid
from caloric.descriptor.recipes import descriptor
from caloric.errors import InputError
from caloric.kernels import Kernel
from caloric.runtime import threads
from caloric.theory.gaussians import FloatArray

Octaves = list[tuple[Pixels, Pixels]]


@dataclass(frozen=True, eq=False)
class TemplateMatch:
    """``template`` k* is in the image under ``align.transform``, if ``found``.

    ``scores`` (n,) has the best score of every template before alignment, 1 for a perfect fit;
    ``others`` the alignments of the runners-up by their index, best first.
    """

    template: int
    alignment: Alignment
    scores: FloatArray
    others: dict[int, Alignment]

    @property
    def found(self) -> bool:
        """Whether the alignment can be trusted: see :class:`Alignment`."""
        return self.alignment.converged

    def __repr__(self) -> str:
        """In one line."""
        state = "found" if self.found else "not found"
        return f"TemplateMatch(template {self.template}, {state}, {self.alignment!r})"


@dataclass(frozen=True, eq=False)
class _Group:
    """Templates of one shape, at the size at which they are searched: they share the density."""

    indices: list[int]
    scenes: list[registration.Scene]
    sizes: list[Octaves]

    @property
    def shape(self) -> tuple[int, int]:
        """(h, w) of each."""
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
        own = [align.smaller(templates[i]) for i in indices]
        count = len(own[0])
        images += [next(halves) for _ in range(count - len(images))]
        sizes = [list(zip(one, images, strict=False)) for one in own]
        of = count, registration.light(own[0][-1])
        if of not in measured:
            measured[of] = fields.pyramid(feature.measure(images[count - 1], of[1]))
        scenes = [
            registration.scene_of(*levels[-1], measured[of], feature, "partial") for levels in sizes
        ]
        groups.append(_Group(indices, scenes, sizes))
    return groups


def _patch(pixels: Pixels, transform: FloatArray, shape: tuple[int, int]) -> Pixels:
    """Return the whole template, seen through a transform, as a patch of SCHEDULE.patch_side²."""
    h, w = shape
    step = np.array(
        [
            [w / SCHEDULE.patch_side, 0, (w / SCHEDULE.patch_side - 1) / 2],
            [0, h / SCHEDULE.patch_side, (h / SCHEDULE.patch_side - 1) / 2],
            [0, 0, 1],
        ]
    )
    return registration.seen(
        pixels, np.asarray(transform @ step), (SCHEDULE.patch_side, SCHEDULE.patch_side)
    )


def raw_density(seen: Measure) -> Pixels:
    """h(β, x; p) at the places and directions of :func:`scores`, (n, places x directions).

    A gradient between two directions is shared by all of them as the harmonics up to their number
    have it: with a diffused density that has no others, the sum over directions is the integral.
    """
    beta = 2 * np.pi * np.arange(SCHEDULE.directions) / SCHEDULE.directions
    turn = seen.angles[..., None] - beta
    orders = np.arange(1, (SCHEDULE.directions + 1) // 2)
    share = (1 + 2 * sum(np.cos(m * turn) for m in orders)) / SCHEDULE.directions
    result = seen.weights[..., None] * share
    return np.asarray(result.reshape(len(result), -1), np.float32)


def scores(kernel: Kernel, patches: Pixels, templates: Pixels) -> FloatArray:
    """⟨h_K(f_j), h(p_k)⟩ (j, k) of patches and templates (n, S, S), each with itself 1."""
    layout = Grid(cells=SCHEDULE.patch_side, directions=SCHEDULE.directions, average=False)

    def both(pixels: Pixels) -> tuple[Pixels, Pixels]:
        smooth = np.asarray(
            engine.describe_patches(pixels, kernel, layout=layout, normalisation="none"),
            np.float32,
        )
        raw = raw_density(density.measure(pixels, kernel))
        itself = np.einsum("ij,ij->i", smooth, raw)
        norm = np.sqrt(np.maximum(itself, 1e-12))[:, None]
        return np.asarray(smooth / norm, np.float32), np.asarray(raw / norm, np.float32)

    return np.asarray(both(patches)[0] @ both(templates)[1].T, np.float64)


@threads.single_threaded_blas
def find_template(
    image: ArrayLike,
    templates: Sequence[ArrayLike],
    *,
    kernel: str | Kernel = "heat",
    model: Model = "affine",
    feature: str = "orientation",
    inverted: bool = False,
    names: Sequence[str] | None = None,
    device: str = "cpu",
) -> TemplateMatch:
    """Which template k* appears in the image, and under which transform.

    The candidates are those of a search over places, turns and scales, for each template; the
    score over candidates and templates is that of the module, with a ``kernel`` by its name or
    from :func:`caloric.kernel`; the best few templates are aligned with ``model``, and the one
    that fits best wins. The templates need not be of one size. ``feature`` and ``inverted`` are
    those of :func:`caloric.align`, and so is ``device``; ``names`` is what errors call the
    templates by.
    """
    if len(templates) == 0:
        raise InputError("templates: there are none; give a list of images")
    if isinstance(templates, np.ndarray) and templates.ndim == 2:
        raise InputError("templates: one image; give a list of them")
    align.check_choice(model, Model, "model")
    chosen = kernel if isinstance(kernel, Kernel) else descriptor(kernel).kernel
    if chosen.feature != "orientation":
        raise InputError(f"kernel {chosen.name!r} is not of gradient orientations")
    kind = fields.feature(feature, inverted)
    called = [f"template {i}" for i in range(len(templates))] if names is None else names
    checked = []
    for index, template in enumerate(templates):
        try:
            small, large = align.checked(template, image)
        except InputError as error:
            raise InputError(f"{called[index]}: {error}") from None
        checked.append(small)
    textured = [i for i, t in enumerate(checked) if not align.is_flat(t)]
    if not textured or align.is_flat(large):
        flat = align.aligned(checked[0], large, kind, model, None)
        return TemplateMatch(0, flat, np.zeros(len(checked)), {})
    by = align.correlator(device)
    return _best(large, checked, textured, kind, chosen, model, by)


def _best(
    image: Pixels,
    templates: list[Pixels],
    textured: list[int],
    feature: Feature,
    kernel: Kernel,
    model: Model,
    by: Correlate,
) -> TemplateMatch:
    groups = _groups(image, [templates[i] for i in textured], feature)
    where: dict[int, tuple[registration.Scene, Octaves, list[FloatArray]]] = {}
    best = np.zeros(len(templates))
    for group in groups:
        found = align.searched(group.scenes, model, SCHEDULE.template_candidates, by)
        every = [one for own in found for one in own]
        patches = np.stack([_patch(group.scenes[0].image, one, group.shape) for one in every])
        identity = np.hstack([np.eye(2), np.zeros((2, 1))])
        raw = np.stack([_patch(s.template, identity, group.shape) for s in group.scenes])
        table = scores(kernel, patches, raw)
        if feature is fields.FEATURES["unsigned-orientation"]:
            table = np.maximum(table, scores(kernel, 1 - patches, raw))
        for k, scene in enumerate(group.scenes):
            order = np.argsort(-table[:, k])[: SCHEDULE.template_candidates]
            index = textured[group.indices[k]]
            best[index] = table[order[0], k]
            where[index] = scene, group.sizes[k], [every[j] for j in order]
    finalists = sorted(where, key=lambda i: -best[i])[: SCHEDULE.aligned_templates]
    aligned = {}
    for index in finalists:
        scene, sizes, starts = where[index]
        path = align.from_candidates(scene, model, starts)
        aligned[index] = align.descend(sizes, scene, model, path)
    ranked = _ranked(aligned)
    if not aligned[ranked[0]].converged:
        for index in ranked[: SCHEDULE.escalated_templates]:
            scene, sizes, starts = where[index]
            aligned[index] = align.escalated(sizes, scene, model, starts, aligned[index], by)
        ranked = _ranked(aligned)
    others = {i: aligned[i] for i in ranked[1:]}
    return TemplateMatch(ranked[0], aligned[ranked[0]], best, others)


def _ranked(aligned: dict[int, Alignment]) -> list[int]:
    """Those that are believed first, by their energy."""
    return sorted(aligned, key=lambda i: (not aligned[i].converged, aligned[i].energy))
