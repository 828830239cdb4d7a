"""Photographs of invented scenes, as many as needed: which of them overlap is known.

A scene is a plane. Its texture blends two photographs, rotated and stretched at random, each in a
part of the plane, so that a few photographs make many different scenes. Its views are perspective
images of the plane with different brightness and noise. Some scenes show the same parts of a
photograph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.bench import datasets
from caloric.runtime.files import replacing
from caloric.synthetic import rotation
from caloric.types import FloatArray

VIEWS = 10  # of a scene
SIZE = 640, 480  # width and height of a view
_TEXTURE = 1.5  # side of the texture relative to that of a view
_ZOOM = 0.4, 0.8  # part of a photograph that the texture shows
_STRETCH = 3.0  # largest ratio of the scales of a photograph along two axes
_MOVED = 0.15  # shift of a view, relative to its sides
_ANGLE = 20.0  # largest rotation in degrees
_SCALE = 0.8, 1.25
_PERSPECTIVE = 0.06  # shift of each corner, relative to the sides
_GAMMA = 0.7, 1.4
_NOISE = 3.0  # gray levels
_QUALITY = 88  # of JPEG files
_MIN_OVERLAP = 0.4  # of the smaller of two views


@dataclass(frozen=True)
class Rendering:
    """The first ``count`` images of the scenes that the photographs of a directory make."""

    photographs: str
    count: int

    def name(self, index: int) -> str:
        """Return the name of an image."""
        scene, view = divmod(index, VIEWS)
        return f"{scene // 100:04d}/{scene:06d}-{view:02d}.jpg"

    def overlapping(self) -> Iterator[tuple[str, str]]:
        """Yield the names of each two images that show at least 40 % of each other's plane."""
        for first in range(0, self.count, VIEWS):
            views = range(first, min(first + VIEWS, self.count))
            corners = {i: _corners(*divmod(i, VIEWS)).astype(np.float32) for i in views}
            for a, b in combinations(views, 2):
                common, _ = cv2.intersectConvexConvex(corners[a], corners[b])
                smaller = min(cv2.contourArea(corners[i]) for i in (a, b))
                if common >= _MIN_OVERLAP * smaller:
                    yield self.name(a), self.name(b)


@dataclass(frozen=True)
class Task:
    """Images of a rendering that a worker writes to a directory."""

    rendering: Rendering
    directory: str
    indices: range


def write(task: Task) -> int:
    """Write the missing images of a task; return their number."""
    written = 0
    for index in task.indices:
        path = Path(task.directory) / task.rendering.name(index)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        image = view(task.rendering.photographs, *divmod(index, VIEWS))
        encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]
        with replacing(path) as file:
            file.write(encoded.tobytes())
        written += 1
    return written


def view(photographs: str, scene: int, number: int) -> NDArray[np.uint8]:
    """Return a view (h, w, 3) of a scene."""
    width, height = SIZE
    image_corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    to_image = cv2.getPerspectiveTransform(
        _corners(scene, number).astype(np.float32), image_corners
    )
    rng = np.random.default_rng((1, scene, number))
    pixels = cv2.warpPerspective(
        _texture(photographs, scene), to_image, SIZE, flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )  # fmt: skip
    levels = np.round(255 * (np.arange(256) / 255) ** rng.uniform(*_GAMMA)).astype(np.uint8)
    noise = _NOISE * rng.standard_normal(pixels.shape[:2], np.float32)
    return np.asarray(cv2.add(cv2.LUT(pixels, levels), cv2.merge([noise] * 3), dtype=cv2.CV_8U))


def _corners(scene: int, number: int) -> FloatArray:
    """Return the corners (4, 2) of a view in the texture of its scene."""
    rng = np.random.default_rng((2, scene, number))
    size = np.array(SIZE, float)
    unit = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    corners = (unit + rng.uniform(-_PERSPECTIVE, _PERSPECTIVE, (4, 2))) * size
    turn = rotation(np.deg2rad(rng.uniform(-_ANGLE, _ANGLE)))
    center = (_TEXTURE / 2 + rng.uniform(-_MOVED, _MOVED, 2)) * size
    return np.asarray(rng.uniform(*_SCALE) * corners @ turn.T + center)


@lru_cache(maxsize=2)
def _texture(photographs: str, scene: int) -> NDArray[np.uint8]:
    """Return the texture of a scene."""
    rng = np.random.default_rng((3, scene))
    width, height = (round(_TEXTURE * side) for side in SIZE)
    windows = [_window(photographs, rng, width, height).astype(np.float32) for _ in range(2)]
    coarse = rng.normal(0, 4, (4, 5)).astype(np.float32)
    share = 1 / (1 + np.exp(-cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)))
    blended = windows[0] + share[..., None] * (windows[1] - windows[0])
    return blended.astype(np.uint8)


def _window(
    photographs: str, rng: np.random.Generator, width: int, height: int
) -> NDArray[np.uint8]:
    """Return a random part of a random photograph, rotated, stretched and possibly mirrored."""
    paths = _paths(photographs)
    image = _photograph(paths[rng.integers(len(paths))])
    rows, columns = image.shape[:2]
    zoom = rng.uniform(*_ZOOM) * min(columns / width, rows / height)
    stretch = np.sqrt(rng.uniform(1, _STRETCH))
    first, second = (rotation(angle) for angle in rng.uniform(0, 2 * np.pi, 2))
    mirror = np.diag([rng.choice((-1.0, 1.0)), 1.0])
    to_photograph = zoom * first @ np.diag([stretch, 1 / stretch]) @ second @ mirror
    center = rng.uniform(0.3, 0.7, 2) * (columns, rows)
    shift = center - to_photograph @ np.array([width / 2, height / 2])
    part = cv2.warpAffine(
        image, np.column_stack([to_photograph, shift]), (width, height),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REFLECT,
    )  # fmt: skip
    return np.asarray(part, np.uint8)


@cache
def _paths(photographs: str) -> list[Path]:
    return datasets.photographs(Path(photographs))


@lru_cache(maxsize=64)
def _photograph(path: Path) -> NDArray[np.uint8]:
    return np.asarray(cv2.imread(str(path), cv2.IMREAD_COLOR))
