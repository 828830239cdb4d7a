"""Pictures of features, matches and alignments.

>>> import numpy as np, caloric
>>> from caloric import viz
>>> image = np.random.default_rng(0).random((120, 160))
>>> features = caloric.extract(image, max_features=20)
>>> viz.draw_features(image, features).pixels.shape
(120, 160, 3)
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image.pixels import as_image, as_unit_range, to_grey
from caloric.matching.geometry import Geometry
from caloric.matching.neighbours import Matches
from caloric.runtime.files import replacing
from caloric.types import FloatArray

MOST_LINES = 150
_GAP = 8
_TALLEST = 900
_HEADER = 36
_DIMMED = 0.6  # the brightness of photographs behind lines
_BACKGROUND, _INK = 255, (20, 20, 20)


@dataclass(frozen=True, eq=False)
class Picture:
    """An RGB picture, ``pixels`` (h, w, 3) uint8. Notebooks show it."""

    pixels: NDArray[np.uint8]

    def __repr__(self) -> str:
        """Return a summary in one line."""
        h, w = self.pixels.shape[:2]
        return f"Picture({w} x {h})"

    def smaller(self, width: int) -> "Picture":
        """Return the picture reduced to a width, if it is wider."""
        h, w = self.pixels.shape[:2]
        if w <= width:
            return self
        size = (width, max(1, round(h * width / w)))
        small = cv2.resize(self.pixels, size, interpolation=cv2.INTER_AREA)
        return Picture(np.asarray(small, np.uint8))

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file."""
        return bytes(cv2.imencode(".png", self.pixels[..., ::-1])[1])

    _repr_png_ = png  # what notebooks ask for

    def save(self, path: str | Path) -> None:
        """Write the picture in the format of the file name's suffix, such as .png or .jpg."""
        path = Path(path)
        check_format(path)
        data = cv2.imencode(path.suffix, self.pixels[..., ::-1])[1]
        with replacing(path) as file:
            file.write(data.tobytes())

    def show(self) -> None:
        """Open the picture in the viewer of this computer."""
        from PIL import Image

        Image.open(io.BytesIO(self.png())).show()


def check_format(path: Path) -> None:
    """Raise an error if pictures cannot be written in the format of a file name."""
    if not path.suffix or not cv2.haveImageWriter(f"x{path.suffix}"):
        raise InputError(f"{path}: cannot write pictures as {path.suffix!r}; use .png or .jpg")


def write(canvas: NDArray[np.uint8], text: str, at: tuple[int, int], size: int = 14) -> None:
    """Write a line of text onto a picture, with its left end and vertical middle at (x, y)."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.fromarray(canvas)
    ImageDraw.Draw(page).text(at, text, _INK, ImageFont.load_default(size), anchor="lm")
    canvas[...] = np.asarray(page)


def _rgb(image: object, height: int | None = None, most: int | None = None) -> NDArray[np.uint8]:
    """Return an image as RGB bytes, resized to ``height`` or to at most ``most`` pixels a side.

    An image that uses less than a quarter of its range, such as 12 bits in 16, is stretched.
    """
    pixels = as_unit_range(as_image(image), "image")
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, -1)
    elif pixels.shape[2] == 4:
        pixels = 1 + pixels[..., 3:] * (pixels[..., :3] - 1)
    top = float(pixels.max(initial=0))
    if 0 < top < 0.25:
        pixels = pixels / top
    h, w = pixels.shape[:2]
    scale = 1.0 if height is None else height / h
    if most is not None:
        scale = min(scale, most / max(h, w))
    if scale != 1:
        size = (max(1, round(w * scale)), max(1, round(h * scale)))
        kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=kind), np.float32)
    return np.asarray(np.rint(255 * np.clip(pixels, 0, 1)), np.uint8)


def _colour(share: FloatArray) -> NDArray[np.uint8]:
    """Return RGB colours (n, 3), from green at 0 over yellow to orange at 1."""
    share = np.clip(share, 0, 1)[:, None]
    stops = np.array([[60, 220, 110], [255, 225, 60], [255, 120, 40]], float)
    low, high = stops[:-1], stops[1:]
    part = np.minimum((2 * share).astype(int), 1)[:, 0]
    inside = 2 * share - part[:, None]
    return np.asarray(np.rint(low[part] + inside * (high[part] - low[part])), np.uint8)


def draw_features(image: ArrayLike, features: Features | Frames, most: int = 500) -> Picture:
    """Draw features onto their image: an ellipse of each at 3 σ, and a line in its direction.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4)
        The image.
    features : Features or Frames
        What was found in it.
    most : int
        The number that is drawn, the first.

    Returns
    -------
    Picture
        The image with its features; ``save(path)`` and ``show()``.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from caloric import viz
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> viz.draw_features(image, caloric.detect(image, max_features=20))
    Picture(160 x 120)
    """
    frames = features.frames if isinstance(features, Features) else features
    if not isinstance(frames, Frames):
        raise InputError("draw_features needs caloric.Features or Frames; see Frames.from_opencv")
    canvas = _rgb(image)
    angles = np.linspace(0, 2 * np.pi, 33)
    circle = 3 * np.stack([np.cos(angles), np.sin(angles)])
    for a in frames.maps[:most]:
        # From the centre along +x, then round.
        outline = np.concatenate([np.zeros((2, 1)), circle], 1)
        points = np.rint(16 * (a[:, :2] @ outline + a[:, 2:])).astype(np.int32).T
        for colour, width in (((0, 0, 0), 3), ((255, 225, 60), 1)):
            cv2.polylines(canvas, [points], False, colour, width, cv2.LINE_AA, 4)
    return Picture(canvas)


def draw_matches(
    image_a: ArrayLike,
    image_b: ArrayLike,
    a: Features | Frames | ArrayLike,
    b: Features | Frames | ArrayLike,
    matches: Matches | None = None,
    geometry: Geometry | None = None,
    *,
    errors: ArrayLike | None = None,
    limit: float = 2.0,
    title: str = "",
    most: int = MOST_LINES,
) -> Picture:
    """Draw two images side by side, with a line for each match.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4)
        The images. Both are drawn at the same height.
    a, b : Features, Frames, or array (m, 2)
        What was matched, or the points themselves, which then match row by row.
    matches : Matches, optional
        The result of :func:`caloric.match`.
    geometry : Geometry, optional
        The result of :func:`caloric.verify`: only its inliers are drawn, coloured by residual.
    errors : array (m,), optional
        The colour of each match, inlier or not: 0 is green, ``limit`` is orange.
    limit : float
        The error, in pixels, of an orange line.
    title : str
        Written above the images.
    most : int
        At most so many lines are drawn, spread over the first image; the title says so.

    Returns
    -------
    Picture
        The picture; ``save(path)`` and ``show()``.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from caloric import viz
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a, b = caloric.extract([image, image[:, 20:]], max_features=50)
    >>> picture = viz.draw_matches(image, image[:, 20:], a, b, caloric.match(a, b))
    >>> picture.save("matches.png")  # doctest: +SKIP
    """
    if not limit > 0:
        raise InputError(f"limit must be a positive number of pixels, got {limit!r}")
    xy_a, xy_b = _matched_points(a, b, matches)
    if geometry is not None and len(geometry.inliers) != len(xy_a):
        raise InputError("geometry: not of these matches; give the matches that it was found from")
    distances = None if errors is None else np.asarray(errors, np.float64)
    if geometry is not None:
        distances = geometry.residuals if distances is None else distances
        xy_a, xy_b = xy_a[geometry.inliers], xy_b[geometry.inliers]
        distances = distances[geometry.inliers]
    if len(xy_a) != len(xy_b) or (distances is not None and len(distances) != len(xy_a)):
        raise InputError("draw_matches: points and errors must have the same length")
    images = [as_image(image) for image in (image_a, image_b)]
    if not all(image.size for image in images):
        raise InputError("draw_matches: an image has no pixels")
    sizes = [image.shape[:2] for image in images]
    height = min(_TALLEST, max(h for h, _ in sizes), *(max(1, int(1200 * h / w)) for h, w in sizes))
    pictures = [_rgb(image, height) for image in images]
    lefts = (0, pictures[0].shape[1] + _GAP)
    width = lefts[1] + pictures[1].shape[1]
    canvas = np.full((_HEADER + height, width, 3), _BACKGROUND, np.uint8)
    for picture, left in zip(pictures, lefts, strict=True):
        # Dimmed, so that lines are seen on any photograph.
        canvas[_HEADER:, left : left + picture.shape[1]] = _DIMMED * picture
    kept = spread(xy_a, most)
    shown = [
        (xy[kept] + 0.5) * (np.array(picture.shape[1::-1]) / size[::-1]) - 0.5 + (left, _HEADER)
        for xy, picture, size, left in zip((xy_a, xy_b), pictures, sizes, lefts, strict=True)
    ]
    shares = np.zeros(len(kept)) if distances is None else distances[kept] / limit
    _draw_lines(canvas, shown[0], shown[1], shares)
    room = width - 16
    if distances is not None and len(kept) and width > 500:
        room -= _legend(canvas, limit)
    count = "" if len(xy_a) <= most else f" ({most} drawn)"
    write(canvas, _fitting(title, count, room), (8, _HEADER // 2))
    return Picture(canvas)


def _matched_points(
    a: Features | Frames | ArrayLike, b: Features | Frames | ArrayLike, matches: Matches | None
) -> tuple[FloatArray, FloatArray]:
    """Return the points (m, 2) of matches in the two images, refined ones where there are."""
    points = []
    for side in (a, b):
        frames = side.frames if isinstance(side, Features) else side
        try:
            xy = frames.xy if isinstance(frames, Frames) else np.asarray(frames, np.float64)
            points.append(xy.reshape(-1, 2))
        except (TypeError, ValueError):
            raise InputError("points: expected Features, Frames, or an array (m, 2)") from None
    if matches is None:
        return points[0], points[1]
    if not isinstance(matches, Matches):
        raise InputError("matches must be what caloric.match returns")
    return matches.points(points[0], points[1])


def _draw_lines(canvas: NDArray[np.uint8], a: FloatArray, b: FloatArray, share: FloatArray) -> None:
    """Draw lines from a to b (n, 2), with dark edges so that they show on any background."""
    order = np.argsort(-share, kind="stable")  # worst first, so that the best lie on top
    p, q = (np.rint(16 * v).astype(int).tolist() for v in (a, b))  # with 4 fractional bits
    colours = _colour(share).tolist()
    for width, opacity in ((3, 0.25), (1, 0.75)):
        layer = canvas.copy()
        for i in order:
            colour = colours[i] if width == 1 else (0, 0, 0)
            cv2.line(layer, p[i], q[i], colour, width, cv2.LINE_AA, 4)
        canvas[...] = cv2.addWeighted(layer, opacity, canvas, 1 - opacity, 0)
    for i in order:
        for at in (p[i], q[i]):
            cv2.circle(canvas, at, 16 * 4, (0, 0, 0), -1, cv2.LINE_AA, 4)
            cv2.circle(canvas, at, 16 * 3, colours[i], -1, cv2.LINE_AA, 4)


def _legend(canvas: NDArray[np.uint8], limit: float) -> int:
    """Draw the scale of colours at the top right; return its width."""
    bar, right = 90, canvas.shape[1] - 56
    middle = _HEADER // 2
    canvas[middle - 6 : middle + 6, right - bar : right] = _colour(np.linspace(0, 1, bar))
    write(canvas, "error  0", (right - bar - 58, middle), 13)
    write(canvas, f"{limit:g} px", (right + 6, middle), 13)
    return bar + 124


def _fitting(title: str, count: str, room: int) -> str:
    """Return the title shortened to the room that it has, with the count at its end."""
    from PIL import ImageFont

    font = ImageFont.load_default(14)
    text = title + count
    while title and font.getlength(text) > room:
        title = title[:-1]
        text = f"{title}…{count}"
    return text


_PANEL = (400, 300)  # width and height
_EMPTY = 238  # grey beside a picture that does not fill its panel
_FINAL, _EARLIER, _AXIS = (30, 170, 80), (235, 110, 30), (110, 110, 110)
_LAST, _BEFORE, _WRONG = (90, 255, 140), (255, 150, 60), (255, 80, 80)  # on dark pictures
_OTHER = (90, 190, 255)


def _equalised(grey: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return a histogram-equalised 8-bit image, so that differently lit images are comparable."""
    return np.asarray(cv2.equalizeHist(np.rint(255 * np.clip(grey, 0, 1)).astype(np.uint8)))


def _panel(picture: NDArray[np.uint8], title: str) -> NDArray[np.uint8]:
    """Return a panel of fixed size with a picture in its middle and a title above it."""
    h, w = picture.shape[:2]
    scale = min(_PANEL[0] / w, _PANEL[1] / h)
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    panel = _titled(_PANEL[0], title)
    panel[28:, : _PANEL[0]] = _EMPTY
    left, top = (_PANEL[0] - size[0]) // 2, 28 + (_PANEL[1] - size[1]) // 2
    panel[top : top + size[1], left : left + size[0]] = cv2.resize(
        picture, size, interpolation=kind
    )
    return panel


def _titled(width: int, title: str) -> NDArray[np.uint8]:
    panel = np.full((_PANEL[1] + 28, width + _GAP, 3), 255, np.uint8)
    write(panel, title, (0, 14))
    return panel


def _overlay(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a red-cyan overlay, grey where both images agree."""
    return np.stack([first, second, second], -1)


def _checkerboard(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return squares of both images in turn; edges are continuous where the images agree."""
    h, w = first.shape[:2]
    side = max(1, max(h, w) // 8)
    y, x = np.mgrid[:h, :w] // side
    mixed = first.copy()
    mixed[(x + y) % 2 == 1] = second[(x + y) % 2 == 1]
    return mixed


def _outlined(
    image: NDArray[np.uint8], outlines: list[tuple[FloatArray, tuple[int, int, int]]]
) -> NDArray[np.uint8]:
    """Return the image, dimmed, with outlines (4, 2) in their colours, those of steps thin."""
    scale = min(1.0, 2 * max(_PANEL) / max(image.shape))
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    canvas = np.asarray(np.rint(_DIMMED * np.asarray(small)), np.uint8)
    thick = max(1, round(max(size) / 400))
    for outline, colour in outlines:
        points = np.rint(16 * ((outline + 0.5) * scale - 0.5)).astype(np.int32)
        width = thick if colour == _BEFORE else 2 * thick
        cv2.polylines(canvas, [points], True, colour, width, cv2.LINE_AA, 4)
    return canvas


def _corners(shape: tuple[int, ...], transform: FloatArray) -> FloatArray:
    """Return where the corners (4, 2) of a template (h, w) are in the image."""
    h, w = shape[:2]
    corners = np.array([[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]], float)
    return np.asarray(corners @ transform[:, :2].T + transform[:, 2])


def _runs(sigmas: list[float]) -> list[list[int]]:
    """Return the steps from one σ = 0 to the next: one run for each size of the images."""
    runs: list[list[int]] = []
    for i, sigma in enumerate(sigmas):
        if i == 0 or sigma > sigmas[i - 1]:
            runs.append([])
        runs[-1].append(i)
    return runs


def _curve(sigmas: list[float], energies: list[float], width: int) -> NDArray[np.uint8]:
    """Return a plot of the energy of each step, with σ below it; σ begins anew at each size."""
    canvas = _titled(width, "energy at each sigma, in pixels; images are enlarged at dashed lines")
    left, right, top, bottom = 52, width - 16, 44, 28 + _PANEL[1] - 46
    count = len(energies)
    lowest, highest = min([*energies, 0.0]), max([*energies, 0.0])  # scores are negative energies
    range_ = max(highest - lowest, 1e-6)
    step = 10.0 ** np.floor(np.log10(range_))
    step = next(v for v in (step / 5, step / 2, step, 2 * step) if range_ / v <= 6)
    ticks = step * np.arange(np.floor(lowest / step), np.ceil(highest / step) + 1)

    def y(energy: float) -> int:
        share = (energy - ticks[0]) / max(ticks[-1] - ticks[0], step)
        return round(float(bottom - (bottom - top) * share))

    for tick in ticks:
        cv2.line(canvas, (left, y(tick)), (right, y(tick)), (225, 225, 225), 1)
        write(canvas, f"{tick:g}", (4, y(tick)), 12)
    x = [round(left + 18 + (right - left - 36) * i / max(count - 1, 1)) for i in range(count)]
    for run in _runs(sigmas):
        points = np.array([[x[i], y(energies[i])] for i in run], np.int32)
        cv2.polylines(canvas, [points], False, _EARLIER, 2, cv2.LINE_AA)
        if run[0]:
            middle = (x[run[0]] + x[run[0] - 1]) // 2
            for start in range(top, bottom, 10):
                cv2.line(canvas, (middle, start), (middle, start + 4), _AXIS, 1)
    for i in range(count):
        colour = _FINAL if i == count - 1 else _EARLIER
        cv2.circle(canvas, (x[i], y(energies[i])), 4, colour, -1, cv2.LINE_AA)
        sigma = f"{sigmas[i]:.0f}" if sigmas[i] >= 10 else f"{sigmas[i]:.2g}"
        write(canvas, sigma, (x[i] - 10, bottom + 14), 12)
    write(canvas, "sigma", (4, bottom + 14), 12)
    write(
        canvas,
        "steps, from the widest diffusion to none; detail that it hid adds energy at the end",
        (left, bottom + 34),
        12,
    )
    return canvas


def draw_alignment(
    template: object,
    image: object,
    start: FloatArray,
    steps: list[tuple[float, FloatArray, float]],
    title: str,
    *,
    found: bool = True,
    others: Sequence[tuple[tuple[int, ...], FloatArray]] = (),
) -> Picture:
    """Draw an alignment: the path in the image, overlays before and after, and the energy over σ.

    Parameters
    ----------
    template, image : array
        The two images, as :func:`caloric.align` takes them.
    start : array (2, 3)
        The transform of the picture "before".
    steps : list of (float, array (2, 3), float)
        σ, transform and energy of each step, the last one being the result. Steps without a finite
        energy are not in the plot.
    title : str
        A line above.
    found : bool
        Whether the result is believed: its outline is green, otherwise red.
    others : list of ((h, w), array (2, 3))
        Shapes and transforms of other templates that were found, outlined in blue.

    Returns
    -------
    Picture
        Five panels, 1,232 pixels wide.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> template = image[30:90, 40:120]
    >>> found = caloric.align(template, image)
    >>> steps = [(step.sigma, step.point, step.cost) for step in found.path]
    >>> start = np.array([[1.0, 0, 0], [0, 1, 0]])
    >>> caloric.viz.draw_alignment(template, image, start, steps, "found").pixels.shape[1]
    1232
    """
    template_grey, image_grey = to_grey(template), to_grey(image)
    template_rgb, image_rgb = _rgb(template), _rgb(image)
    h, w = template_grey.shape
    transforms = [start, *(transform for _, transform, _ in steps)]

    def seen(pixels: NDArray[Any], transform: FloatArray) -> NDArray[Any]:
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        outside = (_EMPTY,) * 3 if pixels.ndim == 3 else 0.0
        return np.asarray(
            cv2.warpAffine(pixels, transform, (w, h), flags=flags, borderValue=outside)
        )

    reference = _equalised(template_grey)
    overlays = [
        _overlay(reference, _equalised(seen(image_grey, v))) for v in (start, transforms[-1])
    ]
    ways = transforms[1:] or transforms
    colours = [_BEFORE] * (len(ways) - 1) + [_LAST if found else _WRONG]
    outlines = [
        *((_corners(shape, v), _OTHER) for shape, v in others),
        *((_corners((h, w), v), colour) for v, colour in zip(ways, colours, strict=True)),
    ]
    plotted = [step for step in steps if np.isfinite(step[2])]
    sigmas, energies = [step[0] for step in plotted], [step[2] for step in plotted]
    path = _outlined(image_rgb, outlines)
    end = ("green" if found else "red: not believed") + (", others blue" if others else "")
    first = np.hstack([
        _panel(path, f"the steps in the image: orange, the last {end}"),
        _panel(overlays[0], "before: template red, image cyan"),
        _panel(overlays[1], "after: grey where they agree"),
    ])  # fmt: skip
    second = np.hstack([
        _curve(sigmas, energies, 2 * _PANEL[0] + _GAP),
        _panel(_checkerboard(template_rgb, seen(image_rgb, transforms[-1])), "after: both in turn"),
    ])  # fmt: skip
    header = np.full((34, first.shape[1], 3), 255, np.uint8)
    write(header, title, (0, 17), 16)
    picture = np.vstack([header, first, second])
    return Picture(np.pad(picture, ((_GAP, _GAP), (_GAP, 0), (0, 0)), constant_values=255))


def spread(xy: FloatArray, most: int) -> NDArray[np.intp]:
    """Return the indices of at most ``most`` points, taken in turn from the cells of a grid."""
    if len(xy) <= most:
        return np.arange(len(xy))
    low, high = xy.min(0), xy.max(0)
    cells = np.floor(12 * (xy - low) / np.maximum(high - low, 1e-9)).astype(int) @ [1, 100]
    order = np.argsort(cells, kind="stable")
    turn = np.empty(len(xy), int)
    for cell in np.unique(cells):
        members = order[cells[order] == cell]
        turn[members] = np.arange(len(members))
    return np.sort(np.lexsort((np.arange(len(xy)), turn))[:most])
