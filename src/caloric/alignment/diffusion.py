"""The diffusion of fields at a coarse σ."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.transforms import radius
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature
from caloric.theory import field_diffusion
from caloric.types import Pixels, TransformModel

Diffusion = Literal["partial", "all"]


@dataclass(frozen=True)
class Diffuser:
    """The diffusion of the fields of a feature, for a template of some radius in pixels."""

    feature: Feature
    radius: float
    over: Diffusion = "partial"

    def apply(
        self, values: Pixels, model: TransformModel, sigma: float, have: float, spacing: int
    ) -> Pixels:
        """Return the fields (c, h, w) diffused to σ pixels; they are already blurred by ``have``.

        Translation is diffused exactly, by k_σ. Unless the model is a translation, rotation is
        diffused by Lemma 1: e^{−m²σr²/2} on the dot product, hence half of that exponent here. With
        "all" the effect of rotation and log-scale on positions is diffused too, with
        σr = σs = σ/R.
        """
        if model != "translation" and self.feature.widens:
            return widened(values, sigma / spacing, have / spacing)
        result = fields.blurred(values, fields.missing(sigma, have) / spacing)
        orders = self.feature.orders
        if model == "translation":
            return result
        if self.over == "all":
            channels = fields.channels(self.feature.harmonics)
            return field_diffusion.diffuse(result, channels, sigma / self.radius / np.sqrt(2))
        if orders.any():
            exponent = (orders * SCHEDULE.rotation_diffusion * sigma / self.radius) ** 2 / 4
            result = result * np.exp(-exponent)[:, None, None]
        return result


@lru_cache(maxsize=64)
def _variances(size: tuple[int, int]) -> Pixels:
    """Return |x|²/R² over a grid (h, w), by which affine diffusion exceeds σ², relative to σ²."""
    h, w = size
    y, x = np.mgrid[:h, :w].astype(np.float32)
    x, y = x - (w - 1) / 2, y - (h - 1) / 2
    return np.asarray((x * x + y * y) / radius(size) ** 2, np.float32)


def widened(values: Pixels, sigma: float, have: float) -> Pixels:
    """Return the fields with variance σ²(1 + |x|²/R²) at x: the affine diffusion of scalar fields.

    This is the closed form, because A x + b is normal with this variance. It is interpolated
    between a few blurs, linearly in the variance, in which Gaussians change slowly.
    """
    wider = _variances((values.shape[1], values.shape[2]))
    top = float(wider.max())
    result = np.zeros_like(values)
    for extra in np.linspace(0, top, SCHEDULE.blended):
        share = np.maximum(0, 1 - np.abs(wider - extra) * (SCHEDULE.blended - 1) / top)
        rest = fields.missing(sigma * float(np.sqrt(1 + extra)), have)
        result += share * fields.blurred(values, rest)
    return result
