"""Which way up: the directions in which the gradients around a frame are strongest.

The histogram is a descriptor like any other: the ``sift`` kernel at the frame's centre, 36
directions, through the same density and the same engine.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import pooling
from caloric.descriptor.density import Floats
from caloric.descriptor.layout import Rings
from caloric.descriptor.sampling import SquarePatch
from caloric.image.scalespace import Ladder
from caloric.kernels.sift import Sift
from caloric.theory.gaussians import FloatArray

# Lowe's window: a Gaussian of 1.5 σ, cut at 4.5 σ; bins of 10° smoothed by about as much.
SAMPLING = SquarePatch(size=12, reach=4.5, blur=1.0)
KERNEL = Sift(sigma_d=1.5 / 4.5, sigma_r=0.2)
LAYOUT = Rings(radii=(0.0,), directions=36)
ORDER = 12  # of its series: more, or finer samples, find no better directions
ArrayOrTensor = Any
SECOND = 0.8  # of the highest peak: how strong another must be to count


def histograms(ladder: Ladder, maps: FloatArray) -> Floats:
    """(n, 36): gradient mass around each frame by direction, in the frame's own axes."""
    table = pooling.tabulate(KERNEL, LAYOUT, SAMPLING, most=ORDER)
    return pooling.pool_frames(ladder, maps, SAMPLING, KERNEL, table)


def dominant(histogram: Floats) -> tuple[NDArray[np.intp], FloatArray]:
    """Which row and which angle: every peak of at least 0.8 of its row's highest.

    Peaks are refined by a parabola. A row without mass keeps angle 0. Rows come in their order,
    and within a row the strongest peak first.
    """
    h = histogram
    before, after = np.roll(h, 1, 1), np.roll(h, -1, 1)
    least = h.dtype.type(SECOND) * h.max(1, keepdims=True, initial=0)
    rows, bins = np.nonzero((h > before) & (h >= after) & (h >= least))
    left, middle, right = (v[rows, bins].astype(np.float64) for v in (before, h, after))
    offset = peak_offset(left, middle, right)
    angles = (bins + offset) * (2 * np.pi / h.shape[1])
    order = np.lexsort((-middle, rows))
    rows, angles = rows[order], angles[order]
    flat = np.flatnonzero(np.bincount(rows, minlength=len(h)) == 0)
    if len(flat):
        rows, angles = np.append(rows, flat), np.append(angles, np.zeros(len(flat)))
        order = np.argsort(rows, kind="stable")
        rows, angles = rows[order], angles[order]
    return rows.astype(np.intp), angles


def peak_offset(left: ArrayOrTensor, middle: ArrayOrTensor, right: ArrayOrTensor) -> ArrayOrTensor:
    """Return where the parabola through three bins has its peak, in bins from the middle.

    Of arrays or tensors; 0 where all are equal.
    """
    bend = left - 2 * middle + right
    return 0.5 * (left - right) / (bend + (bend == 0))


def turned(maps: FloatArray, angles: FloatArray) -> FloatArray:
    """The frames turned within themselves: A ← A R_angle."""
    c, s = np.cos(angles), np.sin(angles)
    rotation = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    return np.concatenate([maps[:, :, :2] @ rotation, maps[:, :, 2:]], -1)
