"""Synthetic alignment problems with ground truth: moved, relit, blurred and covered photographs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import synthetic
from caloric.alignment import transforms
from caloric.bench import datasets
from caloric.bench.methods import read_gray
from caloric.errors import InputError
from caloric.types import FloatArray

TEMPLATE, IMAGE = 128, 288
KINDS = ("translation", "rotation", "scale", "affine", "all")
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
# The amount of each kind of motion at strength 1.
SHIFT, ROTATION, SCALE, AFFINE = 0.4 * TEMPLATE, np.pi / 4, 1.65, 0.4
TEXTURE = 0.02  # smallest root-mean-square gradient in any direction
MAX_ERROR = 1.0  # pixels: the mean error of a correct alignment is smaller
# Additional difficulties, with all kinds of motion at strength 0.5.
HARD: dict[str, dict[str, Any]] = {
    "30 % covered": {"covered": 0.3},
    "blurred by 3 px": {"blur": 3.0},
    "inverted contrast": {"inverted": True},
}
_TRIES = 200
Pixels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Photographs:
    """Grayscale images in [0, 1] and their scenes: the file names without numbers."""

    pixels: list[Pixels]
    scenes: list[str]

    def other_scenes(self, index: int) -> list[Pixels]:
        """Return the images of scenes other than that of image ``index``."""
        scene = self.scenes[index]
        return [p for p, other in zip(self.pixels, self.scenes, strict=True) if other != scene]


def photographs(directory: Path) -> Photographs:
    """Return the sufficiently large images of a directory, sorted by name."""
    paths = datasets.photographs(directory)
    images = [(np.asarray(read_gray(p) / 255, np.float32), p) for p in paths]
    images = [(pixels, path) for pixels, path in images if min(pixels.shape) >= IMAGE]
    scenes = [f"{path.parent}/{path.stem.rstrip('0123456789')}" for _, path in images]
    if len(set(scenes)) < 2:
        raise InputError(
            f"{directory}: expected photographs (.jpg, .png) of at least two scenes, with sides of "
            f"at least {IMAGE} pixels; files of a scene differ only in their number"
        )
    return Photographs([pixels for pixels, _ in images], scenes)


def points(template: NDArray[np.uint8]) -> FloatArray:
    """Return a grid (81, 3) of homogeneous template points at which errors are measured."""
    h, w = template.shape
    x, y = np.meshgrid(np.linspace(0, w - 1, 9), np.linspace(0, h - 1, 9))
    return np.stack([x, y, np.ones_like(x)], -1).reshape(-1, 3)


@dataclass(frozen=True, eq=False)
class Case:
    """A template and an image, with the true map ``truth`` (2, 3) from template to image pixels."""

    template: NDArray[np.uint8]
    image: NDArray[np.uint8]
    truth: FloatArray
    photograph: int

    @property
    def centered(self) -> FloatArray:
        """Return the map (2, 3) that centers the upright template in the image."""
        return transforms.centered(self.template.shape, self.image.shape)

    def error(self, transform: FloatArray) -> float:
        """Return the mean error over the template, in image pixels."""
        if not np.isfinite(transform).all():
            return np.inf
        errors = points(self.template) @ (transform - self.truth).T
        return float(np.linalg.norm(errors, axis=1).mean())

    def cropped(self, side: int) -> "Case":
        """Return the case with the central part of the template, of the given side."""
        low = (len(self.template) - side) // 2
        truth = self.truth.copy()
        truth[:, 2] += truth[:, :2] @ (low, low)
        template = self.template[low : low + side, low : low + side]
        return replace(self, template=template, truth=truth)


def moved(kind: str, strength: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return A and b of τ(x) = Ax + b relative to the centers, for a kind of :data:`KINDS`."""
    A, b = np.eye(2), rng.uniform(-0.5, 0.5, 2)
    if kind in ("translation", "all"):
        angle = rng.uniform(0, 2 * np.pi)
        b = strength * SHIFT * np.array([np.cos(angle), np.sin(angle)])
    if kind in ("affine", "all"):
        change = rng.standard_normal((2, 2))
        A = A + strength * AFFINE * change / np.linalg.norm(change)
    if kind in ("rotation", "all"):
        A = synthetic.rotation(strength * ROTATION * rng.choice([-1, 1])) @ A
    if kind in ("scale", "all"):
        A = SCALE ** (strength * rng.choice([-1, 1])) * A
    return A, b


def _textured(patch: Pixels) -> bool:
    """Return whether each quarter of a patch has gradients in every direction."""
    gx, gy = cv2.Sobel(patch, -1, 1, 0, scale=1 / 8), cv2.Sobel(patch, -1, 0, 1, scale=1 / 8)
    half = len(patch) // 2
    for rows in (slice(0, half), slice(half, None)):
        for columns in (slice(0, half), slice(half, None)):
            g = np.stack([gx[rows, columns].ravel(), gy[rows, columns].ravel()])
            if np.linalg.eigvalsh(g @ g.T / g.shape[1])[0] < TEXTURE**2:
                return False
    return True


def _crop(
    photographs: Sequence[Pixels], rng: np.random.Generator, textured: bool
) -> tuple[int, int, int]:
    """Return a random crop: the index of the photograph, and y and x of the corner."""
    for _ in range(_TRIES):
        index = int(rng.integers(len(photographs)))
        h, w = photographs[index].shape
        if min(h, w) < TEMPLATE:
            continue
        y, x = int(rng.integers(h - TEMPLATE + 1)), int(rng.integers(w - TEMPLATE + 1))
        if not textured or _textured(photographs[index][y : y + TEMPLATE, x : x + TEMPLATE]):
            return index, y, x
    raise InputError(f"the photographs have no textured square of {TEMPLATE} pixels; use others")


def _relit(image: Pixels, rng: np.random.Generator) -> Pixels:
    """Return an image with a gamma of 0.5 to 2 and linear shading of up to 50 %."""
    image = np.clip(image, 0, 1) ** np.float32(2 ** rng.uniform(-1, 1))
    h, w = image.shape
    angle, depth = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.5)
    y, x = np.mgrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
    ramp = 0.5 + 0.5 * (np.cos(angle) * x + np.sin(angle) * y) / np.sqrt(2)
    return np.asarray(image * (1 - depth * ramp), np.float32)


def _covered(
    image: Pixels, truth: FloatArray, other: Pixels, share: float, rng: np.random.Generator
) -> Pixels:
    """Return the image with a share of the template covered by a square of another photograph."""
    side = round(float(np.sqrt(share)) * TEMPLATE)
    y, x = rng.integers(0, TEMPLATE - side + 1, 2)
    corners = np.array([[x, y], [x + side, y], [x + side, y + side], [x, y + side]], float)
    region = np.zeros(image.shape, np.uint8)
    outline = np.rint(corners @ truth[:, :2].T + truth[:, 2]).astype(np.int32)
    cv2.fillConvexPoly(region, outline, 1)
    h, w = other.shape
    top, left = int(rng.integers(h - IMAGE + 1)), int(rng.integers(w - IMAGE + 1))
    return np.where(region > 0, other[top : top + IMAGE, left : left + IMAGE], image)


def make(
    photographs: Sequence[Pixels],
    kind: str,
    strength: float,
    seed: int,
    *,
    blur: float | None = None,
    covered: float = 0.0,
    inverted: bool = False,
    textured: bool = True,
) -> Case:
    """Return one case; each has changed illumination, noise of 0.02 and a blur of up to 1.2 pixels.

    ``blur`` sets the blur, ``covered`` hides a share of the template, ``inverted`` inverts the
    contrast. With ``textured``, each quarter of the template has texture.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind), round(100 * strength)])
    index, top, left = _crop(photographs, rng, textured)
    photograph = photographs[index]
    A, b = moved(kind, strength, rng)
    middle = (TEMPLATE - 1) / 2
    offset = (IMAGE - 1) / 2 + b - A @ np.full(2, middle)
    truth = np.column_stack([A, offset])
    # The map from the photograph, rather than from the crop, to the image.
    motion = np.column_stack([A, offset - A @ [left, top]])
    image = synthetic.warp(photograph, motion, (IMAGE, IMAGE), border=float(photograph.mean()))
    if covered:
        others = [p for i, p in enumerate(photographs) if i != index and min(p.shape) >= IMAGE]
        other = others[int(rng.integers(len(others)))]
        image = _covered(image, truth, other, covered, rng)
    image = _relit(image, rng)
    width = rng.uniform(0, 1.2) if blur is None else blur
    image = _blurred(image, width)
    image = image + 0.02 * rng.standard_normal(image.shape).astype(np.float32)
    if inverted:
        image = 1 - image
    template = photograph[top : top + TEMPLATE, left : left + TEMPLATE]
    return Case(_bytes(template), _bytes(image), truth, index)


def _blurred(image: Pixels, sigma: float) -> Pixels:
    return image if sigma < 0.1 else np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def _bytes(pixels: Pixels) -> NDArray[np.uint8]:
    return np.asarray(np.rint(255 * np.clip(pixels, 0, 1)), np.uint8)
