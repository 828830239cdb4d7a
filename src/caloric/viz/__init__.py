"""Figures of features, matches and alignments.

>>> import numpy as np, caloric
>>> from caloric import viz
>>> image = np.random.default_rng(0).random((120, 160))
>>> features = caloric.extract(image, max_features=20)
>>> viz.draw_features(image, features).pixels.shape
(120, 160, 3)
"""

from caloric.viz.alignment_figure import draw_alignment
from caloric.viz.match_figure import MOST_LINES, draw_features, draw_matches, spread
from caloric.viz.picture import Picture, check_format, write

__all__ = [
    "MOST_LINES", "Picture", "check_format", "draw_alignment", "draw_features", "draw_matches",
    "spread", "write",
]  # fmt: skip
