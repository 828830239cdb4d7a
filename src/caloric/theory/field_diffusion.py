"""Diffusion of harmonic fields over rotation and log-scale by quadrature.

The diffused field u_m is the mean of e^{−imα} u_m(e^s R_α x) over normal α and s with the same
standard deviation. :func:`caloric.align` uses it with ``diffusion="all"``.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from caloric.types import Pixels

_NODES = 7  # over rotations, and over scales
_OUTERMOST = 2.4  # standard deviations: position of the outermost nodes


def diffuse(fields: Pixels, channels: Sequence[tuple[int, int]], spread: float) -> Pixels:
    """Return fields (c, h, w) diffused over rotation and log-scale about their center.

    ``channels`` has the order m and the first channel of each harmonic; for m ≠ 0 this channel and
    the next are the real and imaginary parts. ``spread`` is the standard deviation.
    """
    flat = fields.reshape(len(fields), -1)
    out = np.empty_like(flat)
    size = (fields.shape[1], fields.shape[2])
    operators = _operators(size, tuple(m for m, _ in channels), spread)
    for (m, channel), operator in zip(channels, operators, strict=True):
        if m == 0:
            out[channel] = operator(flat[channel])
        else:
            u = operator(flat[channel] + 1j * flat[channel + 1])
            out[channel], out[channel + 1] = u.real, u.imag
    return out.reshape(fields.shape)


@lru_cache(maxsize=32)
def _operators(
    size: tuple[int, int], orders: tuple[int, ...], spread: float
) -> tuple[Callable[[Pixels], Pixels], ...]:
    """Return an operator for each order m: a sparse matrix over the pixels of a grid (h, w).

    Fields are interpolated bilinearly.
    """
    from scipy.sparse import csr_matrix

    h, w = size
    nodes = np.linspace(-_OUTERMOST, _OUTERMOST, _NODES)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    nodes *= spread / np.sqrt(mass @ nodes**2)
    y, x = np.mgrid[:h, :w].reshape(2, -1).astype(float)
    z = (x - (w - 1) / 2) + 1j * (y - (h - 1) / 2)
    angles, log_scales = (v.ravel() for v in np.meshgrid(nodes, nodes, indexing="ij"))
    weight = np.outer(mass, mass).ravel()
    to = np.exp(log_scales + 1j * angles)[:, None] * z
    column, row = to.real + (w - 1) / 2, to.imag + (h - 1) / 2
    left, top = np.floor(column), np.floor(row)
    parts = []
    for right in (0, 1):
        for down in (0, 1):
            share = np.abs(1 - right - (column - left)) * np.abs(1 - down - (row - top))
            i, j = (left + right).astype(int), (top + down).astype(int)
            inside = (i >= 0) & (i < w) & (j >= 0) & (j < h)
            node, point = np.nonzero(inside)
            pixels = (j * w + i)[inside]
            parts.append((point, pixels, (weight[:, None] * share)[inside], angles[node]))
    points, pixels, shares, rotations = (np.concatenate(v) for v in zip(*parts, strict=True))

    def operator(m: int) -> Callable[[Pixels], Pixels]:
        values = shares * np.exp(-1j * m * rotations) if m else shares
        matrix = csr_matrix((values, (points, pixels)), (h * w, h * w))
        return lambda u: matrix @ u

    return tuple(operator(m) for m in orders)
