"""Simulated oblique views of an image, as in ASIFT (Morel and Yu, 2009).

An oblique view of a plane is locally an affine map of the image: a rotation by φ, then compression
along x by the tilt t = 1 / cos θ, with θ the angle from the surface normal. Before the compression
the image is blurred along x by 0.8 √(t² − 1), which prevents aliasing and gives the view the
sharpness of a photograph.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, cos, pi, prod, sin, sqrt

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import Source
from caloric.runtime import native, threads
from caloric.runtime.indexing import first_of_cells
from caloric.types import FloatArray

# Every oblique view up to the largest tilt is within a relative tilt of 1.71 of one of these, and
# the descriptor keeps half of its correct matches up to a tilt of 1.7 (docs/wide.md). Tilts are
# integers, so that compression is subsampling without interpolation.
TILTS = (2, 4, 8)
ROTATION_STEP = 60.0  # degrees between the views of tilt t, times t
FEATURES = 1500  # per view, divided by its tilt, because there are more views of larger tilts
BLUR = 0.8  # assumed smoothing of a photograph, in pixels
_PIXELS = 4e6  # larger images are reduced first
_MIN_SIDE = 32  # pixels: thinner images have no views
_MAX_AREA = 8  # largest area of a view before compression, relative to the image
_MAX_SPAN = 16_000  # pixels warped at once; OpenCV has 16-bit coordinates
MARGIN = 3.0  # pixels at the image border where features are discarded


@dataclass(frozen=True)
class View:
    """An image rotated by ``angle`` radians, then compressed by ``tilt`` along x."""

    tilt: int
    angle: float

    def to_view(self, size: tuple[int, int]) -> FloatArray:
        """Return the map (2, 3) from an image of size (h, w) to the view, before compression."""
        h, w = size
        c, s = cos(self.angle), sin(self.angle)
        rotation = np.array([[c, -s], [s, c]])
        corners = np.array([[0, 0], [w - 1, 0], [0, h - 1], [w - 1, h - 1]]) @ rotation.T
        return np.concatenate([rotation, -corners.min(0)[:, None]], 1)

    def to_image(self, size: tuple[int, int]) -> FloatArray:
        """Return the map (2, 3) from the view to an image of size (h, w)."""
        back = cv2.invertAffineTransform(self.to_view(size))
        return np.asarray(back * np.array([self.tilt, 1, 1]))

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size (h, w) of the view of an image of size (h, w)."""
        h, w = size
        c, s = abs(cos(self.angle)), abs(sin(self.angle))
        across, down = (w - 1) * c + (h - 1) * s, (w - 1) * s + (h - 1) * c
        return int(down + 1e-9) + 1, int(across / self.tilt + 1e-9) + 1


def views_of(size: tuple[int, int], tilt: int) -> list[View]:
    """Return the views of an image of size (h, w) with one tilt; tilt 1 is the image itself.

    The angles between views are proportional to 1 / tilt, because views of larger tilts change
    faster with the rotation; a rotation by π gives the same view upside down. Thin images have no
    views, and rotations of a long image that leave most of the view empty are omitted.
    """
    if tilt == 1:
        return [View(1, 0.0)]
    if min(size) < _MIN_SIDE:
        return []
    count = ceil(180 * tilt / ROTATION_STEP)
    views = (View(tilt, i * pi / count) for i in range(count))
    return [v for v in views if tilt * prod(v.size(size)) <= _MAX_AREA * prod(size)]


def reduction(size: tuple[int, int]) -> int:
    """Return the factor by which an image of size (h, w) is reduced before views are rendered."""
    return ceil(sqrt(size[0] * size[1] / _PIXELS))


def reduced(image: Source, factor: int) -> Source:
    """Return the image reduced by averaging blocks of factor x factor pixels; a rest is cropped."""
    h, w = (n // factor for n in image.size)

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        pixels = image.read(
            *(slice(factor * part.start, factor * part.stop) for part in (rows, columns))
        )
        down, across = (part.stop - part.start for part in (rows, columns))
        blocks = pixels.reshape(down, factor, across, factor)
        return np.asarray(blocks.mean((1, 3), dtype=np.float32))

    return Source((h, w), read)


def to_full_size(to_reduced: FloatArray, factor: int) -> FloatArray:
    """Return the map (2, 3) to the full image, given the map to the reduced image."""
    result = factor * to_reduced
    result[:, 2] += (factor - 1) / 2
    return np.asarray(result)


def render(image: Source, view: View) -> Source:
    """Return a view of an image; windows of it are computed when they are read."""
    forward = view.to_view(image.size)
    back = cv2.invertAffineTransform(forward)
    kernel = taps(view.tilt)
    reach = len(kernel) // 2

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        if rows.stop - rows.start > _MAX_SPAN:
            return np.concatenate([read(part, columns) for part in _halves(rows)])
        if view.tilt * (columns.stop - columns.start) > _MAX_SPAN:
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
        rotated = cv2.warpAffine(
            part, shift, (right - left, bottom - top),
            flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
        blurred = cv2.sepFilter2D(rotated, cv2.CV_32F, kernel, np.ones(1, np.float32))
        return np.ascontiguousarray(blurred[:, reach : right - left - reach : view.tilt])

    return Source(view.size(image.size), read)


def _halves(span: slice) -> tuple[slice, slice]:
    middle = (span.start + span.stop) // 2
    return slice(span.start, middle), slice(middle, span.stop)


def _window(low: int, high: int, length: int) -> tuple[int, int]:
    """Return the intersection of low to high with 0 to ``length``, at least one pixel."""
    start = min(max(low, 0), length - 1)
    return start, min(max(high, start + 1), length)


@cache
def taps(tilt: int) -> NDArray[np.float32]:
    """Return the Gaussian filter along x before the compression by a tilt."""
    if tilt == 1:
        return np.ones(1, np.float32)
    sigma = BLUR * sqrt(tilt**2 - 1)
    reach = ceil(3.5 * sigma)
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum(), np.float32)


def inside(xy: FloatArray, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return a mask of the positions (n, 2) that are at least MARGIN inside an image."""
    h, w = size
    return np.asarray(((xy >= MARGIN) & (xy <= np.array([w, h]) - 1 - MARGIN)).all(1))


def largest_tilt(views: object) -> int:
    """Return the largest requested tilt, 1 for None; raise InputError if it is invalid."""
    if views is None:
        return 1
    if isinstance(views, bool) or not isinstance(views, int | np.integer) or views not in TILTS:
        names = ", ".join(map(str, TILTS))
        raise InputError(
            f"views must be the maximum tilt ({names}), None, or, for match_images, "
            f'"auto"; got {views!r}'
        )
    return int(views)


def distinct(maps: FloatArray, keep: int) -> NDArray[np.intp]:
    """Return the rows of frames (n, 2, 3) that are not similar to an earlier frame.

    The first ``keep`` rows are always returned. Frames are similar if they are in the same cell:
    half a σ wide in position, a quarter in the logarithms of scale and stretch, and 20 degrees in
    orientation.
    """
    first = first_of_cells(_cells(maps) if native.core() is None else _cells_by_core(maps))
    return np.concatenate([np.arange(keep), first[first >= keep]])


_CELL_XY = 0.5  # σ
_CELL_LOG = 0.25
_CELL_ANGLE = np.radians(20)
_ANGLES = round(2 * pi / _CELL_ANGLE)


def _cells_by_core(maps: FloatArray) -> NDArray[np.int64]:
    """Return the same as :func:`_cells`, by the compiled core."""
    cells = np.empty((len(maps), 6), np.int64)
    native.core().view_cells(
        maps=np.ascontiguousarray(maps, np.float64), threads=threads.usable(), cells=cells,
        constants={
            "xy_width": _CELL_XY, "log_width": _CELL_LOG, "angle_width": _CELL_ANGLE,
            "angles": _ANGLES,
        },
    )  # fmt: skip
    return cells


def _cells(maps: FloatArray) -> NDArray[np.int64]:
    """Return the cells (n, 6) of frames (n, 2, 3)."""
    a, b, c, d = (maps[:, i, j] for i in range(2) for j in range(2))
    # A = R(β) diag(p, q) R(α): β + α is the direction, and β − α the axes, of A.
    plus, minus = np.hypot(a + d, c - b), np.hypot(a - d, b + c)
    direction, axes = np.arctan2(c - b, a + d), np.arctan2(b + c, a - d)
    scale = np.round(np.log(np.sqrt(np.maximum(np.abs(a * d - b * c), 1e-300))) / _CELL_LOG)
    stretch = np.log(np.maximum(plus + minus, 1e-300) / np.maximum(np.abs(plus - minus), 1e-300))
    xy = maps[:, :, 2] / (_CELL_XY * np.exp(_CELL_LOG * scale))[:, None]
    # The axes of the ellipse in the image are at (direction + axes) / 2.
    angle = np.round(direction / _CELL_ANGLE) % _ANGLES
    shape = stretch[:, None] * np.stack([np.cos(direction + axes), np.sin(direction + axes)], 1)
    cells = np.concatenate([xy, scale[:, None], shape / (2 * _CELL_LOG), angle[:, None]], 1)
    return np.round(cells).astype(np.int64)
