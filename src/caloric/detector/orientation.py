"""Orientation assignment: the dominant gradient directions around a frame.

The orientation histogram is computed as a descriptor: the ``sift`` kernel at the center of the
frame, with 36 directions.
"""

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import pooling, tables
from caloric.descriptor.density import Floats
from caloric.descriptor.layout import Rings
from caloric.descriptor.sampling import SquarePatch
from caloric.descriptor.tables import Table
from caloric.image.scalespace import Ladder
from caloric.kernels.sift import Sift
from caloric.types import ArrayOrTensor, FloatArray

# Lowe's window, a Gaussian of 1.5 σ truncated at 4.5 σ, and bins of 10° with similar smoothing.
SAMPLING = SquarePatch(size=12, reach=4.5, blur=1.0)
KERNEL = Sift(sigma_d=1.5 / 4.5, sigma_r=0.2)
LAYOUT = Rings(radii=(0.0,), directions=36)
ORDER = 12  # of the series; higher orders or finer samples do not improve the directions
SECOND = 0.8  # minimum height of further peaks, relative to the highest


def table() -> Table:
    """Return the table with which the histograms are computed."""
    return tables.tabulate(KERNEL, LAYOUT, SAMPLING, max_order=ORDER)


def histograms(ladder: Ladder, maps: FloatArray) -> Floats:
    """Return the orientation histogram (n, 36) of each frame, in its coordinates."""
    return pooling.pool_frames(ladder, maps, SAMPLING, KERNEL, table())


def dominant(histogram: Floats) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the row (m,) and angle (m,) of every peak of at least 0.8 of its row's highest.

    Peaks are refined by fitting a parabola. The angle of an empty histogram is 0. The first n of
    the result are the highest peaks of the n rows, in order; the others follow, sorted by row and
    within a row by decreasing height.
    """
    h = histogram
    before, after = np.roll(h, 1, 1), np.roll(h, -1, 1)
    threshold = h.dtype.type(SECOND) * h.max(1, keepdims=True, initial=0)
    rows, bins = np.nonzero((h > before) & (h >= after) & (h >= threshold))
    left, middle, right = (v[rows, bins].astype(np.float64) for v in (before, h, after))
    offset = peak_offset(left, middle, right)
    angles = (bins + offset) * (2 * np.pi / h.shape[1])
    order = np.lexsort((-middle, rows))
    rows, angles = rows[order], angles[order]
    with_peak, highest = np.unique(rows, return_index=True)
    first = np.zeros(len(h))
    first[with_peak] = angles[highest]
    rows = np.append(np.arange(len(h)), np.delete(rows, highest))
    return rows, np.append(first, np.delete(angles, highest))


def peak_offset(left: ArrayOrTensor, middle: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
    """Return the offset in bins of the peak of a parabola through three bins, from the middle one.

    The arguments are arrays or tensors; the result is 0 where all three are equal.
    """
    bend = left - 2 * middle + right
    return 0.5 * (left - right) / (bend + (bend == 0))


def rotated(maps: FloatArray, angles: FloatArray) -> FloatArray:
    """Return the frames (n, 2, 3) rotated in their own coordinates: A ← A R_angle."""
    c, s = np.cos(angles), np.sin(angles)
    rotation = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    return np.concatenate([maps[:, :, :2] @ rotation, maps[:, :, 2:]], -1)
