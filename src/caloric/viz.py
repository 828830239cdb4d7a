"""Pictures of matches that a person can judge at a glance."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.files import replacing
from caloric.images import to_grey
from caloric.theory.gaussians import FloatArray

MOST_LINES = 200
_GAP = 8
_TALLEST = 900


def _colour(share: FloatArray) -> NDArray[np.uint8]:
    """Green for a residual of 0 to yellow and orange at the threshold, RGB."""
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
    """Two grey images side by side with thin lines between matches (m, 2), coloured by residual.

    At most ``most`` lines are drawn, spread over the first image; the title says of how many.
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
        # Dimmed, so that the lines stand out.
        shown = np.rint(40 + 185 * np.clip(picture, 0, 1)).astype(np.uint8)
        canvas[header : header + picture.shape[0], left : left + picture.shape[1]] = shown[
            ..., None
        ]
    kept = spread(xy_a, most)
    a = (xy_a[kept] + 0.5) * scales[0] + (0, header)
    b = (xy_b[kept] + 0.5) * scales[1] + (widths[0] + _GAP, header)
    colours = _colour(residuals[kept] / threshold)
    layer = canvas.copy()
    # Worst first, so that the best lie on top; 4 binary digits of sub-pixel position.
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


def spread(xy: FloatArray, most: int) -> NDArray[np.intp]:
    """Indices of at most ``most`` points, taken in turn from the cells of a grid."""
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
    """An error if pictures cannot be written under such a name."""
    if not path.suffix or not cv2.haveImageWriter(f"x{path.suffix}"):
        raise InputError(f"{path}: cannot write pictures as {path.suffix!r}; use .png or .jpg")


def write_picture(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write an RGB picture; the ending of the name says in which format."""
    check_format(path)
    data = cv2.imencode(path.suffix, picture[..., ::-1])[1]
    with replacing(path) as file:
        file.write(data.tobytes())
