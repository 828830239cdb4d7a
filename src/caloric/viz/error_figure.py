"""A figure of the expected error of a geometry over an image."""

import numpy as np

from caloric.errors import InputError
from caloric.matching import models
from caloric.matching.geometry import Geometry
from caloric.types import ImageLike
from caloric.viz import plots
from caloric.viz.figure import Figure, rgb

_GRID = 60  # points along the longer side
_LEVELS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # pixels
_WIDTH, _DPI = 8.0, 100  # of the figure: inches, pixels per inch


def draw_error(image: ImageLike, geometry: Geometry) -> Figure:
    """Draw contours of the expected error of a geometry, in pixels, over the first image.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        The first image.
    geometry : Geometry
        A homography or affine map: see :meth:`caloric.Geometry.error_at`.

    Returns
    -------
    Figure
        The image with labeled contours; it needs matplotlib.
    """
    if not models.is_planar(geometry.model):
        raise InputError(
            f"the {geometry.model} matrix maps points to lines; draw_error needs a homography or "
            "an affine map"
        )
    pixels = rgb(image)
    h, w = pixels.shape[:2]
    step = max(h, w) / _GRID
    across, down = (np.linspace(0, n - 1, max(2, round(n / step))) for n in (w, h))
    x, y = np.meshgrid(across, down)
    errors = geometry.error_at(np.stack([x, y], -1).reshape(-1, 2)).reshape(x.shape)
    if not np.isfinite(errors).all():
        raise InputError("the geometry has no expected error: too few matches agree with it")
    figure = plots.new_figure(figsize=(_WIDTH, _WIDTH * h / w + 0.3), dpi=_DPI)
    axes = figure.subplots()
    axes.imshow(pixels, alpha=0.6)
    # Without a contour in the range of the errors, matplotlib warns.
    levels = [level for level in _LEVELS if errors.min() < level < errors.max()]
    if levels:
        lines = axes.contour(x, y, errors, levels, cmap="plasma")
        axes.clabel(lines, fmt=lambda value: f"{value:g} px")
    axes.set_title(
        f"expected error of the {geometry.model}: {errors.min():.2g} to {errors.max():.2g} px"
    )
    axes.axis("off")
    return Figure(plots.pixels(figure))
