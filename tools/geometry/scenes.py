"""Rendered pairs of images with known geometry, and their matches.

A photograph is the texture of a height field over the plane z = 0, which two cameras see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, radians, sin
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import caloric
from caloric import comparison
from caloric.bench.pair_data import Camera, fundamental
from caloric.types import FloatArray

SIZE = (640, 800)  # height and width of the rendered images
_MAX_FEATURES = (1000, 2048, 4000, 8000)
_FIELD = (256, 256)
_STEPS = 40  # along a ray, to find the first intersection with the height field
_STEP = 20  # pixels between the true correspondences
_HIDDEN = 0.01  # distance between two points of the surface, if one hides the other
Gray = NDArray[np.uint8]


@dataclass(frozen=True)
class Kind:
    """Ranges of the relief (share of the distance), of the tilt of the second camera (degrees), and
    of the distortion of its lens (pixels at the corner)."""

    relief: tuple[float, float]
    tilt: tuple[float, float]
    distortion: tuple[float, float] = (0.0, 0.0)
    levels: tuple[int, ...] = (1,)  # largest tilts of simulated views
    difficult: bool = False  # the second image is blurred, noisy, and darker or brighter


KINDS = {
    "plane": Kind((0.0, 0.0), (15, 60)),
    "relief 1 %": Kind((0.01, 0.01), (15, 60)),
    "relief 2 %": Kind((0.02, 0.02), (15, 60)),
    "relief 3 %": Kind((0.03, 0.03), (15, 60)),
    "lens": Kind((0.0, 0.01), (15, 60), (1.0, 4.0)),
    "oblique": Kind((0.0, 0.02), (60, 76), levels=(1, 2, 4)),
    "difficult plane": Kind((0.0, 0.01), (15, 50), difficult=True),
    "difficult depth": Kind((0.05, 0.3), (15, 45), difficult=True),
    "corner": Kind((0.2, 0.6), (8, 40)),
    "depth": Kind((0.08, 0.3), (8, 40)),
    "rotation": Kind((0.3, 0.3), (0, 15)),
    "unrelated": Kind((0.0, 0.0), (15, 60), levels=(1, 2, 4)),
}
NEARLY_PLANAR = (
    "plane", "relief 1 %", "relief 2 %", "relief 3 %", "lens", "oblique", "difficult plane"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Matched:
    """Matched frames (m, 2, 3) of both images, and the covariances (m, 2, 2) of the second."""

    a: FloatArray
    b: FloatArray
    covariances: FloatArray | None


@dataclass(frozen=True, eq=False)
class Case:
    """A pair of images: its matches for each level of views, and its true correspondences.

    ``points_a`` and ``points_b`` (k, 2) are empty for unrelated images. ``cameras`` are None if
    there is no epipolar geometry.
    """

    kind: str
    scene: str
    levels: dict[int, Matched]
    points_a: FloatArray
    points_b: FloatArray
    calibrations: tuple[FloatArray, FloatArray]
    cameras: tuple[Camera, Camera] | None

    @property
    def homography(self) -> FloatArray:
        """The homography that fits the true correspondences best, over the whole overlap."""
        return np.asarray(cv2.findHomography(self.points_a, self.points_b, 0)[0], np.float64)

    @property
    def fundamental(self) -> FloatArray:
        """The true fundamental matrix."""
        assert self.cameras is not None
        return fundamental(*self.cameras)


@dataclass(frozen=True, eq=False)
class _Surface:
    """A textured height field over the plane; ``extent`` is half its width and height."""

    texture: Gray
    heights: NDArray[np.float32]
    extent: tuple[float, float]

    def _at(self, xy: FloatArray, shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
        return [
            ((xy[:, i] / self.extent[i] + 1) / 2 * (shape[1 - i] - 1)).astype(np.float32)
            for i in range(2)
        ]

    def height(self, xy: FloatArray) -> FloatArray:
        columns = 512  # remap does not take long rows
        padded = [np.pad(v, (0, -len(v) % columns)) for v in self._at(xy, self.heights.shape)]
        u, v = (values.reshape(-1, columns) for values in padded)
        sampled = cv2.remap(self.heights, u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(sampled.ravel()[: len(xy)], np.float64)

    def seen(self, camera: Camera, pixels: FloatArray) -> FloatArray:
        """Return the points (n, 3) of the surface at pixels (n, 2)."""
        rays = _homogeneous(pixels) @ np.linalg.inv(camera.calibration).T @ camera.rotation
        low, high = float(self.heights.min()), float(self.heights.max())
        start, end = ((z - camera.center[2]) / rays[:, 2] for z in (high, low))
        if high - low < 1e-9:
            return np.asarray(camera.center + start[:, None] * rays)
        distance, hit = end.copy(), np.zeros(len(rays), bool)
        before, gap_before = start, np.zeros(len(rays))
        for step in range(_STEPS + 1):
            along = start + (end - start) * step / _STEPS
            points = camera.center + along[:, None] * rays
            gap = points[:, 2] - self.height(points[:, :2])
            if step:
                new = ~hit & (gap <= 0)
                share = gap_before / np.maximum(gap_before - gap, 1e-9)
                distance[new] = (before + (along - before) * share)[new]
                hit |= new
            before, gap_before = along, gap
        return np.asarray(camera.center + distance[:, None] * rays)

    def inside(self, points: FloatArray) -> NDArray[np.bool_]:
        return np.asarray((np.abs(points[:, :2]) < self.extent).all(1))

    def render(self, camera: Camera, background: Gray) -> Gray:
        h, w = SIZE
        points = self.seen(camera, _grid(1))
        u, v = (
            cv2.resize(coordinate.reshape(h, w), (2 * w, 2 * h))
            for coordinate in self._at(points[:, :2], self.texture.shape)
        )
        image = cv2.remap(self.texture, u, v, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
        rows, columns = self.texture.shape
        outside = (u < 0) | (v < 0) | (u > columns - 1) | (v > rows - 1)
        image[outside] = cv2.resize(background, (2 * w, 2 * h))[outside]
        return np.asarray(cv2.resize(image, (w, h), interpolation=cv2.INTER_AREA), np.uint8)


def _homogeneous(points: FloatArray) -> FloatArray:
    return np.concatenate([points, np.ones((len(points), 1))], 1)


def _grid(step: int) -> FloatArray:
    h, w = SIZE
    x, y = np.meshgrid(np.arange(0, w, step), np.arange(0, h, step))
    return np.stack([x, y], -1).reshape(-1, 2).astype(np.float64)


def _heights(rng: np.random.Generator, kind: str) -> NDArray[np.float32]:
    """Return heights with a mean of 0 and a range of 1."""
    h, w = _FIELD
    if kind == "corner":
        x, y = np.meshgrid(np.linspace(-1, 1, w), np.linspace(-1, 1, h))
        angle = rng.uniform(0, pi)
        heights = np.abs(x * cos(angle) + y * sin(angle) - rng.uniform(-0.3, 0.3))
    else:
        cells = int(rng.integers(2, 5))
        heights = np.zeros(_FIELD)
        for octave in range(3):
            count = cells * 2**octave + 3
            noise = rng.standard_normal((count, count))
            heights += cv2.resize(noise, (w, h), interpolation=cv2.INTER_CUBIC) / 2**octave
        if rng.random() < 0.5:  # a facade with steps
            levels = rng.integers(3, 6)
            heights = (heights - heights.min()) / np.ptp(heights)
            heights = cv2.GaussianBlur(np.floor(heights * levels) / levels, (0, 0), 3)
    heights = heights - heights.mean()
    return np.asarray(heights / np.ptp(heights), np.float32)


def _camera(rng: np.random.Generator, tilt: float, zoom: float) -> Camera:
    h, w = SIZE
    azimuth, roll = rng.uniform(0, 2 * pi), rng.uniform(-0.25, 0.25)
    back = np.array([sin(tilt) * cos(azimuth), sin(tilt) * sin(azimuth), cos(tilt)])
    center = rng.uniform(1.6, 2.2) * back + np.array([*rng.uniform(-0.08, 0.08, 2), 0])
    right = np.cross([0.0, 1.0, 0.0], back)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(right, back), -back])
    roll_matrix = cv2.Rodrigues(np.array([0.0, 0.0, roll]))[0]
    focal = 1.1 * w * zoom
    calibration = np.array([[focal, 0, w / 2 - 0.5], [0, focal, h / 2 - 0.5], [0, 0, 1]])
    return Camera(calibration, np.asarray(roll_matrix @ rotation, np.float64), center)


def _projected(camera: Camera, points: FloatArray) -> FloatArray:
    z = (points - camera.center) @ camera.rotation.T @ camera.calibration.T
    return np.asarray(z[:, :2] / z[:, 2:])


def _degraded(image: Gray, rng: np.random.Generator) -> Gray:
    changed = np.clip(image / 255 * rng.uniform(0.8, 1.2), 0, 1) ** rng.uniform(0.75, 1.3)
    noisy = 255 * changed + rng.normal(0, rng.uniform(1, 5), image.shape)
    quality = int(rng.integers(60, 95))
    _, data = cv2.imencode(
        ".jpg", np.clip(noisy, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    return np.asarray(cv2.imdecode(data, 0), np.uint8)


def _spoiled(image: Gray, rng: np.random.Generator) -> Gray:
    """Return an image with a lower resolution, another exposure, and noise."""
    h, w = image.shape
    factor = rng.uniform(0.3, 0.8)
    small = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    blurred = cv2.resize(small, (w, h), interpolation=cv2.INTER_LINEAR)
    exposed = 255 * (blurred / 255) ** np.exp(rng.uniform(-1, 1))
    noisy = exposed + rng.normal(0, rng.uniform(5, 25), image.shape)
    return np.asarray(np.clip(noisy, 0, 255), np.uint8)


class _Lens:
    """A smooth distortion of the second image by some pixels: radial, and of low frequency."""

    def __init__(self, rng: np.random.Generator, strength: float) -> None:
        h, w = SIZE
        self.center = np.array([w, h]) / 2 + rng.normal(0, w / 13, 2)
        self.strength, self.phases = float(rng.choice([-1, 1])) * strength, rng.uniform(0, 7, 4)

    def __call__(self, points: FloatArray) -> FloatArray:
        x, y = offset = ((points - self.center) / (0.64 * SIZE[1])).T
        one, two, three, four = self.phases
        waves = np.stack([
            np.sin(3 * x + one) * np.cos(2 * y + two), np.sin(3 * y + three) * np.cos(2 * x + four)
        ])  # fmt: skip
        return np.asarray(points + self.strength * ((x * x + y * y) * offset + waves / 2).T)


def matched(a: Gray, b: Gray, level: int, max_features: int) -> Matched:
    """Return the refined matches of two images, with views up to a tilt."""
    views = None if level == 1 else level
    first, second = (caloric.extract(i, max_features=max_features, views=views) for i in (a, b))
    matches = caloric.match(first, second, agreement=True, refine=True, images=(a, b))
    maps = [comparison.maps_of(features, "", 1.0) for features in (first, second)]
    return Matched(*comparison.matched_maps(maps[0], maps[1], matches), matches.covariances)


def scene(path: Path) -> str:
    """Return the scene of a photograph: its name without the number."""
    return path.stem.rstrip("0123456789").rstrip("_-")


def other(photographs: Sequence[Path], number: int, *avoided: Path) -> Path:
    """Return a photograph of a scene that the given photographs do not show."""
    names = {scene(path) for path in avoided}
    others = [path for path in photographs if scene(path) not in names]
    return others[7 * number % len(others)]


def case(kind: str, photographs: Sequence[Path], index: int, seed: int) -> Case:
    """Return a pair of images of a photograph, rendered with a random seed."""
    rng = np.random.default_rng((seed, index, sorted(KINDS).index(kind)))
    ranges, path = KINDS[kind], photographs[index]
    behind = other(photographs, index + seed, path)
    texture, background = _gray(path), _gray(behind)
    extent = (1.0, texture.shape[0] / texture.shape[1])
    # The cameras are about 2 units away.
    heights = _heights(rng, kind) * np.float32(2 * rng.uniform(*ranges.relief))
    surface = _Surface(texture, heights, extent)
    a = _camera(rng, radians(rng.uniform(0, 15)), 1.0)
    b = _camera(rng, radians(rng.uniform(*ranges.tilt)), rng.uniform(0.8, 1.3))
    if kind == "rotation":
        axis = rng.normal(size=3)
        turn = cv2.Rodrigues(axis * radians(rng.uniform(3, 15)) / np.linalg.norm(axis))[0]
        b = Camera(b.calibration, turn @ a.rotation, a.center)
    first = _degraded(surface.render(a, background), rng)
    if kind == "unrelated":
        unrelated = _gray(other(photographs, index + seed, path, behind))
        second = _degraded(np.asarray(cv2.resize(unrelated, SIZE[::-1]), np.uint8), rng)
        p = q = np.zeros((0, 2))
    else:
        second = surface.render(b, np.asarray(background[:, ::-1]))
        if ranges.difficult:
            second = _spoiled(second, rng)
        second = _degraded(second, rng)
        p, q = _correspondences(surface, a, b)
    count = int(rng.choice(_MAX_FEATURES))
    levels = {level: matched(first, second, level, count) for level in ranges.levels}
    if max(ranges.distortion) > 0:
        lens = _Lens(rng, rng.uniform(*ranges.distortion))
        q = lens(q)
        levels = {level: _distorted(m, lens) for level, m in levels.items()}
    related = kind not in ("unrelated", "rotation")
    return Case(
        kind, scene(path), levels, p, q, (a.calibration, b.calibration), (a, b) if related else None
    )


def _gray(path: Path) -> Gray:
    return np.asarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), np.uint8)


def _distorted(matched: Matched, lens: _Lens) -> Matched:
    b = matched.b.copy()
    b[:, :, 2] = lens(b[:, :, 2])
    return Matched(matched.a, b, matched.covariances)


def _correspondences(surface: _Surface, a: Camera, b: Camera) -> tuple[FloatArray, FloatArray]:
    """Return points (k, 2) of the first image and where the second shows them."""
    p = _grid(_STEP)
    points = surface.seen(a, p)
    q = _projected(b, points)
    h, w = SIZE
    visible = ((q >= 0) & (q <= (w - 1, h - 1))).all(1) & surface.inside(points)
    hidden = np.linalg.norm(surface.seen(b, q) - points, axis=1) > _HIDDEN
    visible &= ~hidden
    return p[visible], q[visible]
