"""Starting points of the paths of Algorithm 1, if none is given."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from caloric import pipeline
from caloric.alignment import paths, search, transforms
from caloric.alignment.paths import CPU, Device, Task
from caloric.alignment.scenes import Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Search
from caloric.descriptor import fields
from caloric.matching import geometry
from caloric.theory.continuation import Path, Step
from caloric.types import FloatArray, Pixels, TransformModel


def searched(
    scenes: Sequence[Scene], model: TransformModel, count: int, device: Device = CPU
) -> list[list[FloatArray]]:
    """Return up to ``count`` candidate transforms per scene; all templates have the same shape."""
    first, shape = scenes[0], scenes[0].template.shape
    if max(shape) > SCHEDULE.max_aspect_ratio * min(shape):
        return [_by_parts(scene, model, _pieces(shape), device)[:count] for scene in scenes]
    options = Search(SCHEDULE.rotations, SCHEDULE.scales, count, device.correlate)
    if model == "translation":
        options = replace(options, rotations=1, scales=(1.0,))
    columns = [
        search.rotated_templates(scene.template_pyramid, shape, scene.feature, options.rotations)
        for scene in scenes
    ]
    results = search.search(first.image_pyramid, first.image.shape, columns, shape, options)
    return [[candidate.transform for candidate in candidates] for candidates in results]


def other_starts(task: Task, candidates: list[FloatArray]) -> Iterator[FloatArray]:
    """Yield other starting points: from features, the best candidate, and template parts."""
    matched = from_features(task.top, task.model)
    if matched is not None:
        yield matched
    yield paths.from_candidates(task.top, task.model, candidates, low=0.0).point
    # If the center of the template is occluded, a quarter may match although the whole does not.
    yield from _by_parts(task.top, task.model, _quarters(task.top.template.shape), task.device)


def from_features(scene: Scene, model: TransformModel) -> FloatArray | None:
    """Return the transform estimated from matched features, or None."""
    a, b = pipeline.extract_many([scene.template, scene.image], max_features=None)
    matches = pipeline.match(a, b)
    p, q = a.frames.xy[matches.indices[:, 0]], b.frames.xy[matches.indices[:, 1]]
    estimate = geometry.estimate(p, q, model="affine", threshold=SCHEDULE.match_threshold)
    if estimate.matrix is None or not transforms.plausible(estimate.matrix):
        return None
    return transforms.restricted(estimate.matrix, model, transforms.center(scene.template.shape))


Part = tuple[int, int, int, int]  # row and column of the corner, height, width


def _quarters(shape: tuple[int, ...]) -> list[Part]:
    h, w = shape[0] // 2, shape[1] // 2
    if min(h, w) < SCHEDULE.min_quarter:
        return []
    return [(y, x, h, w) for y in (0, shape[0] - h) for x in (0, shape[1] - w)]


def _pieces(shape: tuple[int, ...]) -> list[Part]:
    """Return evenly spaced parts along the longer side of a thin template."""
    longer, shorter = max(shape), min(shape)
    length = int(SCHEDULE.max_aspect_ratio * shorter)
    count = min(-(-longer // length), SCHEDULE.max_parts)
    offsets = [round(v) for v in np.linspace(0, longer - length, count)]
    if shape[0] < shape[1]:
        return [(0, offset, shorter, length) for offset in offsets]
    return [(offset, 0, length, shorter) for offset in offsets]


def _by_parts(
    top: Scene, model: TransformModel, parts: list[Part], device: Device
) -> list[FloatArray]:
    """Return the transform of the template estimated from each part, the lowest energy first."""
    results = []
    for y, x, h, w in parts:
        part = np.s_[..., y : y + h, x : x + w]
        measured = np.ascontiguousarray(top.template_fields[part])
        scene = replace(
            top, template=top.template[part], template_fields=measured,
            template_pyramid=fields.pyramid(measured),
        )  # fmt: skip
        candidates = searched([scene], model, SCHEDULE.candidates, device)[0]
        path = paths.from_candidates(scene, model, candidates)
        transform = path.point.copy()
        transform[:, 2] -= transform[:, :2] @ (x, y)
        results.append((path.cost, transform))
    return [transform for _, transform in sorted(results, key=lambda result: result[0])]


def detector_candidates(template: Pixels, image: Pixels) -> list[tuple[int, int, FloatArray]]:
    """Return Θ: (i, j, transform), where the transform maps template frame i to image frame j."""
    template_maps, image_maps = (
        pipeline.detect(v, max_features=n).maps
        for v, n in zip((template, image), SCHEDULE.detector_frames, strict=True)
    )
    row = np.array([0.0, 0, 1])
    inverses = [np.linalg.inv(np.vstack([frame, row])) for frame in template_maps]
    candidates = (
        (i, j, np.asarray(frame @ inverse))
        for i, inverse in enumerate(inverses)
        for j, frame in enumerate(image_maps)
    )
    return [candidate for candidate in candidates if transforms.plausible(candidate[2])]


def from_detector(
    top: Scene, model: TransformModel, method: Literal["single", "descriptor"]
) -> Path:
    """Return the best candidate of a detector at a single σ, by energy or by SIFT descriptors."""
    candidates = detector_candidates(top.template, top.image)
    template = top.template.shape
    sigma = SCHEDULE.candidate_start * transforms.radius(template)
    if not candidates:
        start = transforms.centered(template, top.image.shape)
        return Path((Step(sigma, start, np.inf, False),))
    level = top.level(sigma, "similarity")
    if method == "single":
        energies = [top.evaluate(level, c).energy for _, _, c in candidates]
    else:
        template_descriptors, image_descriptors = (
            np.asarray(pipeline.extract(v, "sift", max_features=n).descriptors, np.float32)
            for v, n in zip((top.template, top.image), SCHEDULE.detector_frames, strict=True)
        )
        scores = template_descriptors @ image_descriptors.T
        energies = [-float(scores[i, j]) for i, j, _ in candidates]
    best = int(np.argmin(energies))
    transform = transforms.restricted(candidates[best][2], model, transforms.center(template))
    return Path((Step(sigma, transform, float(energies[best]), True),))
