"""Paths of Algorithm 1 from a starting point: the coarse σ, then the fine σ at every size."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from caloric.alignment import confidence, registration, scenes, search, transforms
from caloric.alignment.scenes import FineScene, Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Correlate
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature
from caloric.gpu import devices
from caloric.theory.continuation import Path, Step, follow
from caloric.types import FloatArray, Pixels, TransformModel

_SAME = 1.01  # largest ratio of two σ that count as equal
Sizes = list[tuple[Pixels, Pixels]]  # template and image at 1, 1/2, 1/4, … of their size


@dataclass(frozen=True, eq=False)
class Alignment:
    """The result of aligning a template with an image.

    Attributes
    ----------
    transform : array (2, 3)
        Map from template pixels to image pixels.
    energy : float
        The final energy.
    path : tuple of steps
        σ (``sigma``, in template pixels), transform (``point``) and energy (``cost``) of every
        step.
    converged : bool
        Whether the confidence is at least 0.5, the last step was small, and at least half of the
        template is inside the image.
    confidence : float
        The probability that the transform is correct (:mod:`caloric.alignment.confidence`).
    reason : str
        "converged", or which of these conditions failed.
    covariance : array (6, 6)
        Covariance of the entries of ``transform``, row by row.
    inside : float
        The share of the template that is inside the image.
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
        """Return a one-line summary."""
        rows = "; ".join(" ".join(f"{v:.4g}" for v in row) for row in self.transform)
        return f"Alignment([{rows}], confidence {self.confidence:.2f}, {self.reason})"


@dataclass(frozen=True)
class Device:
    """The functions that run on a device: the search, and scenes for the fine σ."""

    correlate: Correlate
    fine: Callable[[Pixels, Pixels, Feature], FineScene]


CPU = Device(search.correlate, scenes.fine_scene)


def device_of(name: str) -> Device:
    """Return the functions of a device."""
    target = devices.resolve(name)
    if target is None:
        return CPU

    from caloric.alignment import scenes_on_device, search_on_device

    return Device(search_on_device.for_device(target), scenes_on_device.for_device(target))


def octaves(template: Pixels, image: Pixels) -> list[tuple[Pixels, Pixels]]:
    """Return both images at every size, halved until the template is small enough to search for."""
    return list(zip(smaller(template), fields.halves(image), strict=False))


def smaller(template: Pixels) -> list[Pixels]:
    """Return the template at every size, halved until it is small enough to search for."""
    sizes = []
    for size in fields.halves(template):
        sizes.append(size)
        if (
            transforms.radius(size.shape) <= SCHEDULE.coarse_radius
            or min(size.shape) < SCHEDULE.min_halved
        ):
            break
    return sizes


@dataclass(frozen=True, eq=False)
class Task:
    """A template to align with an image.

    ``sizes`` has both at every size, largest first; ``top`` is the scene of the smallest size.
    """

    sizes: Sizes
    top: Scene
    model: TransformModel
    device: Device = CPU


def _sigmas(radius: float) -> tuple[float, ...]:
    """Return the coarse σ in pixels, each 1/√2 of the previous one."""
    smallest, largest = SCHEDULE.coarse_end_range
    last = max(smallest, min(radius / SCHEDULE.coarse_end, largest))
    count = int(np.floor(2 * np.log2(SCHEDULE.given_start * radius / last) + 1e-9)) + 1
    return tuple(float(SCHEDULE.given_start * radius * 2 ** (-k / 2)) for k in range(max(count, 1)))


def _model_at(
    sigma: float, radius: float, rotates_from: float, model: TransformModel
) -> TransformModel:
    """Return the model at σ: a translation first, then a similarity, then an affine map."""
    if sigma > _SAME * rotates_from * radius:
        return "translation"
    if model == "affine" and sigma > _SAME * SCHEDULE.affine_from * radius:
        return "similarity"
    return model


def _coarse(
    top: Scene, model: TransformModel, start: FloatArray, begin: float, rotates_from: float
) -> Path:
    """Return the path through the coarse σ, from ``begin`` · R downwards."""
    radius = transforms.radius(top.template.shape)
    all_sigmas = _sigmas(radius)
    sigmas = [s for s in all_sigmas if s <= _SAME * begin * radius] or all_sigmas[-1:]

    def local(transform: FloatArray, sigma: float) -> Step:
        level = top.level(sigma, _model_at(sigma, radius, rotates_from, model))
        return registration.minimize(top, level, transform)

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
    """Return the first path from a candidate that ends below ``low``, or else the lowest one."""
    rotates_from = 0.0 if model == "translation" else SCHEDULE.candidate_start
    return _first_low(
        (_coarse(top, model, c, SCHEDULE.candidate_start, rotates_from) for c in candidates), low
    )


def fine(
    scene: FineScene,
    model: TransformModel,
    start: FloatArray,
    sigmas: tuple[float, ...] = SCHEDULE.fine_sigmas,
) -> Path:
    """Return the path through the fine σ, in pixels, down to 0."""

    def local(transform: FloatArray, sigma: float) -> Step:
        return registration.minimize(scene, scene.level(sigma, model, fine=True), transform)

    return follow(sigmas, start, local)


def descend(task: Task, path: Path) -> Alignment:
    """Return the alignment after the fine σ at every size, from the smallest to the largest.

    The smallest size is registered on the CPU, the others on the device.
    """
    if task.device is CPU or len(task.sizes) == 1:
        return _descend(task, path, CPU)
    h, w = task.sizes[0][0].shape
    alignment = devices.unless_out_of_memory(
        lambda: _descend(task, path, task.device), f"a registration of {h} x {w} pixels"
    )
    return _descend(task, path, CPU) if alignment is None else alignment


def _descend(task: Task, path: Path, device: Device) -> Alignment:
    last = len(task.sizes) - 1
    steps = [(2.0**last, path)]
    scene: FineScene = task.top
    for octave in reversed(range(len(task.sizes))):
        if octave != last:
            scene = device.fine(*task.sizes[octave], task.top.feature)
        factor, previous = steps[-1]
        start = transforms.rescaled(previous.point, factor / 2.0**octave)
        steps.append((2.0**octave, fine(scene, task.model, start)))
    return result(scene, task.model, steps)


def result(scene: FineScene, model: TransformModel, paths: list[tuple[float, Path]]) -> Alignment:
    """Return the Alignment at full size, with its confidence."""
    steps = tuple(
        replace(step, sigma=factor * step.sigma, point=transforms.rescaled(step.point, factor))
        for factor, path in paths
        for step in path.steps
    )
    transform = steps[-1].point
    share = transforms.inside(transform, *scene.shapes)
    probability = confidence.confidence(scene, transform) if share else 0.0
    reason = "converged"
    if share < SCHEDULE.inside_at_end:
        reason = f"the template left the image: only {share:.0%} of it is inside"
    elif probability < SCHEDULE.reliable_confidence:
        reason = f"not found: confidence {probability:.2f} is below {SCHEDULE.reliable_confidence}"
    elif not steps[-1].converged:
        reason = "not converged: the last step was still large"
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
