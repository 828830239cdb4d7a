"""The density of an image as smooth fields: what is compared when two images are aligned.

The gradient-orientation density h(β, x) = |∇f| Ш(∠∇f − β) is known by its harmonics in β::

    u_m(x) = |∇f(x)| e^{imφ(x)} / n(x),   m = 0, 1, 2

and diffusing it is blurring them: over translation by k_σ in x, over rotation (Lemma 1) by the
factor e^{−m²σr²/2}. A rotation of the image by α turns u_m by e^{−imα}. The division by n, the
root-mean-square gradient around x, is not the theory's: it makes the fields independent of light
that changes from place to place. Distribution fields (eq. 8) have intensities' histograms instead,
whose layers no rotation turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError, unknown
from caloric.theory.gaussians import FloatArray

Pixels = NDArray[np.float32]

SHARPNESS = 1.0  # the smoothing, in pixels, at which gradients are measured
_WEIGHTS = (1.0, 1.0, 0.7)  # of the three harmonics
_MEAN = 0.75  # of u_0 over photographs: without it the field has no sign to be compared by
_LEVELS = 8  # of a distribution field
_FAINT = 0.15  # gradients below this share of the mean, or below the next, count as noise
NOISE = 0.004


@dataclass(frozen=True)
class Feature:
    """A kind of field: ``harmonics`` has the m of each, two channels for one that is not 0.

    ``measure(pixels, around)`` gives (channels, h, w) of an image (h, w); ``around`` is the width,
    in pixels, over which light is taken to be the same.
    """

    name: str
    harmonics: tuple[int, ...]
    measure: Callable[[Pixels, float], Pixels]
    widens: bool = False

    @property
    def orders(self) -> NDArray[np.float32]:
        """The m of every channel."""
        return np.concatenate([[m] if m == 0 else [m, m] for m in self.harmonics]).astype(
            np.float32
        )


def gradients(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """∂f/∂x and ∂f/∂y at the sharpness of all fields, per pixel."""
    smooth = cv2.GaussianBlur(pixels, (0, 0), SHARPNESS)
    return tuple(  # type: ignore[return-value]
        cv2.Sobel(smooth, cv2.CV_32F, *d, ksize=1, scale=0.5) for d in ((1, 0), (0, 1))
    )


def _smoothed(plane: Pixels, sigma: float) -> Pixels:
    """⋆ k_σ, nearly: a wide blur is made on a coarse grid and read between its samples."""
    if sigma < 6:
        return np.asarray(cv2.GaussianBlur(plane, (0, 0), sigma))
    h, w = plane.shape
    size = (max(1, round(3 * w / sigma)), max(1, round(3 * h / sigma)))
    small = cv2.resize(plane, size, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), sigma * size[0] / w, sigmaY=sigma * size[1] / h)
    return np.asarray(cv2.resize(small, (w, h), interpolation=cv2.INTER_LINEAR))


def _turning(step: int) -> Callable[[Pixels, float], Pixels]:
    """u_0, u_step and u_2step: with 2 a gradient and its opposite are the same."""

    def measure(pixels: Pixels, around: float) -> Pixels:
        gx, gy = gradients(pixels)
        square = gx * gx + gy * gy
        norm = _smoothed(square, around)
        norm += np.float32(_FAINT**2 * float(square.mean()) + NOISE**2)
        cv2.sqrt(norm, norm)
        size = cv2.sqrt(square)
        fields = np.empty((5, *pixels.shape), np.float32)
        np.divide(size, norm, out=fields[0])
        unit = 1 / np.maximum(size, np.float32(1e-12))
        c, s = gx * unit, gy * unit
        for _ in range(step - 1):
            c, s = c * c - s * s, 2 * c * s
        np.multiply(fields[0], c, out=fields[1])
        np.multiply(fields[0], s, out=fields[2])
        np.multiply(fields[1], c, out=fields[3])
        fields[3] -= fields[2] * s
        np.multiply(fields[1], s, out=fields[4])
        fields[4] += fields[2] * c
        fields[0] -= np.float32(_MEAN)
        for channel, order in enumerate((0, 1, 1, 2, 2)):
            if _WEIGHTS[order] != 1:
                fields[channel] *= np.float32(_WEIGHTS[order])
        return fields

    return measure


def _layers(pixels: Pixels, around: float) -> Pixels:
    """k_σl(l − f) at equally spaced levels l: a level is as wide as their spacing."""
    levels = (np.arange(_LEVELS, dtype=np.float32) + 0.5) / _LEVELS
    smooth = cv2.GaussianBlur(pixels, (0, 0), SHARPNESS)
    layers = np.exp(-0.5 * ((smooth - levels[:, None, None]) * _LEVELS) ** 2)
    return layers - np.float32(np.sqrt(2 * np.pi) / _LEVELS)


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("orientation", (0, 1, 2), _turning(1)),
        Feature("unsigned-orientation", (0, 2, 4), _turning(2)),
        Feature("distribution-field", (0,) * _LEVELS, _layers),
        Feature("distribution-field-heat", (0,) * _LEVELS, _layers, widens=True),
    )
}


def feature(name: str, inverted: bool = False) -> Feature:
    """By name, or an error with the names there are; ``inverted``: where bright may be dark."""
    if name not in FEATURES:
        raise unknown("feature", name, FEATURES)
    if inverted and not name.endswith("orientation"):
        raise InputError(f"inverted contrast cannot be compared by {name!r}")
    return FEATURES["unsigned-orientation" if inverted else name]


def channels(harmonics: tuple[int, ...]) -> list[tuple[int, int]]:
    """m and the first channel of every harmonic: where m is not 0, the second one follows it."""
    widths = [1 if m == 0 else 2 for m in harmonics]
    return [(m, sum(widths[:i])) for i, m in enumerate(harmonics)]


def turned(fields: Pixels, harmonics: tuple[int, ...], angle: float) -> Pixels:
    """e^{−imα} u_m: the fields as an image turned by α has them. In place."""
    for m, channel in channels(harmonics):
        if m:
            c, s = np.cos(m * angle), np.sin(m * angle)
            pair = fields[channel : channel + 2]
            flat = np.array([[c, s], [-s, c]], np.float32) @ pair.reshape(2, -1)
            pair[:] = flat.reshape(pair.shape)
    return fields


def missing(sigma: float, have: float) -> float:
    """The blur that makes one of ``have`` up to one of σ."""
    return float(np.sqrt(max(0.0, sigma**2 - have**2)))


def halves(pixels: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """An image, and it at half, a quarter, … of its size: pixel i of each is at i times 2, 4, …"""
    while True:
        yield pixels
        pixels = np.asarray(cv2.pyrDown(pixels), pixels.dtype)


def blurred(fields: Pixels, sigma: float) -> Pixels:
    """⋆ k_σ, σ in samples; there is nothing beyond the edge."""
    if sigma <= 0.05:
        return fields
    result = np.empty_like(fields)
    side = 2 * int(np.ceil(3 * sigma)) + 1
    for plane, out in zip(fields, result, strict=True):
        cv2.GaussianBlur(plane, (side, side), sigma, out, borderType=cv2.BORDER_CONSTANT)
    return result


def sampled(fields: Pixels, transform: FloatArray, size: tuple[int, int]) -> Pixels:
    """The fields (c, h, w) at transform(x), bilinear, for x on a grid of ``size`` (h, w)."""
    result = np.empty((len(fields), *size), np.float32)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    for plane, out in zip(fields, result, strict=True):
        cv2.warpAffine(plane, transform, size[::-1], out, flags=flags)
    return result


@dataclass(frozen=True, eq=False)
class Pyramid:
    """Fields at spacings of 1, 2, 4, … pixels, sample i at i times the spacing; ``blurs`` are the
    widths, in pixels, by which each is blurred already."""

    levels: tuple[Pixels, ...]
    blurs: tuple[float, ...]

    def level(self, spacing: float) -> tuple[Pixels, int, float]:
        """The coarsest that is no coarser than ``spacing``: fields, their spacing, their blur."""
        index = int(np.clip(np.floor(np.log2(max(spacing, 1.0)) + 1e-6), 0, len(self.levels) - 1))
        return self.levels[index], 2**index, self.blurs[index]


_SMALLEST = 12
_MOST = 6


def pyramid(fields: Pixels) -> Pyramid:
    """Each level is the one before, blurred by one of its samples, every other one of it."""
    levels, blurs = [fields], [0.0]
    while min(levels[-1].shape[1:]) >= _SMALLEST and len(levels) < _MOST:
        blurs.append(float(np.hypot(blurs[-1], 2.0 ** (len(levels) - 1))))
        levels.append(np.ascontiguousarray(blurred(levels[-1], 1.0)[:, ::2, ::2]))
    return Pyramid(tuple(levels), tuple(blurs))
