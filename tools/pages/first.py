"""Draw docs/first.jpg, the picture of the README: a photograph and the same plane seen from aside.

``python -m tools.pages.first``
"""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage import data

import caloric
from caloric import viz

DOCS = Path(__file__).parents[2] / "docs"
_TILT = 5.0  # 78 degrees aside
_RIGHT = 3.0  # pixels
_DRAWN = 90
_HEIGHT = 460


def views() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """Return a photograph, the same as a plane seen from aside, and the map (3, 3) between them."""
    photograph = np.asarray(data.coffee())  # type: ignore[no-untyped-call]
    h, w = photograph.shape[:2]
    away = np.sqrt(1 - 1 / _TILT**2) / (2.2 * w)
    squeeze = np.array([[1 / _TILT, 0, 0], [0, 1, 0], [away, 0, 1]])
    corners = np.array([[0, 0, 1], [w, 0, 1], [w, h, 1], [0, h, 1]]) @ squeeze.T
    corners = corners[:, :2] / corners[:, 2:]
    low = corners.min(0)
    move = np.array([[1, 0, 12 - low[0]], [0, 1, 12 - low[1]], [0, 0, 1.0]])
    to_view = move @ squeeze
    size = np.ceil(corners.max(0) - low + 24).astype(int)
    # Rendered six times as large and averaged, as the pixels of a camera are.
    fine = np.diag([6.0, 6.0, 1.0]) @ to_view
    large = cv2.warpPerspective(photograph, fine, (6 * size).tolist(), borderValue=(40, 40, 40))
    aside = cv2.resize(large, size.tolist(), interpolation=cv2.INTER_AREA)
    return photograph, np.asarray(aside, np.uint8), to_view


def _right(
    to_view: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64]
) -> NDArray[np.bool_]:
    moved = cv2.perspectiveTransform(a[None], to_view)[0] if len(a) else np.zeros((0, 2))
    return np.asarray(np.linalg.norm(moved - b, axis=1) < _RIGHT)


def by_opencv(
    a: NDArray[np.uint8], b: NDArray[np.uint8]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points that OpenCV's SIFT matches with the usual ratio of 0.8."""
    sift = cv2.SIFT_create(8000)
    found = [sift.detectAndCompute(cv2.cvtColor(v, cv2.COLOR_RGB2GRAY), None) for v in (a, b)]
    pairs = cv2.BFMatcher().knnMatch(found[0][1], found[1][1], k=2)
    kept = [first for first, second in pairs if first.distance < 0.8 * second.distance]
    return (
        np.array([found[0][0][m.queryIdx].pt for m in kept]).reshape(-1, 2),
        np.array([found[1][0][m.trainIdx].pt for m in kept]).reshape(-1, 2),
    )


def _panel(
    a: NDArray[np.uint8], b: NDArray[np.uint8], p: NDArray[np.float64], q: NDArray[np.float64],
    right: NDArray[np.bool_], title: str,
) -> NDArray[np.uint8]:  # fmt: skip
    """Return both pictures, dimmed, with a line for each match: green if right, else red."""
    scale = _HEIGHT / max(len(a), len(b))
    parts = [cv2.resize(v, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) for v in (a, b)]
    gap, head = 14, 34
    width = parts[0].shape[1] + gap + parts[1].shape[1]
    canvas = np.full((head + _HEIGHT, width, 3), 24, np.uint8)
    left = 0
    shown = []
    for part, points in zip(parts, (p, q), strict=True):
        top = head + (_HEIGHT - len(part)) // 2
        canvas[top : top + len(part), left : left + part.shape[1]] = (0.55 * part).astype(np.uint8)
        shown.append(points * scale + (left, top))
        left += part.shape[1] + gap
    order = np.concatenate([np.flatnonzero(~right), np.flatnonzero(right)])
    order = order[viz.spread(p[order], _DRAWN)] if len(order) > _DRAWN else order
    for i in sorted(order, key=lambda i: bool(right[i])):
        start, end = ([round(4 * float(v)) for v in points[i]] for points in shown)
        colour = (80, 220, 120) if right[i] else (235, 80, 70)
        cv2.line(canvas, start, end, colour, 1, cv2.LINE_AA, 2)
        for at in (start, end):
            cv2.circle(canvas, at, 9, colour, -1, cv2.LINE_AA, 2)
    cv2.rectangle(canvas, (0, 0), (width, head), (244, 244, 244), -1)
    viz.write(canvas, title, (10, head // 2), 16)
    return canvas


def draw(path: Path) -> str:
    """Write the picture; return what it shows."""
    a, b, to_view = views()
    p, q = by_opencv(a, b)
    theirs = _right(to_view, p, q)
    pair = caloric.match_images(a, b)
    ours = _right(to_view, pair.points_a, pair.points_b)
    titles = (
        f"OpenCV SIFT: {theirs.sum()} of {len(p)} matches right",
        f"Caloric: {ours.sum()} of {len(ours)} matches right, confidence {pair.geometry.confidence:.2f}",
    )
    panels = [_panel(a, b, p, q, theirs, titles[0])]
    panels.append(_panel(a, b, pair.points_a, pair.points_b, ours, titles[1]))
    viz.Picture(
        np.concatenate([panels[0], np.full((len(panels[0]), 16, 3), 255, np.uint8), panels[1]], 1)
    ).save(path)
    return "; ".join(titles)


if __name__ == "__main__":
    print(draw(DOCS / "first.jpg"))
