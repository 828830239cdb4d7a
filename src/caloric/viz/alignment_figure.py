"""Plots of alignments: the path, overlays before and after, and the energy."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.inputs import read_image
from caloric.image.pixels import to_gray
from caloric.types import FloatArray, ImageLike
from caloric.viz import plots
from caloric.viz.figure import DIMMED, GAP, Figure, rgb, write

log = logging.getLogger(__name__)

_PANEL = (400, 300)  # width and height
_BACKGROUND = 238  # gray level of a panel around its image
_RELIABLE, _STEP, _UNRELIABLE = (90, 255, 140), (255, 150, 60), (255, 80, 80)
_OTHER = (90, 190, 255)


def draw_alignment(
    template: ImageLike,
    image: ImageLike,
    start: FloatArray,
    steps: list[tuple[float, FloatArray, float]],
    title: str,
    *,
    reliable: bool = True,
    others: Sequence[tuple[tuple[int, ...], FloatArray]] = (),
) -> Figure:
    """Draw an alignment: its path, overlays before and after, and the energy of each step.

    Without matplotlib the energy is not plotted.

    Parameters
    ----------
    template, image : array, PIL image, path, bytes, file object or tensor
        The two images, as :func:`caloric.align` takes them.
    start : array (2, 3)
        The transform of the overlay titled "before".
    steps : list of (float, array (2, 3), float)
        σ, transform and energy of each step, the last one being the result. Steps without a finite
        energy are not plotted.
    title : str
        Written above the panels.
    reliable : bool
        Whether the result is reliable: its outline is green if it is, and red otherwise.
    others : list of ((h, w), array (2, 3))
        Shapes and transforms of other templates in the image, outlined in blue.

    Returns
    -------
    Figure
        Five panels, 1,232 pixels wide.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> template = image[30:90, 40:120]
    >>> alignment = caloric.align(template, image)
    >>> steps = [(step.sigma, step.point, step.cost) for step in alignment.path]
    >>> start = np.array([[1.0, 0, 0], [0, 1, 0]])
    >>> caloric.viz.draw_alignment(template, image, start, steps, "aligned").pixels.shape[1]
    1232
    """
    template, image = read_image(template), read_image(image)
    template_gray, image_gray = to_gray(template), to_gray(image)
    template_rgb, image_rgb = rgb(template), rgb(image)
    shape = template_gray.shape
    transforms = [transform for _, transform, _ in steps] or [start]
    reference = _equalized(template_gray)
    before, after = (
        _overlay(reference, _equalized(_warped(image_gray, transform, shape)))
        for transform in (start, transforms[-1])
    )
    colors = [_STEP] * (len(transforms) - 1) + [_RELIABLE if reliable else _UNRELIABLE]
    outlines = [
        *((_corners(shape, transform), _OTHER) for shape, transform in others),
        *((_corners(shape, v), color) for v, color in zip(transforms, colors, strict=True)),
    ]
    result = ("green" if reliable else "red (not reliable)") + (", others blue" if others else "")
    mixed = _checkerboard(template_rgb, _warped(image_rgb, transforms[-1], shape))
    rows = [
        [
            _panel(_outlined(image_rgb, outlines), f"steps: orange, result: {result}"),
            _panel(before, "before: template red, image cyan"),
            _panel(after, "after: gray where they agree"),
        ],
        [
            _energy_panel(steps, reliable),
            _panel(mixed, "after: checkerboard of template and image"),
        ],
    ]
    first, second = (np.hstack(row) for row in rows)
    header = np.full((34, first.shape[1], 3), 255, np.uint8)
    write(header, title, (0, 17), 16)
    figure = np.vstack([header, first, second])
    return Figure(np.pad(figure, ((GAP, GAP), (GAP, 0), (0, 0)), constant_values=255))


def _warped(pixels: NDArray[Any], transform: FloatArray, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the image, warped to a template (h, w)."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    outside = (_BACKGROUND,) * 3 if pixels.ndim == 3 else 0.0
    return np.asarray(
        cv2.warpAffine(pixels, transform, shape[1::-1], flags=flags, borderValue=outside)
    )


def _energy_panel(
    steps: list[tuple[float, FloatArray, float]], reliable: bool
) -> NDArray[np.uint8]:
    """Return a plot of the energy of each step, with one curve for each image size."""
    finite = [(sigma, energy) for sigma, _, energy in steps if np.isfinite(energy)]
    runs = _runs([sigma for sigma, _ in finite])
    legend = "; dashed lines separate image sizes" if len(runs) > 1 else ""
    panel = _titled(2 * _PANEL[0] + GAP, f"energy of each step{legend}")
    try:
        figure = plots.new_figure(figsize=(2 * _PANEL[0] / 100, _PANEL[1] / 100), dpi=100)
    except InputError as error:
        _warn_once(str(error))
        write(panel, f"not plotted: {error}", (0, 60), 12)
        return panel
    axes = figure.subplots()
    axes.axhline(0, color="gray", linewidth=0.5)
    for run in runs:
        axes.plot(run, [finite[i][1] for i in run], "o-", color="tab:orange", markersize=4)
        if run[0]:
            axes.axvline(run[0] - 0.5, color="gray", linestyle="--", linewidth=1)
    if finite:
        axes.plot(len(finite) - 1, finite[-1][1], "o", color="tab:green" if reliable else "tab:red")
    labels = [f"{s:.0f}" if s >= 10 else f"{s:.2g}" for s, _ in finite]
    axes.set_xticks(range(len(finite)), labels, fontsize=8)
    axes.set(xlabel="σ [px], from the widest diffusion to none", ylabel="energy")
    axes.grid(axis="y", alpha=0.3)
    pixels = plots.pixels(figure)
    panel[28 : 28 + len(pixels), : pixels.shape[1]] = pixels
    return panel


@cache
def _warn_once(message: str) -> None:
    log.warning("the energy is not plotted: %s", message)


def _equalized(gray: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return an 8-bit image, histogram-equalized to reduce the effect of illumination."""
    return np.asarray(cv2.equalizeHist(np.rint(255 * np.clip(gray, 0, 1)).astype(np.uint8)))


def _panel(image: NDArray[np.uint8], title: str) -> NDArray[np.uint8]:
    """Return a panel of fixed size with a title and a centered image."""
    h, w = image.shape[:2]
    scale = min(_PANEL[0] / w, _PANEL[1] / h)
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    panel = _titled(_PANEL[0], title)
    panel[28:, : _PANEL[0]] = _BACKGROUND
    left, top = (_PANEL[0] - size[0]) // 2, 28 + (_PANEL[1] - size[1]) // 2
    panel[top : top + size[1], left : left + size[0]] = cv2.resize(image, size, interpolation=kind)
    return panel


def _titled(width: int, title: str) -> NDArray[np.uint8]:
    panel = np.full((_PANEL[1] + 28, width + GAP, 3), 255, np.uint8)
    write(panel, title, (0, 14))
    return panel


def _overlay(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a red-cyan overlay, gray where both images agree."""
    return np.stack([first, second, second], -1)


def _checkerboard(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a checkerboard of both images; edges are continuous where they agree."""
    h, w = first.shape[:2]
    side = max(1, max(h, w) // 8)
    y, x = np.mgrid[:h, :w] // side
    mixed = first.copy()
    mixed[(x + y) % 2 == 1] = second[(x + y) % 2 == 1]
    return mixed


def _outlined(
    image: NDArray[np.uint8], outlines: list[tuple[FloatArray, tuple[int, int, int]]]
) -> NDArray[np.uint8]:
    """Return the dimmed image with colored outlines (4, 2), thinner for steps than for results."""
    scale = min(1.0, 2 * max(_PANEL) / max(image.shape))
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    canvas = np.asarray(np.rint(DIMMED * np.asarray(small)), np.uint8)
    thick = max(1, round(max(size) / 400))
    for outline, color in outlines:
        points = np.rint(16 * ((outline + 0.5) * scale - 0.5)).astype(np.int32)
        width = thick if color == _STEP else 2 * thick
        cv2.polylines(canvas, [points], True, color, width, cv2.LINE_AA, 4)
    return canvas


def _corners(shape: tuple[int, ...], transform: FloatArray) -> FloatArray:
    """Return the corners (4, 2) of a template (h, w) in the image."""
    h, w = shape[:2]
    corners = np.array([[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]], float)
    return np.asarray(corners @ transform[:, :2].T + transform[:, 2])


def _runs(sigmas: list[float]) -> list[list[int]]:
    """Return the indices of the steps at each image size; σ increases from one size to the next."""
    runs: list[list[int]] = []
    for i, sigma in enumerate(sigmas):
        if i == 0 or sigma > sigmas[i - 1]:
            runs.append([])
        runs[-1].append(i)
    return runs
