"""Plots by matplotlib, which is imported only here and without global state."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError


def new_figure(**options: Any) -> Any:
    """Return a matplotlib figure; raise an error with advice if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'caloric[viz]'") from None
    return Figure(layout="constrained", **options)


def pixels(figure: Any) -> NDArray[np.uint8]:
    """Return a figure as an RGB image (h, w, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), np.uint8)[..., :3]
