"""What the page shows: two pictures, their matches, and everything about one of them."""

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
from caloric.errors import InputError, unknown
from caloric.features import Features
from caloric.image import reading
from caloric.image.pixels import as_unit_range, to_grey
from caloric.matching import geometry, neighbours
from caloric.matching.geometry import Model

PREVIEW = 2048  # pixels of the longer side, sent first
PIXELS = 100_000_000  # of a picture, at most
RATIO = 0.9
THRESHOLD = 2.0
PATCH = 48  # pixels of a patch that is shown
MAPS = 20  # points of a response map's side
REACH = 10.0  # σ to each side of a patch that is shown; most of any descriptor
_KEPT = 8  # features and pairs

T = TypeVar("T")
Report = dict[str, Any]
Pixels = NDArray[np.uint8]
MODELS = ("homography", "fundamental", "affine")


@dataclass(frozen=True, eq=False)
class Picture:
    """One of the two: its name, its pixels in RGB and in grey."""

    name: str
    colour: Pixels
    grey: NDArray[np.float32]

    @classmethod
    def of(cls, name: str, data: bytes) -> "Picture":
        """Decoded; a file that is no picture, or too large, is an error that names it."""
        try:
            pixels = reading.decode(data, PIXELS)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls.of_pixels(name, pixels)

    @classmethod
    def of_pixels(cls, name: str, pixels: NDArray[np.generic]) -> "Picture":
        """Of an image that is read already."""
        grey = to_grey(pixels)
        if 0 in grey.shape:
            raise InputError(f"{name}: no pixels in it")
        return cls(name, _colour(pixels, grey), grey)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.grey.shape[1], self.grey.shape[0]


def _colour(pixels: NDArray[np.generic], grey: NDArray[np.float32]) -> Pixels:
    if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return np.asarray(pixels, np.uint8)
    unit = np.repeat(grey[:, :, None], 3, 2)
    if pixels.ndim == 3 and pixels.shape[2] >= 3:
        whole = as_unit_range(pixels, "image")
        unit = whole[..., :3]
        if whole.shape[2] == 4:  # seen on white, as its grey is
            unit = 1 + whole[..., 3:] * (unit - 1)
    return np.clip(np.rint(255 * unit), 0, 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Matched:
    """The features of both, their mutual nearest neighbours and the geometry of the good ones."""

    features: tuple[Features, Features]
    indices: NDArray[np.intp]
    distances: NDArray[np.float32]
    ratios: NDArray[np.floating]
    residuals: NDArray[np.float64]
    model: Model
    matrix: NDArray[np.float64] | None


@dataclass
class Session:
    """Two places for pictures, and what was computed of them; one thread at a time."""

    pictures: dict[str, Picture] = field(default_factory=dict)
    most: int = 4000
    chosen: dict[str, str] = field(default_factory=dict)  # descriptor and model, to begin with
    _features: OrderedDict[tuple[Any, ...], Features] = field(default_factory=OrderedDict)
    _matched: OrderedDict[tuple[Any, ...], Matched] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def put(self, side: str, picture: Picture) -> None:
        """In place of what was there, and of all that was made of it.

        It does not wait for what is being computed.
        """
        before = self.pictures.get(_side(side))
        self.pictures[side] = picture
        for table in (self._features, self._matched):
            for key in [key for key in list(table) if before in key]:
                table.pop(key, None)

    def picture(self, side: str) -> Picture:
        """On one side."""
        found = self.pictures.get(_side(side))
        if found is None:
            raise InputError(f"there is no picture {side!r} yet")
        return found

    def matched(self, descriptor: str, model: str) -> Matched:
        """Of both pictures; kept for the next who asks."""
        recipes.descriptor(descriptor)
        if model not in MODELS:
            raise unknown("model", model, MODELS)
        a, b = self.picture("a"), self.picture("b")
        with self._lock:
            key = (a, b, descriptor, model)
            found = _recall(self._matched, key)
            if found is None:
                both = self._extracted(a, descriptor), self._extracted(b, descriptor)
                found = _keep(self._matched, key, matched(both, cast(Model, model)))
            return found

    def _extracted(self, picture: Picture, descriptor: str) -> Features:
        key = (picture, descriptor)
        found = _recall(self._features, key)
        if found is None:
            made = pipeline.extract(picture.grey, descriptor, max_features=self.most)
            found = _keep(self._features, key, made)
        return found


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
    """All mutual nearest neighbours with their ratios, so that the page can choose."""
    a, b = both
    none = np.zeros(0, np.float32)
    if len(a) == 0 or len(b) == 0:
        return Matched(both, np.zeros((0, 2), np.intp), none, none, none.astype(float), model, None)
    values = [np.ascontiguousarray(f.descriptors, np.float32) for f in both]
    near = neighbours.neighbours(values[0], values[1], b.frames.xy, 10.0)
    rows = np.flatnonzero(near.mutual)
    ratios = near.first[rows] / np.maximum(near.second[rows], 1e-12)
    order = np.argsort(ratios, kind="stable")
    rows, ratios = rows[order], ratios[order]
    indices = np.stack([rows, near.nearest[rows]], 1)
    p, q = a.frames.xy[indices[:, 0]], b.frames.xy[indices[:, 1]]
    good = ratios <= ratio
    found = geometry.estimate(p[good], q[good], model=model, threshold=threshold)
    residuals = np.full(len(p), np.inf)
    if found.matrix is not None:
        residuals = geometry.residual(p, q, model, found.matrix)
    return Matched(both, indices, near.first[rows], ratios, residuals, model, found.matrix)


def choices() -> Report:
    """What the page can be asked for."""
    return {
        "descriptors": [*recipes.descriptors(), *recipes.VARIANTS],
        "models": list(MODELS),
        "defaults": {"ratio": RATIO, "threshold": THRESHOLD},
    }


def summary(found: Matched) -> Report:
    """All matches as columns of numbers, best ratio first."""
    a, b = (f.frames for f in found.features)
    i, j = found.indices.T
    return {
        "features": [len(a), len(b)],
        "model": found.model,
        "matrix": None if found.matrix is None else found.matrix.tolist(),
        "a": _columns(a.xy[i], a.sigma[i], a.angle[i]),
        "b": _columns(b.xy[j], b.sigma[j], b.angle[j]),
        "distance": _short(found.distances, 4),
        "ratio": _short(found.ratios, 4),
        "residual": _short(np.minimum(found.residuals, 1e6), 3),
    }


def _short(values: NDArray[Any], digits: int) -> list[float]:
    return [round(v, digits) for v in values.astype(float).tolist()]


def _columns(xy: NDArray[Any], sigma: NDArray[Any], angle: NDArray[Any]) -> Report:
    return {
        "x": _short(xy[:, 0], 2), "y": _short(xy[:, 1], 2),
        "s": _short(sigma, 3), "t": _short(angle, 4),
    }  # fmt: skip


def preview(picture: Picture) -> bytes:
    """A JPEG of at most 2,048 pixels."""
    return crop(picture, (0, 0, *picture.size), PREVIEW)


def crop(picture: Picture, box: tuple[int, int, int, int], most: int) -> bytes:
    """A JPEG of a part, left, top, width and height, of at most so many pixels a side."""
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
    """The file of an image in RGB or grey."""
    bgr = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    done, data = cv2.imencode(suffix, np.ascontiguousarray(bgr))
    if not done:
        raise InputError(f"a picture of {pixels.shape} cannot be encoded")
    return bytes(data.tobytes())


def _uri(pixels: Pixels) -> str:
    return "data:image/png;base64," + base64.b64encode(encoded(pixels, ".png")).decode()


def patch(grey: NDArray[np.float32], frame: NDArray[np.float64], reach: float) -> NDArray[Any]:
    """(48, 48) of the image in a frame's own axes, ``reach`` σ to each side."""
    side = (np.arange(PATCH) + 0.5) * 2 / PATCH - 1
    u, v = np.meshgrid(reach * side, reach * side)
    x, y = (frame[k, 0] * u + frame[k, 1] * v + frame[k, 2] for k in (0, 1))
    sigma = float(np.sqrt(abs(np.linalg.det(frame[:, :2]))))
    step = 2 * reach * sigma / PATCH
    # What is smaller than a point of the patch would flicker.
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
    """How much gradient is where, as brightness, and its direction as colour."""
    seen = density.measure(values[None].astype(np.float32), recipes.descriptor("sift").kernel)
    weight = seen.weights[0].reshape(PATCH, PATCH)
    angle = np.mod(seen.angles[0].reshape(PATCH, PATCH), 2 * np.pi)
    bright = np.sqrt(weight / max(float(weight.max()), 1e-12))
    hsv = np.stack([angle * (90 / np.pi), np.full_like(angle, 190), 255 * bright], -1)
    return np.asarray(cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB), np.uint8)


def detail(session: Session, found: Matched, index: int) -> Report:
    """Both patches of a match, their densities and descriptors."""
    if not 0 <= index < len(found.indices):
        raise InputError(f"there are {len(found.indices)} matches, and none is number {index}")
    sides = []
    for side, own, row in zip("ab", found.features, found.indices[index], strict=True):
        values = patch(session.picture(side).grey, own.frames.maps[row], REACH)
        sides.append({
            "patch": _uri(_grey_byte(values)), "density": _uri(density_picture(values)),
            "descriptor": _short(np.asarray(own.descriptors[row], float), 5),
        })  # fmt: skip
    return {
        "a": sides[0], "b": sides[1], "distance": float(found.distances[index]),
        "ratio": float(found.ratios[index]), "residual": float(min(found.residuals[index], 1e6)),
    }  # fmt: skip


def responses(picture: Picture, x: float, y: float, sigma: float) -> Report:
    """h(β, ·) around a point for SIFT and for heat, eight directions each."""
    w, h = picture.size
    if not (0 <= x < w and 0 <= y < h and 0 < sigma < max(w, h)):
        raise InputError("that point lies outside the picture")
    frame = np.array([[sigma, 0, x], [0, sigma, y]])
    reach = SquarePatch(PATCH).half_width
    own = patch(picture.grey, frame, reach)
    small = cv2.resize(own, (MAPS, MAPS), interpolation=cv2.INTER_AREA)
    angles = np.arange(8) * np.pi / 4
    maps = {}
    for name in ("sift", "heat"):
        found = engine.response_map(small, name, beta=angles)
        peak = max(float(found.max()), 1e-12)
        maps[name] = [
            _uri(cv2.applyColorMap((255 * np.clip(one / peak, 0, 1)).astype(np.uint8),
                                   cv2.COLORMAP_INFERNO)[..., ::-1])
            for one in found
        ]  # fmt: skip
    return {"patch": _uri(_grey_byte(own)), "angles": np.degrees(angles).tolist(), "maps": maps}


def _shrunk(grey: NDArray[np.float32], by: float) -> NDArray[np.float32]:
    small = cv2.resize(grey, None, fx=by, fy=by, interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)


def aligned(session: Session, x: float, y: float, size: int) -> Report:
    """The path of ``align`` of a square of the first picture within the second, over σ."""
    a, b = session.picture("a"), session.picture("b")
    w, h = a.size
    size = int(np.clip(size, 32, min(256, w, h)))
    left = int(np.clip(round(x) - size // 2, 0, w - size))
    top = int(np.clip(round(y) - size // 2, 0, h - size))
    template = a.grey[top : top + size, left : left + size]
    shrink = min(1.0, 1200 / max(b.size))
    image = b.grey
    if shrink < 1:
        image, template = (_shrunk(one, shrink) for one in (image, template))
    found = align.align(template, image)
    side = template.shape[0] - 1
    corners = np.array([[0, 0, 1], [side, 0, 1], [side, side, 1], [0, side, 1]], float)
    steps = [
        {"sigma": float(step.sigma) / shrink, "energy": float(step.cost),
         "corners": (corners @ np.asarray(step.point).T / shrink).round(2).tolist()}
        for step in found.path
    ]  # fmt: skip
    return {
        "template": [left, top, size], "steps": steps, "converged": found.converged,
        "confidence": found.confidence, "reason": found.reason,
    }  # fmt: skip
