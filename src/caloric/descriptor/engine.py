"""Computation of the descriptors of a recipe: density, table, normalization, whitening."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from caloric.descriptor import density, normalize, pooling, tables, whitening
from caloric.descriptor.layout import Layout
from caloric.descriptor.options import DescribeOptions
from caloric.descriptor.recipes import Descriptor
from caloric.descriptor.sampling import SquarePatch
from caloric.descriptor.tables import Table
from caloric.errors import InputError
from caloric.image.pixels import as_array, as_unit_range
from caloric.image.scalespace import Ladder
from caloric.kernels import Kernel
from caloric.runtime import threads
from caloric.types import FloatArray, Normalization

V = TypeVar("V", bound=Any)
_BLOCK = 256


def finish(raw: density.Floats, recipe: Descriptor, output: str) -> NDArray[np.generic]:
    """Return raw descriptors (n, entries) normalized, whitened and converted to ``output``."""
    whiten = None
    if recipe.whitening is not None:
        whiten = whitening.whitener(whitening.load(recipe.whitening)[:, : recipe.dimension])

    def block(rows: range) -> Any:
        result = normalize.normalize(raw[rows.start : rows.stop], recipe.normalisation)
        if whiten is not None:
            result = whiten(result)
        if output == "uint8":
            return normalize.to_uint8(result, signed=whiten is not None)
        return result.astype(output, copy=False)

    parts = threads.each(block, threads.strips(len(raw), 2 * _BLOCK))
    return np.concatenate(parts) if parts else np.zeros((0, recipe.dimension), output)


def table_of(recipe: Descriptor) -> Table:
    """Return the table with which a descriptor is computed from the levels of an image."""
    return tables.tabulate(
        recipe.kernel, recipe.layout, recipe.sampling, max_order=recipe.harmonics
    )


def describe_levels(
    ladder: Ladder, maps: FloatArray, options: DescribeOptions
) -> NDArray[np.generic]:
    """Return the descriptors (n, d) of frames ``maps`` (n, 2, 3) from the levels of an image.

    With several sizes the result is the mean over the frame scaled by each of them.
    """
    recipe = options.recipe
    table = table_of(recipe)

    def pooled(size: float) -> density.Floats:
        scaled = maps.copy()
        scaled[:, :, :2] *= size
        return pooling.pool_frames(
            ladder, scaled, recipe.sampling, recipe.kernel, table, recipe.power
        )

    return finish(mean_over_sizes(pooled, options.sizes), recipe, options.output)


def mean_over_sizes(pooled: Callable[[float], V], sizes: tuple[float, ...]) -> V:
    """Return the raw descriptors of one size, or the mean over several, as arrays or tensors.

    As in DSP-SIFT, each size is normalized and clipped separately before averaging.
    """
    raw = pooled(sizes[0])
    if len(sizes) == 1:
        return raw
    raw = normalize.clip(raw) / len(sizes)
    for size in sizes[1:]:
        raw = raw + normalize.clip(pooled(size)) / len(sizes)
    return raw


def _patches(patches: object, dtype: str) -> NDArray[np.floating]:
    array = as_array(patches, "patches")
    if array.ndim != 3:
        raise InputError(f"patches: expected shape (n, S, S), got {array.shape}")
    if array.shape[1] != array.shape[2]:
        raise InputError(
            f"patches: expected squares, got {array.shape[1]} rows of {array.shape[2]} pixels"
        )
    if array.shape[1] < 4:
        raise InputError(f"patches: must have at least 4 x 4 pixels, got {array.shape[1:]}")
    return as_unit_range(patches, "patches", dtype)


def check_range(pixels: NDArray[np.floating], kernel: Kernel) -> None:
    """Raise InputError if an intensity kernel gets pixels outside [0, 1]."""
    if kernel.feature == "intensity" and 0 not in pixels.shape:
        check_intensities(float(pixels.min()), float(pixels.max()), kernel)


def check_intensities(low: float, high: float, kernel: Kernel) -> None:
    """Raise InputError if the intensities of an image are not in [0, 1]."""
    if low < -1e-3 or high > 1.001:
        raise InputError(
            f"{kernel.name} needs intensities in [0, 1], got {low:g} to {high:g}; rescale the image"
        )


@threads.single_threaded_blas
def describe_patches(
    patches: ArrayLike,
    descriptor: str | Descriptor | Kernel = "heat",
    *,
    layout: Layout | None = None,
    normalisation: Normalization | None = None,
    dtype: DTypeLike = "float32",
    **parameters: float,
) -> NDArray[np.generic]:
    """Compute descriptors of square grayscale patches.

    The first call with a recipe computes its table, which takes longer for larger patches and
    narrower kernels.

    Parameters
    ----------
    patches : array (n, S, S)
        Grayscale patches: uint8, uint16, bool, or floats in [0, 1].
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel. Its sampling must be
        a square patch.
    layout : Grid or Rings, optional
        Layout to use instead of the recipe's.
    normalisation : "none", "l2", "clip" or "root", optional
        Normalization to use instead of the recipe's. With "none" the values are those of the
        integral h(β, x), with gradients and lengths in patch coordinates [-1, 1].
    dtype : "float32", "float64" or "uint8"
        Data type of the result.
    **parameters : float
        Kernel parameters to use instead of the recipe's, such as ``sigma_d``.

    Returns
    -------
    ndarray (n, d)
        One descriptor per patch. The descriptor of a constant patch is 0, except for the
        distribution fields, which do not use gradients.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> patches = np.random.default_rng(0).random((3, 32, 32))
    >>> caloric.describe_patches(patches, "heat").shape
    (3, 128)
    """
    given = {"layout": layout, "normalisation": normalisation, "dtype": dtype, **parameters}
    options = DescribeOptions.of(descriptor, given, describe_patches)
    recipe, output = options.recipe, options.output
    if not isinstance(recipe.sampling, SquarePatch):
        raise InputError(
            "this descriptor does not sample a square patch; use describe(image, frames) instead"
        )
    working = "float64" if output == "float64" else "float32"
    pixels = _patches(patches, working)
    check_range(pixels, recipe.kernel)
    sampling = SquarePatch(pixels.shape[1])
    table = tables.tabulate(recipe.kernel, recipe.layout, sampling, working, recipe.harmonics)
    raw = np.empty((len(pixels), recipe.layout.dimension), working)
    for start in range(0, len(pixels), _BLOCK):
        part = density.measure(pixels[start : start + _BLOCK], recipe.kernel)
        raw[start : start + _BLOCK] = pooling.pool(part, table)
    return finish(raw, recipe, output)


def response_map(
    patch: ArrayLike,
    descriptor: str | Descriptor | Kernel = "heat",
    *,
    beta: ArrayLike | None = None,
    size: int | None = None,
    **parameters: float,
) -> FloatArray:
    """Compute h(β, ·) over a whole patch, as in the paper's figures.

    The kernel is evaluated at every pair of points, without a table, so the time grows with
    (S · size)²: a second for 32 x 32, minutes for 128 x 128.

    Parameters
    ----------
    patch : array (S, S)
        Grayscale patch: uint8, uint16, bool, or floats in [0, 1].
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    beta : array (b,), optional
        Directions in radians, or levels for the distribution fields; by default the recipe's.
    size : int, optional
        Width of the map; by default S.
    **parameters : float
        Kernel parameters to use instead of the recipe's.

    Returns
    -------
    ndarray (b, size, size)
        One map for each direction.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> patch = np.random.default_rng(0).random((16, 16))
    >>> caloric.response_map(patch, "sift", beta=[0.0, 1.0], size=8).shape
    (2, 8, 8)
    """
    recipe = DescribeOptions.of(descriptor, parameters, response_map).recipe
    array = as_array(patch, "patch")
    if array.ndim != 2:
        raise InputError(f"patch: expected shape (S, S), got {array.shape}")
    pixels = _patches(array[None], "float64")
    check_range(pixels, recipe.kernel)
    if beta is None:
        angles = recipe.layout.bins(recipe.kernel)
    else:
        angles = np.atleast_1d(np.asarray(beta, np.float64)).ravel()
    if len(angles) == 0 or not np.isfinite(angles).all():
        raise InputError("beta must be one or more finite numbers")
    side = pixels.shape[1] if size is None else size
    if not isinstance(side, int | np.integer) or side < 1:
        raise InputError(f"size must be a positive integer, got {size!r}")
    part = density.measure(pixels, recipe.kernel)
    points = SquarePatch(pixels.shape[1]).points()
    maps = pooling.direct_sum(recipe.kernel, angles, SquarePatch(int(side)).points(), part, points)
    return maps.T.reshape(len(angles), side, side)
