"""Plots of features, matches and alignments.

>>> import numpy as np, caloric
>>> from caloric import viz
>>> image = np.random.default_rng(0).random((120, 160))
>>> features = caloric.extract(image, max_features=20)
>>> viz.draw_features(image, features).pixels.shape
(120, 160, 3)
"""

from caloric.viz.alignment_figure import draw_alignment
from caloric.viz.error_figure import draw_error
from caloric.viz.figure import Figure, check_format, write
from caloric.viz.match_figure import (
    MAX_LINES,
    MatchDrawing,
    arranged,
    draw_features,
    draw_matches,
    spread,
)

__all__ = [
    "MAX_LINES", "Figure", "MatchDrawing", "arranged", "check_format", "draw_alignment",
    "draw_error", "draw_features", "draw_matches", "spread", "write",
]  # fmt: skip
