"""Scenes: a template and an image at one size, and the energies of transforms between them.

At the fine σ the image is warped and its fields are measured, on the CPU or on a device. At coarse
σ the fields of the image are warped, rotated and diffused, on the CPU.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from caloric.alignment import energy, transforms
from caloric.alignment.diffusion import Diffuser, Diffusion
from caloric.alignment.energy import Evaluation, Grid, Level
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.transforms import Shape, radius, side
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Filters, Pyramid
from caloric.types import ArrayOrTensor, FloatArray, Pixels, TransformModel


@dataclass(frozen=True, eq=False)
class FineScene:
    """The fields (c, h, w) of a template and an image (h, w) on some device, for the fine σ."""

    template_fields: ArrayOrTensor
    image: ArrayOrTensor
    feature: Feature
    _levels: dict[tuple[float, TransformModel, bool], Level] = field(
        init=False, default_factory=dict
    )

    @property
    def filters(self) -> Filters:
        """The filters of the device."""
        return fields.CPU

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """(h, w) of the template and of the image."""
        return tuple(self.template_fields.shape[1:]), tuple(self.image.shape)

    def level(self, sigma: float, model: TransformModel, *, fine: bool = False) -> Level:
        """Return the template at σ, cached; ``fine`` selects the fine grid."""
        key = (sigma, model, fine)
        if key not in self._levels:
            with self._working():
                self._levels[key] = self._level(sigma, model, fine)
        return self._levels[key]

    def _level(self, sigma: float, model: TransformModel, fine: bool) -> Level:
        values, spacing = self._template(sigma, model, fine)
        h, w = values.shape[1:]
        grid, template = Grid(sigma, model, (h, w), spacing, fine), self.shapes[0]
        gradient = self.filters.differences(values, 0.5 * radius(template) / spacing)
        x, y = (
            ((np.arange(0, n, grid.stride) * spacing - center) / radius(template)).astype("float32")
            for n, center in zip((w, h), transforms.center(template), strict=True)
        )
        xy = self._to_device(x[None, None, :]), self._to_device(y[None, :, None])
        dx, dy = (grid.samples(v) for v in gradient)
        return energy.level(grid, grid.samples(values), (dx, dy), xy, self.feature.harmonics)

    def _working(self) -> AbstractContextManager[None]:
        """Return the context in which the device computes."""
        return nullcontext()

    def _to_device(self, values: Any) -> ArrayOrTensor:
        """Return an array copied to the device."""
        return values

    def _template(
        self, sigma: float, model: TransformModel, fine: bool
    ) -> tuple[ArrayOrTensor, int]:
        """Return the fields of the template at σ, and their spacing."""
        return self.filters.blurred(self.template_fields, sigma), 1

    def evaluate(self, level: Level, transform: FloatArray) -> Evaluation:
        """Return the energy of a transform, with its gain and weights."""
        grid, outside = level.grid, None
        if grid.fine:
            outside = transforms.outside(grid.size, grid.stride, self.shapes[1], transform)
        with self._working():
            values = grid.samples(self._warped(grid, transform))
            mask = None if outside is None else self._to_device(outside)
            return energy.evaluate(level, values.reshape(len(values), -1), mask)

    def _warped(self, grid: Grid, transform: FloatArray) -> ArrayOrTensor:
        """Return the fields (c, h, w) of the warped image at σ."""
        pixels = self._warped_image(transform, grid.size)
        width = illumination_width(self.shapes[0])
        return self.filters.blurred(self.feature.measure(pixels, width, self.filters), grid.sigma)

    def _warped_image(self, transform: FloatArray, size: tuple[int, int]) -> ArrayOrTensor:
        """Return the image warped to the template (h, w)."""
        return warped(self.image, transform, size)

    def cosines(self, evaluation: Evaluation, width: float) -> float:
        """Return :meth:`~caloric.alignment.energy.Evaluation.cosines`."""
        with self._working():
            return evaluation.cosines(width, self.filters.gaussian)

    def noise(self, evaluation: Evaluation) -> float:
        """Return :meth:`~caloric.alignment.energy.Evaluation.noise`."""
        with self._working():
            return evaluation.noise()


@dataclass(frozen=True, eq=False)
class Scene(FineScene):
    """A template and an image (h, w) with pyramids of their fields, for every σ."""

    template: Pixels = field(kw_only=True)
    diffusion: Diffusion = field(kw_only=True)
    template_pyramid: Pyramid = field(kw_only=True)
    image_pyramid: Pyramid = field(kw_only=True)

    @property
    def _diffuser(self) -> Diffuser:
        return Diffuser(self.feature, radius(self.template.shape), self.diffusion)

    def _template(self, sigma: float, model: TransformModel, fine: bool) -> tuple[Pixels, int]:
        if fine:
            return super()._template(sigma, model, fine)
        target = sigma / SCHEDULE.min_samples_per_sigma
        values, spacing, current = self.template_pyramid.level(target)
        return self._diffuser.apply(values, model, sigma, current, spacing), spacing

    def _warped(self, grid: Grid, transform: FloatArray) -> ArrayOrTensor:
        if grid.fine:
            return super()._warped(grid, transform)
        scale = transforms.scale(transform)
        values, spacing, current = self.image_pyramid.level(grid.spacing * scale)
        step = np.diag([grid.spacing, grid.spacing, 1.0])
        values = fields.sampled(values, transform @ step / spacing, grid.size)
        fields.rotated(values, self.feature.harmonics, transforms.angle(transform))
        return self._diffuser.apply(values, grid.model, grid.sigma, current / scale, grid.spacing)


def illumination_width(template: Shape) -> float:
    """Return the width in pixels over which illumination is assumed constant, about R/4.

    It is rounded to a power of √2, so that templates of similar size share the image's fields.
    """
    width = max(side(template) * SCHEDULE.illumination_width, SCHEDULE.min_illumination_width)
    return float(2 ** (round(2 * np.log2(width)) / 2))


def _measured(template: Pixels, feature: Feature) -> Pixels:
    return np.asarray(feature.measure(template, illumination_width(template.shape)))


def fine_scene(template: Pixels, image: Pixels, feature: Feature) -> FineScene:
    """Return a scene for the fine σ only."""
    return FineScene(_measured(template, feature), image, feature)


def scene(
    template: Pixels, image: Pixels, feature: Feature, diffusion: Diffusion = "partial"
) -> Scene:
    """Return a scene for every σ; its fields are measured here."""
    width = illumination_width(template.shape)
    pyramid = fields.pyramid(feature.measure(image, width))
    return scene_with_fields(template, image, pyramid, feature, diffusion)


def scene_with_fields(
    template: Pixels,
    image: Pixels,
    image_pyramid: Pyramid,
    feature: Feature,
    diffusion: Diffusion = "partial",
) -> Scene:
    """Return a scene whose image fields are given, so that several templates can share them."""
    measured = _measured(template, feature)
    return Scene(
        measured, image, feature, template=template, diffusion=diffusion,
        template_pyramid=fields.pyramid(measured), image_pyramid=image_pyramid,
    )  # fmt: skip


def antialiasing(scale: float) -> float:
    """Return the width of the blur to apply before an image is reduced by ``scale``, or 0."""
    return 0.5 * float(np.sqrt(scale**2 - 1)) if scale > SCHEDULE.antialiased_scale else 0.0


def warped(image: Pixels, transform: FloatArray, size: tuple[int, int]) -> Pixels:
    """Return the image warped to the template, (h, w) = ``size``."""
    blur = antialiasing(transforms.scale(transform))
    image, transform = transforms.covered(image, transform, size)
    if blur:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), blur))
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    return np.asarray(
        cv2.warpAffine(image, transform, size[::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
    )
