"""Diffusion of fields at a coarse σ."""

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
    """Diffuses the fields of a feature, for a template of the given radius in pixels."""

    feature: Feature
    radius: float
    over: Diffusion = "partial"

    def apply(
        self, values: Pixels, model: TransformModel, sigma: float, current: float, spacing: int
    ) -> Pixels:
        """Return the fields (c, h, w), already blurred by ``current`` pixels, diffused to σ pixels.

        Translation is diffused exactly, by k_σ. Unless the model is a translation, rotation is
        diffused by Lemma 1: a factor e^{−m²σr²/2} on the dot product, thus its square root here.
        With "all" the effect of rotation and log-scale on positions is diffused too, with
        σr = σs = σ/R.
        """
        if model != "translation" and self.feature.widens:
            return widened(values, sigma / spacing, current / spacing)
        result = fields.blurred(values, fields.missing(sigma, current) / spacing)
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
    """Return |x|²/R² over a grid (h, w): the variance that affine diffusion adds, divided by σ²."""
    h, w = size
    y, x = np.mgrid[:h, :w].astype(np.float32)
    x, y = x - (w - 1) / 2, y - (h - 1) / 2
    return np.asarray((x * x + y * y) / radius(size) ** 2, np.float32)


def widened(values: Pixels, sigma: float, current: float) -> Pixels:
    """Return the fields with variance σ²(1 + |x|²/R²) at x: the affine diffusion of scalar fields.

    The closed form is a Gaussian, because A x + b is normal with this variance. It is approximated
    by interpolating between a few blurs, linearly in the variance.
    """
    extra_variance = _variances((values.shape[1], values.shape[2]))
    top = float(extra_variance.max())
    result = np.zeros_like(values)
    for extra in np.linspace(0, top, SCHEDULE.affine_blurs):
        share = np.maximum(
            0, 1 - np.abs(extra_variance - extra) * (SCHEDULE.affine_blurs - 1) / top
        )
        rest = fields.missing(sigma * float(np.sqrt(1 + extra)), current)
        result += share * fields.blurred(values, rest)
    return result
