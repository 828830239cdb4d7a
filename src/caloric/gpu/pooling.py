"""Descriptors on a device: contraction with tables, normalization, whitening."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.descriptor import normalize, tables, whitening
from caloric.descriptor.layout import Layout
from caloric.descriptor.recipes import Descriptor
from caloric.descriptor.sampling import Sampling
from caloric.gpu import density
from caloric.gpu.caches import cached
from caloric.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Table:
    """:class:`caloric.descriptor.tables.Table` as one matrix ((2·order + 1) p, entries).

    Raw descriptors are ``scale`` times the product of harmonics and ``matrix``. The scale keeps the
    matrix in the range of float16.
    """

    matrix: Tensor
    order: int
    scale: float


def dense(table: tables.Table, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the matrix of a table with ``count`` points, padded like :class:`density.Points`."""
    blocks = 2 * table.order + 1
    if table.synthesis is None:
        matrix = np.asarray(table.factors[0], np.float64)
    else:
        synthesis = np.asarray(table.synthesis, np.float64)
        positions = table.factors[0].shape[1]
        parts = [np.einsum("pn,b->pnb", table.factors[0], synthesis[:, 0])]
        for m, factor in enumerate(table.factors[1:], 1):
            real, imaginary = factor[:, :positions], factor[:, positions:]
            parts.append(
                np.einsum("pn,b->pnb", real, synthesis[:, 2 * m - 1])
                + np.einsum("pn,b->pnb", imaginary, synthesis[:, 2 * m])
            )
        matrix = np.concatenate([part.reshape(len(part), -1) for part in parts])
    padded = np.zeros((blocks, count + density.padding(count), matrix.shape[1]))
    padded[:, :count] = matrix.reshape(blocks, count, -1)
    return padded.reshape(-1, matrix.shape[1])


@cached
def table(
    kernel: Kernel,
    layout: Layout,
    sampling: Sampling,
    max_order: int | None,
    device: Any,
    dtype: Any,
) -> Table:
    """Return the table of a kernel and layout on a device (cached)."""
    precision = "float64" if dtype == torch.float64 else "float32"
    tabulated = tables.tabulate(kernel, layout, sampling, precision, max_order)
    matrix = dense(tabulated, len(sampling.areas()))
    scale = float(np.abs(matrix).max()) if dtype == torch.float16 else 1.0
    on_device = torch.tensor(matrix / scale, dtype=dtype, device=device)
    return Table(on_device, tabulated.order, scale)


def pool(harmonics: Tensor, table: Table) -> Tensor:
    """Return raw descriptors (n, entries), in float32 or float64."""
    result = harmonics @ table.matrix
    wide = result if result.dtype == torch.float64 else result.float()
    return wide if table.scale == 1 else wide * table.scale


@cached
def _whitening(name: str, dimension: int, device: Any, dtype: Any) -> Tensor:
    return torch.tensor(whitening.load(name)[:, :dimension], dtype=dtype, device=device)


def finish(raw: Tensor, recipe: Descriptor) -> Tensor:
    """Return normalized and, if the recipe has a whitening, whitened descriptors (n, d)."""
    result = normalize.normalize(raw, recipe.normalisation)
    if recipe.whitening is None:
        return result
    matrix = _whitening(recipe.whitening, recipe.dimension, raw.device, raw.dtype)
    return normalize.l2(result @ matrix)
