"""Drawings of matches as vector graphics, by matplotlib."""

from pathlib import Path
from typing import Any

import numpy as np

from caloric.runtime.files import replacing
from caloric.viz import plots
from caloric.viz.match_figure import MatchDrawing, colors_of

# Without dates, so that the same input gives the same file.
METADATA: dict[str, dict[str, Any]] = {
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}
_DPI = 100


def save(drawing: MatchDrawing, path: Path) -> None:
    """Write a drawing to a .pdf or .svg file: images as pixels, lines and text as vectors."""
    import matplotlib
    from matplotlib.collections import LineCollection

    h, w = drawing.canvas.shape[:2]
    figure = plots.new_figure(figsize=(w / _DPI, h / _DPI), dpi=_DPI)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.imshow(drawing.canvas, interpolation="none")
    order = np.argsort(-drawing.errors, kind="stable")  # worst first, so that the best are on top
    ends, colors = (
        np.stack([drawing.a, drawing.b], 1)[order],
        colors_of(drawing.errors)[order] / 255,
    )
    for color, width, opacity in (("black", 2.2, 0.25), (colors, 0.8, 0.75)):
        axes.add_collection(
            LineCollection(list(ends), colors=color, linewidths=width, alpha=opacity)
        )
    for points in ends[:, 0], ends[:, 1]:
        axes.scatter(*points.T, s=18, c=colors, edgecolors="black", linewidths=0.7, zorder=3)
    for text, (x, y), size in drawing.texts:
        height = 72 * size / _DPI
        axes.text(x, y, text, fontsize=height, va="center", ha="left", parse_math=False)
    suffix = path.suffix.lower()
    with (
        matplotlib.rc_context({"svg.hashsalt": "caloric", "pdf.fonttype": 42}),
        replacing(path) as file,
    ):
        figure.savefig(file, format=suffix[1:], metadata=METADATA[suffix])
