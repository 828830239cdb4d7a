"""Simulated views: an image as a camera would see it from aside.

A view from aside is, near a point, an affine map: the image is turned by φ and then compressed by
the tilt t along x, t = 1 / cos of the angle from which a plane is seen (Morel and Yu, 2009). Before
the compression the image is blurred along x by 0.8 √(t² − 1), so that a view has the sharpness of a
photograph and nothing aliases.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, cos, pi, prod, sin, sqrt

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import Source
from caloric.runtime import threads
from caloric.runtime.indexing import first_of_equal, hashes
from caloric.types import FloatArray

# No view of a plane up to the largest tilt is farther than a tilt of 1.71 from one of these, and
# our descriptor keeps half of its right matches up to a tilt of 1.7 (docs/wide.md). Whole numbers,
# so that pixels are left out and not interpolated.
TILTS = (2, 4, 8)
TURN = 60.0  # degrees between the turns of a tilt t, times t
FEATURES = 1500  # per view, divided by its tilt: there are as many more views
BLUR = 0.8  # pixels of the compressed view, of a photograph
_PIXELS = 4e6  # of an image whose views are taken; a larger one is reduced first
_THINNEST = 32  # pixels: the shorter side of an image that views are taken of
_EMPTIEST = 8  # times the image: the largest view
_LONGEST = 16_000  # pixels turned at once: OpenCV addresses them with 16 bits
MARGIN = 3.0  # pixels at the border of the image, where features would be of the border itself


@dataclass(frozen=True)
class View:
    """An image turned by ``turn`` radians, then compressed by ``tilt`` along x."""

    tilt: int
    turn: float

    def to_view(self, size: tuple[int, int]) -> FloatArray:
        """Return the map (2, 3) from an image of size (h, w) to the view, before compression."""
        h, w = size
        c, s = cos(self.turn), sin(self.turn)
        turned = np.array([[c, -s], [s, c]])
        corners = np.array([[0, 0], [w - 1, 0], [0, h - 1], [w - 1, h - 1]]) @ turned.T
        return np.concatenate([turned, -corners.min(0)[:, None]], 1)

    def to_image(self, size: tuple[int, int]) -> FloatArray:
        """Return the map (2, 3) from the view to an image of size (h, w)."""
        back = cv2.invertAffineTransform(self.to_view(size))
        return np.asarray(back * np.array([self.tilt, 1, 1]))

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size (h, w) of the view of an image of size (h, w)."""
        h, w = size
        c, s = abs(cos(self.turn)), abs(sin(self.turn))
        across, down = (w - 1) * c + (h - 1) * s, (w - 1) * s + (h - 1) * c
        return int(down + 1e-9) + 1, int(across / self.tilt + 1e-9) + 1


def turns(tilt: int, size: tuple[int, int]) -> list[View]:
    """Return the views with a tilt of an image of size (h, w).

    A view of tilt t looks like its neighbors if it is turned by about 1 / t, so there are more
    turns for larger tilts; a turn by π gives the same view upside down. Tilt 1 is the image itself.
    There are none of an image too thin to be recognized from aside, and of one so long that most of
    a turned view is empty only some.
    """
    if tilt == 1:
        return [View(1, 0.0)]
    if min(size) < _THINNEST:
        return []
    count = ceil(180 * tilt / TURN)
    views = (View(tilt, i * pi / count) for i in range(count))
    return [v for v in views if tilt * prod(v.size(size)) <= _EMPTIEST * prod(size)]


def reduction(size: tuple[int, int]) -> int:
    """Return by how much an image of size (h, w) is reduced before its views are taken."""
    return ceil(sqrt(size[0] * size[1] / _PIXELS))


def reduced(image: Source, factor: int) -> Source:
    """Return an image of which each pixel is the mean of factor x factor; a rest is left out."""
    h, w = (n // factor for n in image.size)

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        pixels = image.read(
            *(slice(factor * part.start, factor * part.stop) for part in (rows, columns))
        )
        down, across = (part.stop - part.start for part in (rows, columns))
        blocks = pixels.reshape(down, factor, across, factor)
        return np.asarray(blocks.mean((1, 3), dtype=np.float32))

    return Source((h, w), read)


def enlarged(back: FloatArray, factor: int) -> FloatArray:
    """Return a map (2, 3) to a reduced image as one to the image itself."""
    result = factor * back
    result[:, 2] += (factor - 1) / 2
    return np.asarray(result)


def seen(image: Source, view: View) -> Source:
    """Return the view of an image; only what is read of it is computed."""
    forward = view.to_view(image.size)
    back = cv2.invertAffineTransform(forward)
    kernel = taps(view.tilt)
    reach = len(kernel) // 2

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        if rows.stop - rows.start > _LONGEST:
            return np.concatenate([read(part, columns) for part in _halves(rows)])
        if view.tilt * (columns.stop - columns.start) > _LONGEST:
            return np.concatenate([read(rows, part) for part in _halves(columns)], 1)
        left, right = view.tilt * columns.start - reach, view.tilt * (columns.stop - 1) + reach + 1
        top, bottom = rows.start, rows.stop
        corners = np.array([[x, y, 1] for x in (left, right) for y in (top, bottom)]) @ back.T
        low = np.floor(corners.min(0)).astype(int) - 2
        high = np.ceil(corners.max(0)).astype(int) + 3
        (x0, x1), (y0, y1) = (
            _window(low[axis], high[axis], length)
            for axis, length in ((0, image.size[1]), (1, image.size[0]))
        )
        part = image.read(slice(y0, y1), slice(x0, x1))
        shift = forward.copy()
        shift[:, 2] += forward[:, :2] @ (x0, y0) - (left, top)
        turned = cv2.warpAffine(
            part, shift, (right - left, bottom - top),
            flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
        blurred = cv2.sepFilter2D(turned, cv2.CV_32F, kernel, np.ones(1, np.float32))
        return np.ascontiguousarray(blurred[:, reach : right - left - reach : view.tilt])

    return Source(view.size(image.size), read)


def _halves(span: slice) -> tuple[slice, slice]:
    middle = (span.start + span.stop) // 2
    return slice(span.start, middle), slice(middle, span.stop)


def _window(low: int, high: int, length: int) -> tuple[int, int]:
    """Return the part of 0 to ``length`` that low to high covers, one pixel at least."""
    start = min(max(low, 0), length - 1)
    return start, min(max(high, start + 1), length)


@cache
def taps(tilt: int) -> NDArray[np.float32]:
    """Return the Gaussian that blurs an image along x before it is compressed by a tilt."""
    if tilt == 1:
        return np.ones(1, np.float32)
    sigma = BLUR * sqrt(tilt**2 - 1)
    reach = ceil(3.5 * sigma)
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum(), np.float32)


def inside(xy: FloatArray, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which places (n, 2) of an image are not at or beyond its border."""
    h, w = size
    return np.asarray(((xy >= MARGIN) & (xy <= np.array([w, h]) - 1 - MARGIN)).all(1))


def largest_tilt(views: object) -> int:
    """Return the largest tilt that is asked for, 1 for none; raise an error if it is wrong."""
    if views is None:
        return 1
    if isinstance(views, bool) or not isinstance(views, int | np.integer) or views not in TILTS:
        names = ", ".join(map(str, TILTS))
        raise InputError(
            f"views must be the largest tilt, {names}, or None (match_images also takes "
            f'"auto"); got {views!r}'
        )
    return int(views)


def new_shapes(maps: FloatArray, known: int) -> NDArray[np.intp]:
    """Return the rows of frames (n, 2, 3) at whose place no frame before is of their shape.

    The first ``known`` rows are returned in any case.
    Alike are frames whose centers are nearer than half a σ, whose sizes and axes differ by less
    than a quarter and whose directions by less than 20 degrees, as far as cells show it.
    """
    strips = threads.strips(len(maps), 2048)
    cells = threads.each(lambda rows: hashes(_cells(maps[rows.start : rows.stop])), strips)
    new = first_of_equal(np.concatenate(cells)) if cells else np.zeros(0, np.intp)
    return np.concatenate([np.arange(known), new[new >= known]])


def _cells(maps: FloatArray) -> NDArray[np.int64]:
    """Return whole numbers (n, 6) that are the same for frames (n, 2, 3) that are alike."""
    a, b, c, d = (maps[:, i, j] for i in range(2) for j in range(2))
    # A = R(β) diag(p, q) R(α): β + α is the direction, and β − α the axes, of A.
    plus, minus = np.hypot(a + d, c - b), np.hypot(a - d, b + c)
    direction, axes = np.arctan2(c - b, a + d), np.arctan2(b + c, a - d)
    size = np.round(np.log(np.sqrt(np.maximum(np.abs(a * d - b * c), 1e-300))) / _ALIKE)
    stretch = np.log(np.maximum(plus + minus, 1e-300) / np.maximum(np.abs(plus - minus), 1e-300))
    place = maps[:, :, 2] / (_NEAR * np.exp(_ALIKE * size))[:, None]
    # The axes of the ellipse in the image are at (direction + axes) / 2.
    turned = np.round(direction / _TURNED) % round(2 * pi / _TURNED)
    shape = stretch[:, None] * np.stack([np.cos(direction + axes), np.sin(direction + axes)], 1)
    cells = np.concatenate([place, size[:, None], shape / (2 * _ALIKE), turned[:, None]], 1)
    return np.round(cells).astype(np.int64)


_NEAR, _ALIKE, _TURNED = 0.5, 0.25, np.radians(20)  # σ, logarithms, radians
