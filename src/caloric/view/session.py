"""What the page shows: two pictures, their matches, and the details of one match."""

import base64
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.alignment import align
from caloric.descriptor import density, engine, recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.detector.detection import FEATURES
from caloric.errors import InputError, unknown
from caloric.features import Features
from caloric.image import reading
from caloric.image.pixels import as_unit_range, to_grey
from caloric.matching import fitting, geometry, neighbours
from caloric.matching.fitting import Model
from caloric.matching.neighbours import Matches

PREVIEW = 2048  # pixels of the longer side of a preview
PIXELS = 100_000_000  # largest picture that is accepted
RATIO = 0.9
THRESHOLD = 2.0
PATCH = 48  # pixels of the side of a displayed patch
MAPS = 20  # points of the side of a response map
REACH = 10.0  # half-width of a displayed patch in σ; covers most of any descriptor
_KEPT = 8  # cached features, and cached pairs

T = TypeVar("T")
Report = dict[str, Any]
Pixels = NDArray[np.uint8]
MODELS = ("homography", "fundamental", "affine")


@dataclass(frozen=True, eq=False)
class Picture:
    """One of the two pictures: its name, its pixels in RGB (h, w, 3) and in grey (h, w)."""

    name: str
    colour: Pixels
    grey: NDArray[np.float32]

    @classmethod
    def of(cls, name: str, data: bytes) -> "Picture":
        """Return the picture in a file; raise an error with its name if it is none or too large."""
        try:
            pixels = reading.decode(data, PIXELS)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls.of_pixels(name, pixels)

    @classmethod
    def of_pixels(cls, name: str, pixels: NDArray[np.generic]) -> "Picture":
        """Return the picture of a decoded image."""
        grey = to_grey(pixels)
        if 0 in grey.shape:
            raise InputError(f"{name}: no pixels in it")
        return cls(name, _colour(pixels, grey), grey)

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self.grey.shape[1], self.grey.shape[0]


def _colour(pixels: NDArray[np.generic], grey: NDArray[np.float32]) -> Pixels:
    if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return np.asarray(pixels, np.uint8)
    unit = np.repeat(grey[:, :, None], 3, 2)
    if pixels.ndim == 3 and pixels.shape[2] >= 3:
        values = as_unit_range(pixels, "image")
        unit = values[..., :3]
        if values.shape[2] == 4:  # composed on white, as the grey image is
            unit = 1 + values[..., 3:] * (unit - 1)
    return np.clip(np.rint(255 * unit), 0, 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Matched:
    """The features of both pictures, their mutual nearest neighbours, and a geometry of them."""

    features: tuple[Features, Features]
    indices: NDArray[np.intp]
    distances: NDArray[np.float32]
    ratios: NDArray[np.floating]
    residuals: NDArray[np.float64]
    model: Model
    matrix: NDArray[np.float64] | None


@dataclass
class Session:
    """Up to two pictures, with cached features and matches; one thread computes at a time."""

    pictures: dict[str, Picture] = field(default_factory=dict)
    most: int = FEATURES
    contrast: float | None = None
    chosen: dict[str, str] = field(default_factory=dict)  # initial descriptor and model of the page
    _features: OrderedDict[tuple[Any, ...], Features] = field(default_factory=OrderedDict)
    _matched: OrderedDict[tuple[Any, ...], Matched] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def put(self, side: str, picture: Picture) -> None:
        """Replace a picture, and forget everything that was computed from the old one.

        It does not wait for a running computation.
        """
        before = self.pictures.get(_side(side))
        self.pictures[side] = picture
        for table in (self._features, self._matched):
            for key in [key for key in list(table) if before in key]:
                table.pop(key, None)

    def picture(self, side: str) -> Picture:
        """Return the picture of a side."""
        picture = self.pictures.get(_side(side))
        if picture is None:
            raise InputError(f"there is no picture {side!r} yet")
        return picture

    def matched(self, descriptor: str, model: str) -> Matched:
        """Return the cached or computed matches of the two pictures."""
        recipes.descriptor(descriptor)
        if model not in MODELS:
            raise unknown("model", model, MODELS)
        a, b = self.picture("a"), self.picture("b")
        with self._lock:
            key = (a, b, descriptor, model)
            result = _recall(self._matched, key)
            if result is None:
                both = self._extracted(a, descriptor), self._extracted(b, descriptor)
                result = _keep(self._matched, key, matched(both, cast(Model, model)))
            return result

    def _extracted(self, picture: Picture, descriptor: str) -> Features:
        key = (picture, descriptor)
        features = _recall(self._features, key)
        if features is None:
            extracted = pipeline.extract(
                picture.grey, descriptor, max_features=self.most, contrast=self.contrast
            )
            features = _keep(self._features, key, extracted)
        return features


def _side(side: str) -> str:
    if side not in ("a", "b"):
        raise InputError(f"a picture is a or b, not {side!r}")
    return side


def _recall(table: OrderedDict[Any, T], key: Any) -> T | None:
    if key in table:
        table.move_to_end(key)
    return table.get(key)


def _keep(table: OrderedDict[Any, T], key: Any, value: T) -> T:
    table[key] = value
    while len(table) > _KEPT:
        table.popitem(last=False)
    return value


def matched(
    both: tuple[Features, Features],
    model: Model,
    ratio: float = RATIO,
    threshold: float = THRESHOLD,
) -> Matched:
    """Return all mutual nearest neighbours with their ratios; the page applies the threshold."""
    a, b = both
    none = np.zeros(0, np.float32)
    if len(a) == 0 or len(b) == 0:
        return Matched(both, np.zeros((0, 2), np.intp), none, none, none.astype(float), model, None)
    values = [np.ascontiguousarray(f.descriptors, np.float32) for f in both]
    near = neighbours.neighbours(values[0], values[1], b.frames.xy, 10.0)
    rows = np.flatnonzero(near.mutual)
    ratios = near.first[rows] / np.maximum(near.second[rows], 1e-12)
    order = np.argsort(ratios, kind="stable")
    if max(a.views, b.views) > 1:  # several views of a place match
        pairs = Matches(np.stack([rows, near.nearest[rows]], 1)[order], near.first[rows][order])
        order = order[neighbours.one_per_place(pairs, a.frames.xy, b.frames.xy)]
    rows, ratios = rows[order], ratios[order]
    indices = np.stack([rows, near.nearest[rows]], 1)
    first, second = a.frames.maps[indices[:, 0]], b.frames.maps[indices[:, 1]]
    p, q = first[:, :, 2], second[:, :, 2]
    good = ratios <= ratio
    estimate = geometry.estimate(
        p[good], q[good], model=model, threshold=threshold, size=b.image_size,
        size_a=a.image_size, frames=(first[good], second[good]),
    )  # fmt: skip
    residuals = np.full(len(p), np.inf)
    if estimate.matrix is not None:
        residuals = fitting.residual(p, q, model, estimate.matrix)
    return Matched(both, indices, near.first[rows], ratios, residuals, model, estimate.matrix)


def choices() -> Report:
    """Return the descriptors, models and defaults that the page offers."""
    return {
        "descriptors": [*recipes.descriptors(), *recipes.VARIANTS],
        "models": list(MODELS),
        "defaults": {"ratio": RATIO, "threshold": THRESHOLD},
    }


def summary(pair: Matched) -> Report:
    """Return all matches as columns of numbers, best ratio first."""
    a, b = (f.frames for f in pair.features)
    i, j = pair.indices.T
    return {
        "features": [len(a), len(b)],
        "level": max(f.views for f in pair.features),
        "model": pair.model,
        "matrix": None if pair.matrix is None else pair.matrix.tolist(),
        "a": _columns(a.xy[i], a.sigma[i], a.angle[i]),
        "b": _columns(b.xy[j], b.sigma[j], b.angle[j]),
        "distance": _short(pair.distances, 4),
        "ratio": _short(pair.ratios, 4),
        "residual": _short(np.minimum(pair.residuals, 1e6), 3),
    }


def _short(values: NDArray[Any], digits: int) -> list[float]:
    return [round(v, digits) for v in values.astype(float).tolist()]


def _columns(xy: NDArray[Any], sigma: NDArray[Any], angle: NDArray[Any]) -> Report:
    return {
        "x": _short(xy[:, 0], 2), "y": _short(xy[:, 1], 2),
        "s": _short(sigma, 3), "t": _short(angle, 4),
    }  # fmt: skip


def preview(picture: Picture) -> bytes:
    """Return a JPEG of at most 2,048 pixels a side."""
    return crop(picture, (0, 0, *picture.size), PREVIEW)


def crop(picture: Picture, box: tuple[int, int, int, int], most: int) -> bytes:
    """Return a JPEG of a box (left, top, width, height), of at most ``most`` pixels a side."""
    left, top, width, height = box
    w, h = picture.size
    x, y = max(0, left), max(0, top)
    bottom, right = min(h, max(y + 1, top + height)), min(w, max(x + 1, left + width))
    part = picture.colour[y:bottom, x:right]
    if part.size == 0:
        raise InputError("that part lies outside the picture")
    scale = min(1.0, most / max(part.shape[:2]))
    if scale < 1:
        size = max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale))
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    return encoded(part, ".jpg")


def encoded(pixels: Pixels, suffix: str) -> bytes:
    """Return the file of an image in RGB or grey, in the format of ``suffix``."""
    bgr = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    success, data = cv2.imencode(suffix, np.ascontiguousarray(bgr))
    if not success:
        raise InputError(f"a picture of {pixels.shape} cannot be encoded")
    return bytes(data.tobytes())


def _uri(pixels: Pixels) -> str:
    return "data:image/png;base64," + base64.b64encode(encoded(pixels, ".png")).decode()


def patch(grey: NDArray[np.float32], frame: NDArray[np.float64], reach: float) -> NDArray[Any]:
    """Return a patch (48, 48) of the image in the axes of a frame, ``reach`` σ to each side."""
    side = (np.arange(PATCH) + 0.5) * 2 / PATCH - 1
    u, v = np.meshgrid(reach * side, reach * side)
    x, y = (frame[k, 0] * u + frame[k, 1] * v + frame[k, 2] for k in (0, 1))
    sigma = float(np.sqrt(abs(np.linalg.det(frame[:, :2]))))
    step = 2 * reach * sigma / PATCH
    # The part is shrunk and blurred before it is sampled, against aliasing.
    around = int(np.ceil(reach * sigma * 1.5)) + 8
    cx, cy = round(float(frame[0, 2])), round(float(frame[1, 2]))
    top, left = max(0, cy - around), max(0, cx - around)
    part = grey[top : cy + around + 1, left : cx + around + 1]
    if part.size == 0:
        return np.zeros((PATCH, PATCH), np.float32)
    shrink = max(1, int(step))
    if shrink > 1:
        size = tuple(max(1, n // shrink) for n in part.shape[::-1])
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.float32)
    if step > 1:
        part = np.asarray(cv2.GaussianBlur(part, (0, 0), 0.5 * step / shrink), np.float32)
    u, v = ((w + 0.5) / shrink - 0.5 for w in (x - left, y - top))
    return cv2.remap(
        part, u.astype(np.float32), v.astype(np.float32), cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
    )  # fmt: skip


def _grey_byte(values: NDArray[Any]) -> Pixels:
    low, high = float(values.min()), float(values.max())
    return np.asarray(255 * (values - low) / max(high - low, 1e-9)).astype(np.uint8)


def density_picture(values: NDArray[Any]) -> Pixels:
    """Return a picture of the gradient density: magnitude as brightness, direction as hue."""
    measured = density.measure(values[None].astype(np.float32), recipes.descriptor("sift").kernel)
    weight = measured.weights[0].reshape(PATCH, PATCH)
    angle = np.mod(measured.angles[0].reshape(PATCH, PATCH), 2 * np.pi)
    bright = np.sqrt(weight / max(float(weight.max()), 1e-12))
    hsv = np.stack([angle * (90 / np.pi), np.full_like(angle, 190), 255 * bright], -1)
    return np.asarray(cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB), np.uint8)


def detail(session: Session, pair: Matched, index: int) -> Report:
    """Return both patches of a match, with their densities and descriptors."""
    if not 0 <= index < len(pair.indices):
        raise InputError(f"there are {len(pair.indices)} matches, and none has number {index}")
    sides = []
    for side, features, row in zip("ab", pair.features, pair.indices[index], strict=True):
        values = patch(session.picture(side).grey, features.frames.maps[row], REACH)
        sides.append({
            "patch": _uri(_grey_byte(values)), "density": _uri(density_picture(values)),
            "descriptor": _short(np.asarray(features.descriptors[row], float), 5),
        })  # fmt: skip
    return {
        "a": sides[0], "b": sides[1], "distance": float(pair.distances[index]),
        "ratio": float(pair.ratios[index]), "residual": float(min(pair.residuals[index], 1e6)),
    }  # fmt: skip


def responses(picture: Picture, x: float, y: float, sigma: float) -> Report:
    """Return response maps h(β, ·) around a point, for SIFT and heat in eight directions."""
    w, h = picture.size
    if not (0 <= x < w and 0 <= y < h and 0 < sigma < max(w, h)):
        raise InputError("that point lies outside the picture")
    frame = np.array([[sigma, 0, x], [0, sigma, y]])
    reach = SquarePatch(PATCH).half_width
    values = patch(picture.grey, frame, reach)
    small = cv2.resize(values, (MAPS, MAPS), interpolation=cv2.INTER_AREA)
    angles = np.arange(8) * np.pi / 4
    maps = {}
    for name in ("sift", "heat"):
        response = engine.response_map(small, name, beta=angles)
        peak = max(float(response.max()), 1e-12)
        maps[name] = [
            _uri(cv2.applyColorMap((255 * np.clip(part / peak, 0, 1)).astype(np.uint8),
                                   cv2.COLORMAP_INFERNO)[..., ::-1])
            for part in response
        ]  # fmt: skip
    return {"patch": _uri(_grey_byte(values)), "angles": np.degrees(angles).tolist(), "maps": maps}


def _shrunk(grey: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    small = cv2.resize(grey, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)


def aligned(session: Session, x: float, y: float, size: int) -> Report:
    """Return the path of ``align`` over σ, for a square of the first picture in the second."""
    a, b = session.picture("a"), session.picture("b")
    w, h = a.size
    size = int(np.clip(size, 32, min(256, w, h)))
    left = int(np.clip(round(x) - size // 2, 0, w - size))
    top = int(np.clip(round(y) - size // 2, 0, h - size))
    template = a.grey[top : top + size, left : left + size]
    shrink = min(1.0, 1200 / max(b.size))
    image = b.grey
    if shrink < 1:
        image, template = (_shrunk(pixels, shrink) for pixels in (image, template))
    alignment = align.align(template, image)
    side = template.shape[0] - 1
    corners = np.array([[0, 0, 1], [side, 0, 1], [side, side, 1], [0, side, 1]], float)
    steps = [
        {"sigma": float(step.sigma) / shrink, "energy": float(step.cost),
         "corners": (corners @ np.asarray(step.point).T / shrink).round(2).tolist()}
        for step in alignment.path
    ]  # fmt: skip
    return {
        "template": [left, top, size], "steps": steps, "converged": alignment.converged,
        "confidence": alignment.confidence, "reason": alignment.reason,
    }  # fmt: skip
