"""The density of an image as smooth fields, used to align images.

The gradient-orientation density h(β, x) = |∇f| Ш(∠∇f − β) is represented by its harmonics in β::

    u_m(x) = |∇f(x)| e^{imφ(x)} / n(x),   m = 0, 1, 2

Diffusion of the density blurs them: over translation by k_σ in x, over rotation (Lemma 1) by the
factor e^{−m²σr²/2}. A rotation of the image by α multiplies u_m by e^{−imα}. The division by n, the
root-mean-square gradient around x, is not part of the theory: it makes the fields robust to
illumination that varies over the image. Distribution fields (eq. 8) are intensity histograms, whose
layers do not change under rotation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError, unknown
from caloric.runtime.arrays import at_least, empty, exact, namespace
from caloric.types import ArrayOrTensor, FloatArray, Pixels

SHARPNESS = 1.0  # smoothing, in pixels, at which gradients are measured
WEIGHTS = (1.0, 1.0, 0.7)  # of the three harmonics
MEAN = 0.75  # of u_0 over photographs; subtracting it centers the field
LEVELS = 8  # of a distribution field
FAINT = 0.15  # gradients below this fraction of the mean, or below NOISE, are noise
NOISE = 0.004
NEGLIGIBLE = 0.05  # samples: a narrower blur is skipped


@dataclass(frozen=True)
class Filters:
    """Linear filters of arrays, or of tensors on a device.

    ``gaussian(plane, sigma)`` blurs a plane (h, w), mirrored at the border; ``smoothed(plane,
    sigma)`` does so for wide blurs, on a coarse grid; ``blurred(planes, sigma)`` blurs planes
    (c, h, w) with zeros outside; ``differences(planes, scale)`` returns ``scale`` times the central
    differences of planes (…, h, w) along x and y, 0 at the border.
    """

    gaussian: Callable[[Any, float], Any]
    smoothed: Callable[[Any, float], Any]
    blurred: Callable[[Any, float], Any]
    differences: Callable[[Any, float], tuple[Any, Any]]


def coarse(count: int, sigma: float) -> int:
    """Return the number of samples, at most ``count``, on which a blur by σ can be computed."""
    return count if sigma < 6 else max(1, round(3 * count / sigma))


def _gaussian(plane: Pixels, sigma: float) -> Pixels:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), sigma))


def _smoothed(plane: Pixels, sigma: float) -> Pixels:
    """Return plane ⋆ k_σ; a wide blur is computed on a coarse grid and interpolated."""
    h, w = plane.shape
    size = (coarse(w, sigma), coarse(h, sigma))
    if size == (w, h):
        return _gaussian(plane, sigma)
    small = cv2.resize(plane, size, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma * size[0] / w, sigmaY=sigma * size[1] / h)
    return np.asarray(cv2.resize(small, (w, h), interpolation=cv2.INTER_LINEAR))


def blurred(fields: Pixels, sigma: float) -> Pixels:
    """Return fields ⋆ k_σ, with σ in samples and zeros outside the fields."""
    if sigma <= NEGLIGIBLE:
        return fields
    result = np.empty_like(fields)
    side = 2 * reach(sigma) + 1
    for plane, out in zip(fields, result, strict=True):
        cv2.GaussianBlur(plane, (side, side), sigma, out, borderType=cv2.BORDER_CONSTANT)
    return result


def reach(sigma: float) -> int:
    """Return the radius, in samples, of the filter of :func:`blurred`."""
    return int(np.ceil(3 * sigma))


def _differences(planes: Pixels, scale: float) -> tuple[Pixels, Pixels]:
    dx, dy = np.empty_like(planes), np.empty_like(planes)
    for result, order in ((dx, (1, 0)), (dy, (0, 1))):
        flat = (v.reshape(-1, *planes.shape[-2:]) for v in (planes, result))
        for plane, out in zip(*flat, strict=True):
            cv2.Sobel(plane, cv2.CV_32F, *order, out, ksize=1, scale=scale)
    return dx, dy


CPU = Filters(_gaussian, _smoothed, blurred, _differences)


@dataclass(frozen=True)
class Feature:
    """A kind of field: ``harmonics`` lists its orders m; m = 0 has one channel, any other m two.

    ``measure(pixels, around, by)`` returns the fields (channels, h, w) of an image (h, w), an array
    or a tensor. ``around`` is the width, in pixels, over which the illumination is assumed to be
    constant, and ``by`` are the filters of its device. If ``widens``, affine diffusion blurs the
    field more at larger distances from the center.
    """

    name: str
    harmonics: tuple[int, ...]
    measure: Callable[..., Any]
    widens: bool = False

    @property
    def orders(self) -> NDArray[np.float32]:
        """The order m of every channel, (channels,)."""
        return np.concatenate([[m] if m == 0 else [m, m] for m in self.harmonics]).astype(
            np.float32
        )


def gradients(pixels: ArrayOrTensor, by: Filters = CPU) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return ∂f/∂x and ∂f/∂y (h, w) per pixel, after smoothing by ``SHARPNESS``."""
    return by.differences(by.gaussian(pixels, SHARPNESS), 0.5)


def _harmonic_fields(step: int) -> Callable[..., ArrayOrTensor]:
    """Return a function that measures u_0, u_step and u_2step; step 2 ignores gradient polarity."""

    def measure(pixels: ArrayOrTensor, around: float, by: Filters = CPU) -> ArrayOrTensor:
        xp = namespace(pixels)
        gx, gy = gradients(pixels, by)
        square = gx * gx + gy * gy
        norm = by.smoothed(square, around)
        norm += xp.asarray(FAINT**2 * exact(square.mean()) + NOISE**2, dtype=norm.dtype)
        xp.sqrt(norm, out=norm)
        size = xp.sqrt(square)
        fields = empty((5, *pixels.shape), gx)
        xp.divide(size, norm, out=fields[0])
        unit = 1 / at_least(size, 1e-12)
        c, s = gx * unit, gy * unit
        for _ in range(step - 1):
            c, s = c * c - s * s, 2 * c * s
        xp.multiply(fields[0], c, out=fields[1])
        xp.multiply(fields[0], s, out=fields[2])
        xp.multiply(fields[1], c, out=fields[3])
        fields[3] -= fields[2] * s
        xp.multiply(fields[1], s, out=fields[4])
        fields[4] += fields[2] * c
        fields[0] -= MEAN
        for channel, order in enumerate((0, 1, 1, 2, 2)):
            if WEIGHTS[order] != 1:
                fields[channel] *= WEIGHTS[order]
        return fields

    return measure


def _level_fields(pixels: ArrayOrTensor, around: float, by: Filters = CPU) -> ArrayOrTensor:
    """Return k_σl(l − f) (levels, h, w) at equally spaced levels l, with σl their spacing."""
    xp, smooth = namespace(pixels), by.gaussian(pixels, SHARPNESS)
    layers = xp.stack([smooth - (k + 0.5) / LEVELS for k in range(LEVELS)])
    return xp.exp(-0.5 * (layers * LEVELS) ** 2) - float(np.sqrt(2 * np.pi) / LEVELS)


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("orientation", (0, 1, 2), _harmonic_fields(1)),
        Feature("unsigned-orientation", (0, 2, 4), _harmonic_fields(2)),
        Feature("distribution-field", (0,) * LEVELS, _level_fields),
        Feature("distribution-field-heat", (0,) * LEVELS, _level_fields, widens=True),
    )
}


def feature(name: str, inverted: bool = False) -> Feature:
    """Return the feature of that name, or its variant that is invariant to inverted contrast."""
    if name not in FEATURES:
        raise unknown("feature", name, FEATURES)
    if inverted and not name.endswith("orientation"):
        raise InputError(f"feature {name!r} does not support inverted contrast")
    return FEATURES["unsigned-orientation" if inverted else name]


def channels(harmonics: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return m and the first channel of every harmonic; for m ≠ 0 the second channel follows."""
    widths = [1 if m == 0 else 2 for m in harmonics]
    return [(m, sum(widths[:i])) for i, m in enumerate(harmonics)]


def rotated(fields: Pixels, harmonics: tuple[int, ...], angle: float) -> Pixels:
    """Rotate the fields in place by α, u_m ← e^{−imα} u_m, and return them."""
    for m, channel in channels(harmonics):
        if m:
            c, s = np.cos(m * angle), np.sin(m * angle)
            pair = fields[channel : channel + 2]
            flat = np.array([[c, s], [-s, c]], np.float32) @ pair.reshape(2, -1)
            pair[:] = flat.reshape(pair.shape)
    return fields


def missing(sigma: float, have: float) -> float:
    """Return the width of the blur that widens a blur of width ``have`` to one of σ."""
    return float(np.sqrt(max(0.0, sigma**2 - have**2)))


def halves(pixels: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an image at 1, 1/2, 1/4, … of its size; pixel i is pixel i, 2i, 4i, … of the image."""
    while True:
        yield pixels
        pixels = np.asarray(cv2.pyrDown(pixels), pixels.dtype)


def sampled(fields: Pixels, transform: FloatArray, size: tuple[int, int]) -> Pixels:
    """Return the fields (c, h, w) at transform(x), bilinear, for x on a grid of ``size``."""
    result = np.empty((len(fields), *size), np.float32)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    for plane, out in zip(fields, result, strict=True):
        cv2.warpAffine(plane, transform, size[::-1], out, flags=flags)
    return result


@dataclass(frozen=True, eq=False)
class Pyramid:
    """Fields at spacings of 1, 2, 4, … pixels, with sample i at i times the spacing.

    ``blurs`` are the widths, in pixels, of the blur of each level.
    """

    levels: tuple[Pixels, ...]
    blurs: tuple[float, ...]

    def level(self, spacing: float) -> tuple[Pixels, int, float]:
        """Return the fields, spacing and blur of the coarsest level within ``spacing``."""
        index = int(np.clip(np.floor(np.log2(max(spacing, 1.0)) + 1e-6), 0, len(self.levels) - 1))
        return self.levels[index], 2**index, self.blurs[index]


_MIN_SIDE = 12
_MAX_LEVELS = 6


def pyramid(fields: Pixels) -> Pyramid:
    """Return the pyramid of fields; each level is blurred by one sample, then subsampled by 2."""
    levels, blurs = [fields], [0.0]
    while min(levels[-1].shape[1:]) >= _MIN_SIDE and len(levels) < _MAX_LEVELS:
        blurs.append(float(np.hypot(blurs[-1], 2.0 ** (len(levels) - 1))))
        levels.append(np.ascontiguousarray(blurred(levels[-1], 1.0)[:, ::2, ::2]))
    return Pyramid(tuple(levels), tuple(blurs))
