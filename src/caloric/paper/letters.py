"""The letters of Table 1: A to Z as smooth functions on the plane, under affine maps."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from caloric.descriptor.sampling import SquarePatch
from caloric.types import FloatArray

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SIZE = 32
_FINE = 512
_REACH = 2.0


@lru_cache(maxsize=len(ALPHABET))
def _fine(letter: str) -> NDArray[np.float32]:
    """Return a letter over [-2, 2]², (512, 512) pixels, cap height 1, black on white.

    The font is matplotlib's DejaVu Sans, which is the same on every machine. The blur, half a pixel
    of a 32 x 32 patch, simulates a sensor.
    """
    from matplotlib.font_manager import FontProperties, findfont
    from PIL import Image, ImageDraw, ImageFont

    path = findfont(FontProperties(family="DejaVu Sans"))
    cap_height = 0.729  # of this font, relative to the em
    scale = _FINE / (2 * _REACH)
    font = ImageFont.truetype(path, round(scale / cap_height))
    canvas = Image.new("L", (_FINE, _FINE), 255)
    left, top, right, bottom = font.getbbox(letter)
    corner = ((_FINE - left - right) / 2, (_FINE - top - bottom) / 2)
    ImageDraw.Draw(canvas).text(corner, letter, fill=0, font=font)
    pixels = np.asarray(canvas, np.float32) / 255
    return np.asarray(gaussian_filter(pixels, 0.5 * (2 / SIZE) * scale, mode="nearest"))


@dataclass(frozen=True, eq=False)
class AffineMap:
    """An affine map τ(x) = Ax + b; the patch shows f ∘ τ."""

    A: FloatArray
    b: FloatArray


IDENTITY = AffineMap(np.eye(2), np.zeros(2))


def random_deformation(rng: np.random.Generator, strength: float, shift: float = 0.1) -> AffineMap:
    """Return A = I + N(0, strength²), b ~ N(0, shift²): the deformations that diffusion assumes."""
    A = np.eye(2) + strength * rng.standard_normal((2, 2))
    return AffineMap(A, shift * rng.standard_normal(2))


def render(letter: str, deformation: AffineMap = IDENTITY, size: int = SIZE) -> FloatArray:
    """Return the patch (size, size) of f ∘ τ over [-1, 1]²."""
    return sample(letter, SquarePatch(size).points(), deformation).reshape(size, size)


def sample(letter: str, points: ArrayLike, deformation: AffineMap = IDENTITY) -> FloatArray:
    """Return f(τ(x)) (n,) at points (n, 2)."""
    mapped = np.asarray(points, np.float64) @ deformation.A.T + deformation.b
    pixels = (mapped / _REACH + 1) * _FINE / 2 - 0.5
    values = map_coordinates(_fine(letter), [pixels[:, 1], pixels[:, 0]], order=1, mode="nearest")
    return np.asarray(values, np.float64)
