"""Plots of features and matches."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image.inputs import read_image
from caloric.matching.geometry import Geometry
from caloric.matching.neighbors import Matches
from caloric.types import FloatArray, ImageLike
from caloric.viz.figure import DIMMED, GAP, Figure, rgb, write

MAX_LINES = 150
# Sizes of panels in pixels.
_MAX_HEIGHT = 900
_MAX_WIDTH = 1200
_MIN_SIDE = 300  # shorter side, if the longer side is at most _MAX_SIDE
_MAX_SIDE = 2400
_STACKED = 2.5  # images are stacked if both have a larger aspect ratio (width / height)
_HEADER = 36  # pixels of the title
_TEXT = 14  # pixels
_LEGEND = 214  # pixels


def draw_features(image: ImageLike, features: Features | Frames, max_features: int = 500) -> Figure:
    """Draw features onto their image: an ellipse at 3 σ for each, and a line in its direction.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        The image: see :func:`caloric.read_image`.
    features : Features or Frames
        Its features.
    max_features : int
        Draw at most this many features, starting from the first.

    Returns
    -------
    Figure
        The image with its features; ``save(path)`` and ``show()``.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from caloric import viz
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> viz.draw_features(image, caloric.detect(image, max_features=20))
    Figure(160 x 120)
    """
    frames = features.frames if isinstance(features, Features) else features
    if not isinstance(frames, Frames):
        raise InputError("draw_features needs caloric.Features or Frames; see Frames.from_opencv")
    canvas = rgb(image)
    angles = np.linspace(0, 2 * np.pi, 33)
    circle = 3 * np.stack([np.cos(angles), np.sin(angles)])
    for a in frames.maps[:max_features]:
        # A line from the center along +x, then the ellipse.
        outline = np.concatenate([np.zeros((2, 1)), circle], 1)
        points = np.rint(16 * (a[:, :2] @ outline + a[:, 2:])).astype(np.int32).T
        for color, width in (((0, 0, 0), 3), ((255, 225, 60), 1)):
            cv2.polylines(canvas, [points], False, color, width, cv2.LINE_AA, 4)
    return Figure(canvas)


def draw_matches(
    image_a: ImageLike,
    image_b: ImageLike,
    a: Features | Frames | ArrayLike,
    b: Features | Frames | ArrayLike,
    matches: Matches | None = None,
    geometry: Geometry | None = None,
    *,
    errors: ArrayLike | None = None,
    limit: float = 2.0,
    title: str = "",
    max_lines: int = MAX_LINES,
) -> Figure:
    """Draw two images next to each other, with a line for each match.

    Parameters
    ----------
    image_a, image_b : array, PIL image, path, bytes, file object or tensor
        The images: see :func:`caloric.read_image`. They are drawn side by side, or stacked if both
        are very wide.
    a, b : Features, Frames, or array (m, 2)
        The matched features; or points, where row i of ``a`` matches row i of ``b``.
    matches : Matches, optional
        The result of :func:`caloric.match`.
    geometry : Geometry, optional
        The result of :func:`caloric.verify`: only its inliers are drawn, colored by residual.
    errors : array (m,), optional
        The error of each match, inlier or outlier: 0 is green, ``limit`` is orange.
    limit : float
        The error, in pixels, of an orange line.
    title : str
        Written above the images.
    max_lines : int
        Draw at most this many lines, spread over the first image; the title reports the number.

    Returns
    -------
    Figure
        Both images with the lines; ``save(path)`` and ``show()``.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from caloric import viz
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a, b = caloric.extract([image, image[:, 20:]], max_features=50)
    >>> figure = viz.draw_matches(image, image[:, 20:], a, b, caloric.match(a, b))
    >>> figure.save("matches.png")  # doctest: +SKIP
    """
    return arranged(
        image_a, image_b, a, b, matches, geometry, errors=errors, limit=limit, title=title,
        max_lines=max_lines,
    ).figure()  # fmt: skip


@dataclass(frozen=True, eq=False)
class MatchDrawing:
    """A drawing of matches before its lines are rendered.

    Parameters
    ----------
    canvas : array (h, w, 3) of uint8
        Both images, dimmed, below an empty header.
    a, b : array (n, 2)
        The ends of the lines on the canvas.
    errors : array (n,)
        The error of each line, from 0 (green) to 1 (orange).
    texts : tuple of (str, (x, y), size)
        Lines of text: left end, vertical center and height in pixels.
    """

    canvas: NDArray[np.uint8]
    a: FloatArray
    b: FloatArray
    errors: FloatArray
    texts: tuple[tuple[str, tuple[int, int], int], ...]

    def figure(self) -> Figure:
        """Return the drawing as pixels."""
        canvas = self.canvas.copy()
        _draw_lines(canvas, self.a, self.b, self.errors)
        for text, at, size in self.texts:
            write(canvas, text, at, size)
        return Figure(canvas)


def arranged(
    image_a: ImageLike,
    image_b: ImageLike,
    a: Features | Frames | ArrayLike,
    b: Features | Frames | ArrayLike,
    matches: Matches | None = None,
    geometry: Geometry | None = None,
    *,
    errors: ArrayLike | None = None,
    limit: float = 2.0,
    title: str = "",
    max_lines: int = MAX_LINES,
) -> MatchDrawing:
    """Return the drawing of :func:`draw_matches`, with the same parameters."""
    if not limit > 0:
        raise InputError(f"limit must be a positive number of pixels, got {limit!r}")
    xy_a, xy_b = _matched_points(a, b, matches)
    if geometry is not None and len(geometry.inliers) != len(xy_a):
        raise InputError(
            "geometry does not belong to these matches; pass the matches it was estimated from"
        )
    distances = None if errors is None else np.asarray(errors, np.float64)
    if geometry is not None:
        distances = geometry.residuals if distances is None else distances
        xy_a, xy_b = xy_a[geometry.inliers], xy_b[geometry.inliers]
        distances = distances[geometry.inliers]
    if len(xy_a) != len(xy_b) or (distances is not None and len(distances) != len(xy_a)):
        raise InputError("draw_matches: points and errors must have the same length")
    images = [read_image(image) for image in (image_a, image_b)]
    if not all(image.size for image in images):
        raise InputError("draw_matches: an image has no pixels")
    sizes = [(image.shape[0], image.shape[1]) for image in images]
    panels, stacked = _panels(sizes)
    resized = [rgb(image, panel) for image, panel in zip(images, panels, strict=True)]
    (h_a, w_a), (h_b, w_b) = panels
    corners = ((0, _HEADER), (0, _HEADER + h_a + GAP) if stacked else (w_a + GAP, _HEADER))
    width, height = corners[1][0] + w_b, corners[1][1] + h_b
    canvas = np.full((max(height, _HEADER + h_a), max(width, w_a), 3), 255, np.uint8)
    for pixels, (left, top) in zip(resized, corners, strict=True):
        # Dimmed, so that lines are visible on any image.
        canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = DIMMED * pixels
    drawn = spread(xy_a, max_lines)
    ends = [
        (xy[drawn] + 0.5) * (np.array(panel[::-1]) / size[::-1]) - 0.5 + corner
        for xy, panel, size, corner in zip((xy_a, xy_b), panels, sizes, corners, strict=True)
    ]
    shares = np.zeros(len(drawn)) if distances is None else distances[drawn] / limit
    title_width, texts = canvas.shape[1] - 16, []
    if distances is not None and len(drawn) and canvas.shape[1] > 500:
        texts = _legend(canvas, limit)
        title_width -= _LEGEND
    count = "" if len(xy_a) <= max_lines else f" ({max_lines} drawn)"
    texts.append((_fitting(title, count, title_width), (8, _HEADER // 2), _TEXT))
    return MatchDrawing(canvas, ends[0], ends[1], shares, tuple(texts))


def _panels(sizes: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
    """Return the sizes (h, w) at which two images are drawn, and whether they are stacked.

    Wide images are stacked and have the same width; others are side by side and have the same
    height. Images are not enlarged beyond the larger of the two.
    """
    aspects = [w / h for h, w in sizes]
    stacked = min(aspects) > _STACKED
    if stacked:
        width = min(_MAX_SIDE, max(w for _, w in sizes))
        return [(max(1, round(width / aspect)), width) for aspect in aspects], True
    height = min(_MAX_HEIGHT, _MAX_WIDTH / max(aspects))
    # Narrow images are drawn larger, within limits.
    height = max(height, min(_MAX_SIDE, _MIN_SIDE * max(1, 1 / min(aspects))))
    height = max(1, round(min(height, max(h for h, _ in sizes))))
    return [(height, max(1, round(height * aspect))) for aspect in aspects], False


def colors_of(share: FloatArray) -> NDArray[np.uint8]:
    """Return RGB colors (n, 3), from green at 0 through yellow to orange at 1."""
    share = np.clip(share, 0, 1)[:, None]
    stops = np.array([[60, 220, 110], [255, 225, 60], [255, 120, 40]], float)
    low, high = stops[:-1], stops[1:]
    part = np.minimum((2 * share).astype(int), 1)[:, 0]
    inside = 2 * share - part[:, None]
    return np.asarray(np.rint(low[part] + inside * (high[part] - low[part])), np.uint8)


def _matched_points(
    a: Features | Frames | ArrayLike, b: Features | Frames | ArrayLike, matches: Matches | None
) -> tuple[FloatArray, FloatArray]:
    """Return the points (m, 2) of matches in both images, refined if the matches are."""
    points = []
    for side in (a, b):
        frames = side.frames if isinstance(side, Features) else side
        try:
            xy = frames.xy if isinstance(frames, Frames) else np.asarray(frames, np.float64)
            points.append(xy.reshape(-1, 2))
        except (TypeError, ValueError):
            raise InputError("points must be Features, Frames, or an array (m, 2)") from None
    if matches is None:
        return points[0], points[1]
    if not isinstance(matches, Matches):
        raise InputError("matches must be caloric.Matches, as caloric.match returns")
    return matches.points(points[0], points[1])


def _draw_lines(canvas: NDArray[np.uint8], a: FloatArray, b: FloatArray, share: FloatArray) -> None:
    """Draw lines from a to b (n, 2), with dark edges so that they are visible everywhere."""
    order = np.argsort(-share, kind="stable")  # worst first, so that the best are on top
    p, q = (np.rint(16 * v).astype(int).tolist() for v in (a, b))  # 4 fractional bits
    colors = colors_of(share).tolist()
    for width, opacity in ((3, 0.25), (1, 0.75)):
        layer = canvas.copy()
        for i in order:
            color = colors[i] if width == 1 else (0, 0, 0)
            cv2.line(layer, p[i], q[i], color, width, cv2.LINE_AA, 4)
        canvas[...] = cv2.addWeighted(layer, opacity, canvas, 1 - opacity, 0)
    for i in order:
        for at in (p[i], q[i]):
            cv2.circle(canvas, at, 16 * 4, (0, 0, 0), -1, cv2.LINE_AA, 4)
            cv2.circle(canvas, at, 16 * 3, colors[i], -1, cv2.LINE_AA, 4)


def _legend(canvas: NDArray[np.uint8], limit: float) -> list[tuple[str, tuple[int, int], int]]:
    """Draw the color scale at the top right; return its texts."""
    bar, right = 90, canvas.shape[1] - 56
    middle = _HEADER // 2
    canvas[middle - 6 : middle + 6, right - bar : right] = colors_of(np.linspace(0, 1, bar))
    return [
        ("error  0", (right - bar - 58, middle), 13),
        (f"{limit:g} px", (right + 6, middle), 13),
    ]


def _fitting(title: str, count: str, width: int) -> str:
    """Return the title, shortened to a width in pixels, with the count at its end."""
    from PIL import ImageFont

    font = ImageFont.load_default(_TEXT)
    text = title + count
    while title and font.getlength(text) > width:
        title = title[:-1]
        text = f"{title}…{count}"
    return text


def spread(xy: FloatArray, max_points: int) -> NDArray[np.intp]:
    """Return the indices of at most ``max_points`` points, spread over the cells of a grid."""
    if len(xy) <= max_points:
        return np.arange(len(xy))
    low, high = xy.min(0), xy.max(0)
    cells = np.floor(12 * (xy - low) / np.maximum(high - low, 1e-9)).astype(int) @ [1, 100]
    order = np.argsort(cells, kind="stable")
    rank = np.empty(len(xy), int)  # within the cell
    for cell in np.unique(cells):
        members = order[cells[order] == cell]
        rank[members] = np.arange(len(members))
    return np.sort(np.lexsort((np.arange(len(xy)), rank))[:max_points])
