"""Pooling: the contraction of tables with the densities of patches or frames.

:func:`direct_sum` computes the same sum without a table, as the reference for tests.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caloric.descriptor.density import (
    Floats,
    Measure,
    harmonics,
    in_sigmas,
    levels_of,
    measure_frames,
)
from caloric.descriptor.sampling import Sampling
from caloric.descriptor.tables import BLOCK, Table
from caloric.frames import sigmas
from caloric.image.scalespace import Ladder
from caloric.kernels import Kernel
from caloric.runtime import native, progress, threads
from caloric.types import FloatArray

_FRAMES = 256  # maximum number of frames per block
_MIN_FRAMES = 64  # per block of the compiled core; smaller blocks are not worth a thread
_ROWS = 64  # patches per product, so that their harmonics fit in the cache


def pool(density: Measure, table: Table) -> Floats:
    """Return the raw descriptors (n, entries) of the density of n patches."""
    contract = _contract if table.synthesis is None else _contract_by_order
    parts = []
    for start in range(0, len(density.weights), _ROWS):
        part = slice(start, start + _ROWS)
        parts.append(
            contract(Measure(density.weights[part], density.cos[part], density.sin[part]), table)
        )
    return np.concatenate(parts) if parts else np.zeros((0, table.entries), density.weights.dtype)


def _contract(density: Measure, table: Table) -> Floats:
    """Return the raw descriptors by one product with all harmonics."""
    flat = harmonics(density, table.order).reshape(len(density.weights), -1)
    return np.asarray(flat @ table.factors[0])


def _contract_by_order(density: Measure, table: Table) -> Floats:
    """Return the raw descriptors by one product per order, and ``synthesis``."""
    weights, synthesis = density.weights, table.synthesis
    phase = np.empty(weights.shape, np.result_type(weights, np.complex64))  # e^{iφ}
    phase.real, phase.imag = density.cos, density.sin
    positions = table.factors[0].shape[1]
    pooled = np.empty((len(weights), 2 * table.order + 1, positions), weights.dtype)
    pooled[:, 0] = weights @ table.factors[0]
    wave: Any = weights
    for m, factor in enumerate(table.complex_factors, 1):
        wave = wave * phase  # ρ e^{imφ}
        sums = wave @ factor
        pooled[:, 2 * m - 1], pooled[:, 2 * m] = sums.real, sums.imag
    assert synthesis is not None
    return np.asarray(pooled.transpose(0, 2, 1) @ synthesis.T).reshape(len(weights), -1)


def pool_frames(
    ladder: Ladder,
    maps: FloatArray,
    sampling: Sampling,
    kernel: Kernel,
    table: Table,
    power: float = 1.0,
) -> Floats:
    """Return the raw descriptors (n, entries) of frames (n, 2, 3)."""
    core = native.core() if kernel.feature == "orientation" else None
    if core is not None:
        return _compiled(core, ladder, maps, sampling, table, power)
    result = np.empty((len(maps), table.entries), np.float32)
    # Frames of similar scale read the same levels, which saves calls.
    order = np.argsort(sigmas(maps), kind="stable")

    def block(rows: range) -> None:
        indices = order[rows.start : rows.stop]
        density = measure_frames(ladder, maps[indices], sampling, kernel, power)
        result[indices] = pool(density, table)

    # The block size is constant, because the rounding of matrix products depends on it.
    threads.each(block, threads.strips(len(maps), _FRAMES))
    return result


def _compiled(
    core: Any, ladder: Ladder, maps: FloatArray, sampling: Sampling, table: Table, power: float
) -> Floats:
    """Return :func:`pool_frames` computed by the compiled core."""
    # Sort by position, so that the pixels of neighboring frames are in the cache.
    order = np.lexsort((maps[:, 0, 2], np.floor(maps[:, 1, 2] / 64)))
    maps, points = maps[order], in_sigmas(sampling)
    result = np.empty((len(maps), table.entries), np.float32)
    levels = [(level.pixels, level.step, level.origin, *level.corner) for level in ladder.levels]
    indices, factors = levels_of(ladder, maps, points), points.factors(power)
    runs, compiled = np.array([0, *(run.stop for run in points.runs)]), table.compiled

    def block(rows: range) -> None:
        part = slice(rows.start, rows.stop)
        core.describe(
            levels=levels, size=ladder.size, maps=maps[part], level_indices=indices[part],
            offsets=points.offsets, factors=factors, runs=runs, power=power, table=compiled,
            raw=result[part],
        )  # fmt: skip

    # A few blocks per thread; the results of the core do not depend on the block size.
    size = min(max(len(maps) // (2 * threads.count()), _MIN_FRAMES), _FRAMES)
    threads.each(block, threads.strips(len(maps), size))
    unsorted = np.empty_like(result)
    unsorted[order] = result
    return unsorted


def direct_sum(
    kernel: Kernel, beta: ArrayLike, x: ArrayLike, density: Measure, points: FloatArray
) -> FloatArray:
    """Return h(β, x) = Σ_y weight(y) K(β, x; φ(y), y) for one patch, in float64, without a table.

    ``density`` is that of a single patch; for β (b,) and x (n, 2) the result is (n, b). Points of
    weight 0 are skipped.
    """
    beta, x = np.asarray(beta, np.float64), np.asarray(x, np.float64)
    nonzero = np.flatnonzero(density.weights[0])
    weights = density.weights[0, nonzero].astype(float)
    phi = density.angles[0, nonzero].astype(float) * (kernel.period / (2 * np.pi))
    y = points[nonzero]
    result = np.zeros((len(x), len(beta)))
    if len(nonzero) == 0:
        return result
    block = max(1, BLOCK // (len(beta) * len(nonzero)))
    for start in range(0, len(x), block):
        progress.check()
        part = x[start : start + block, None, None]
        result[start : start + block] = kernel(beta[:, None], part, phi, y) @ weights
    return result
