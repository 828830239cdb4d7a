"""Pictures of matches and alignments."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import to_grey
from caloric.runtime.files import replacing
from caloric.theory.gaussians import FloatArray

MOST_LINES = 200
_GAP = 8
_TALLEST = 900


def _colour(share: FloatArray) -> NDArray[np.uint8]:
    """Return RGB colours (n, 3), from green at 0 over yellow to orange at 1."""
    share = np.clip(share, 0, 1)[:, None]
    stops = np.array([[30, 170, 80], [240, 200, 40], [235, 110, 30]], float)
    low, high = stops[:-1], stops[1:]
    part = np.minimum((2 * share).astype(int), 1)[:, 0]
    inside = 2 * share - part[:, None]
    return np.asarray(np.rint(low[part] + inside * (high[part] - low[part])), np.uint8)


def draw_matches(
    image_a: object,
    image_b: object,
    xy_a: FloatArray,
    xy_b: FloatArray,
    residuals: FloatArray,
    threshold: float,
    title: str,
    most: int = MOST_LINES,
) -> NDArray[np.uint8]:
    """Return a picture of two grey images side by side, with a line for each match (m, 2).

    Lines are coloured by residual. At most ``most`` are drawn, spread over the first image; the
    title says so.
    """
    pictures, scales = [], []
    for image in (image_a, image_b):
        grey = to_grey(image)
        scale = min(1.0, _TALLEST / max(grey.shape))
        size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
        pictures.append(cv2.resize(grey, size, interpolation=cv2.INTER_AREA))
        scales.append((size[0] / grey.shape[1], size[1] / grey.shape[0]))
    heights, widths = zip(*(p.shape for p in pictures), strict=True)
    header = 34
    canvas = np.full((max(heights) + header, sum(widths) + _GAP, 3), 255, np.uint8)
    for picture, left in zip(pictures, (0, widths[0] + _GAP), strict=True):
        # Reduced contrast, so that the lines stand out.
        shown = np.rint(40 + 185 * np.clip(picture, 0, 1)).astype(np.uint8)
        canvas[header : header + picture.shape[0], left : left + picture.shape[1]] = shown[
            ..., None
        ]
    kept = spread(xy_a, most)
    a = (xy_a[kept] + 0.5) * scales[0] + (0, header)
    b = (xy_b[kept] + 0.5) * scales[1] + (widths[0] + _GAP, header)
    colours = _colour(residuals[kept] / threshold)
    layer = canvas.copy()
    # Worst first, so that the best lie on top. Positions have 4 fractional bits.
    order = np.argsort(-residuals[kept], kind="stable")
    for i in order:
        p, q = (tuple(np.rint(16 * v).astype(int).tolist()) for v in (a[i], b[i]))
        cv2.line(layer, p, q, colours[i].tolist(), 1, cv2.LINE_AA, 4)
    canvas = cv2.addWeighted(layer, 0.65, canvas, 0.35, 0)
    for i in order:
        for v in (a[i], b[i]):
            at = tuple(np.rint(16 * v).astype(int).tolist())
            cv2.circle(canvas, at, 16 * 3, colours[i].tolist(), -1, cv2.LINE_AA, 4)
    text = title if len(xy_a) <= most else f"{title} ({most} drawn)"
    cv2.putText(canvas, text, (8, 23), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (20, 20, 20), 1, cv2.LINE_AA)
    return np.asarray(canvas, np.uint8)


_SIDE = 256
_FINAL, _EARLIER = (30, 170, 80), (235, 110, 30)


def _equalised(grey: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return a histogram-equalised 8-bit image, so that differently lit images are comparable."""
    return np.asarray(cv2.equalizeHist(np.rint(255 * np.clip(grey, 0, 1)).astype(np.uint8)))


def _panel(picture: NDArray[np.uint8], title: str) -> NDArray[np.uint8]:
    """Return a square panel of fixed size with a picture and a title above it."""
    h, w = picture.shape[:2]
    scale = _SIDE / max(h, w)
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    panel = np.full((_SIDE + 28, _SIDE + _GAP, 3), 255, np.uint8)
    panel[28 : 28 + size[1], : size[0]] = cv2.resize(picture, size, interpolation=kind)
    write(panel, title, (0, 19))
    return panel


def write(canvas: NDArray[np.uint8], text: str, at: tuple[int, int]) -> None:
    """Write a line of small text onto a picture."""
    cv2.putText(canvas, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.45, (20, 20, 20), 1, cv2.LINE_AA)


def _overlay(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a red-cyan overlay, grey where both images agree."""
    return np.stack([first, second, second], -1)


def _checkerboard(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return squares of both images in turn; edges are continuous where the images agree."""
    h, w = first.shape
    side = max(1, max(h, w) // 8)
    y, x = np.mgrid[:h, :w] // side
    mixed = np.where((x + y) % 2 == 0, first, second)
    return np.repeat(mixed[..., None], 3, -1)


def _outlined(image: NDArray[np.uint8], outlines: list[FloatArray]) -> NDArray[np.uint8]:
    """Return the image with outlines of a template: the last in green, the others in orange."""
    scale = min(1.0, 2 * _SIDE / max(image.shape))
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    canvas = np.repeat(np.rint(60 + 0.7 * small).astype(np.uint8)[..., None], 3, -1)
    for i, outline in enumerate(outlines):
        last = i == len(outlines) - 1
        points = np.rint(16 * ((outline + 0.5) * scale - 0.5)).astype(np.int32)
        colour, width = (_FINAL, 2) if last else (_EARLIER, 1)
        cv2.polylines(canvas, [points], True, colour, width, cv2.LINE_AA, 4)
    return canvas


def _curve(sigmas: list[float], energies: list[float]) -> NDArray[np.uint8]:
    """Return a plot of the energy against σ, from the first step on the left to the last."""
    canvas = np.full((_SIDE, _SIDE, 3), 246, np.uint8)
    count, top = len(energies), max([*energies, 1e-9]) * 1.1
    x = 24 + (_SIDE - 40) * np.arange(count) / max(count - 1, 1)
    y = _SIDE - 30 - (_SIDE - 50) * np.array(energies) / top
    points = np.rint(np.stack([x, y], 1)).astype(np.int32)
    cv2.polylines(canvas, [points], False, _EARLIER, 2, cv2.LINE_AA)
    for i, at in enumerate(points):
        cv2.circle(canvas, at.tolist(), 3, _FINAL if i == count - 1 else _EARLIER, -1, cv2.LINE_AA)
        if i % max(1, count // 5) == 0 or i == count - 1:
            text = f"{sigmas[i]:.3g}"
            cv2.putText(canvas, text, (int(at[0]) - 10, _SIDE - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.38,
                        (90, 90, 90), 1, cv2.LINE_AA)  # fmt: skip
    return canvas


def draw_alignment(
    template: object,
    image: object,
    start: FloatArray,
    steps: list[tuple[float, FloatArray, float]],
    title: str,
) -> NDArray[np.uint8]:
    """Return a picture of an alignment: overlays before and after, the path, and the energy over σ.

    ``start`` (2, 3) is the initial transform; ``steps`` are the σ, transform and energy of each
    step.
    """
    template_grey, image_grey = to_grey(template), to_grey(image)
    h, w = template_grey.shape
    corners = np.array([[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]], float)
    transforms = [start, *(transform for _, transform, _ in steps)]
    reference = _equalised(template_grey)
    panels = []
    for name, transform in (("before", start), ("after", transforms[-1])):
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        warped = _equalised(np.asarray(cv2.warpAffine(image_grey, transform, (w, h), flags=flags)))
        panels.append(_panel(_overlay(reference, warped), f"{name}: red template, cyan image"))
        panels.append(_panel(_checkerboard(reference, warped), f"{name}: checkerboard"))
    outlines = [corners @ transform[:, :2].T + transform[:, 2] for transform in transforms]
    path = _outlined(np.rint(255 * np.clip(image_grey, 0, 1)).astype(np.uint8), outlines)
    sigmas, energies = [step[0] for step in steps], [step[2] for step in steps]
    third = [_panel(path, "path in the image, end in green"),
             _panel(_curve(sigmas, energies), "energy; below, sigma in pixels")]  # fmt: skip
    rows = [
        np.hstack([panels[0], panels[2], third[0]]),
        np.hstack([panels[1], panels[3], third[1]]),
    ]
    header = np.full((30, rows[0].shape[1], 3), 255, np.uint8)
    write(header, title, (0, 20))
    picture = np.vstack([header, *rows])
    return np.pad(picture, ((_GAP, 0), (_GAP, 0), (0, 0)), constant_values=255)


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


def check_format(path: Path) -> None:
    """Raise an error if pictures cannot be written in the format of a file name."""
    if not path.suffix or not cv2.haveImageWriter(f"x{path.suffix}"):
        raise InputError(f"{path}: cannot write pictures as {path.suffix!r}; use .png or .jpg")


def write_picture(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write an RGB picture in the format of the file name's suffix."""
    check_format(path)
    data = cv2.imencode(path.suffix, picture[..., ::-1])[1]
    with replacing(path) as file:
        file.write(data.tobytes())
