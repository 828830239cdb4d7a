"""From pixels to descriptors: the recipes, and the functions that carry them out."""

from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import density, normalise, pooling
from caloric.errors import InputError
from caloric.images import as_unit_range
from caloric.kernels import Kernel, kernel, make
from caloric.layout import Grid, Layout
from caloric.normalise import Normalisation
from caloric.sampling import SquarePatch
from caloric.theory.gaussians import FloatArray

_BLOCK = 32
_EIGHT = 2 * np.pi * np.arange(8) / 8


@dataclass(frozen=True)
class Descriptor:
    """A recipe: which kernel, sampled where, normalised how."""

    kernel: Kernel
    layout: Layout = field(default_factory=Grid)
    normalisation: Normalisation = "root"


# Lengths are in half-widths of the patch. The widths are those that did well before anything was
# tuned, about one grid spacing; none was fitted to a benchmark.
_RECIPES: dict[str, dict[str, float]] = {
    "sift": {"sigma_d": 0.2, "sigma_r": 0.4},
    "dsp": {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3, "nodes": 65},
    "dsp-inner": {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3},
    "dsp-both": {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3},
    "dsp-domain": {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3},
    "heat": {"sigma_d": 0.2, "sigma_a": 0.4},
    "similarity": {"sigma_d": 0.16, "sigma_r": 0.4, "sigma_s": 0.3, "nodes": 65},
    "distribution-field": {"sigma_d": 0.2, "sigma_l": 0.08},
    "distribution-field-heat": {"sigma_d": 0.2, "sigma_a": 0.3, "sigma_l": 0.08},
}


def descriptors() -> tuple[str, ...]:
    """The names that can be passed as ``descriptor``."""
    return tuple(_RECIPES)


def descriptor(name: str | Descriptor, **parameters: float) -> Descriptor:
    """The recipe of that name, with kernel parameters changed if given: ``sigma_d=.15``."""
    if isinstance(name, Descriptor):
        own = {f.name: getattr(name.kernel, f.name) for f in fields(name.kernel)}
        return replace(name, kernel=make(type(name.kernel), **(own | parameters)))
    if name not in _RECIPES:
        raise InputError(f"unknown descriptor {name!r}; known are {', '.join(_RECIPES)}")
    return Descriptor(kernel(name, **(_RECIPES[name] | parameters)))


def _patches(patches: object, dtype: str) -> NDArray[np.floating]:
    array = np.asarray(patches)
    if array.ndim != 3:
        raise InputError(f"patches: expected shape (n, S, S), got {array.shape}")
    if array.shape[1] != array.shape[2]:
        raise InputError(
            f"patches: expected squares, got {array.shape[1]} rows of {array.shape[2]} pixels"
        )
    if array.shape[1] < 4:
        raise InputError(f"patches: at least 4 x 4 pixels are needed, got {array.shape[1:]}")
    return as_unit_range(array, "patches", dtype)


def describe_patches(
    patches: ArrayLike,
    descriptor: str | Descriptor = "heat",
    *,
    layout: Layout | None = None,
    normalisation: Normalisation | None = None,
    dtype: Literal["float32", "float64", "uint8"] = "float32",
    **parameters: float,
) -> NDArray[np.generic]:
    """Descriptors (n, d) of square grey patches (n, S, S).

    ``descriptor`` is one of :func:`descriptors` or a recipe of your own; ``layout``,
    ``normalisation`` ("none", "l2", "clip", "root") and kernel ``parameters`` such as ``sigma_d``
    replace the recipe's. With ``"none"`` the values are those of the integral h(β, x), gradients
    and lengths in patch coordinates [-1, 1]. A patch without gradient has descriptor 0 (the
    distribution fields, which need none, do not).
    """
    recipe = _recipe(descriptor, layout, normalisation, parameters)
    if dtype not in ("float32", "float64", "uint8"):
        raise InputError(f"dtype must be float32, float64 or uint8, got {dtype!r}")
    if dtype == "uint8" and recipe.normalisation == "none":
        raise InputError("uint8 needs a normalised descriptor: use l2, clip or root")
    working = "float64" if dtype == "float64" else "float32"
    pixels = _patches(patches, working)
    table = pooling.tabulate(recipe.kernel, recipe.layout, SquarePatch(pixels.shape[1]), working)
    raw = np.empty((len(pixels), recipe.layout.dimension), working)
    for start in range(0, len(pixels), _BLOCK):
        part = density.measure(pixels[start : start + _BLOCK], recipe.kernel)
        raw[start : start + _BLOCK] = pooling.pool(density.harmonics(part, table.order), table)
    result = normalise.normalise(raw, recipe.normalisation)
    return normalise.to_uint8(result) if dtype == "uint8" else result


def _recipe(
    name: str | Descriptor,
    layout: Layout | None,
    normalisation: Normalisation | None,
    parameters: dict[str, float],
) -> Descriptor:
    recipe = descriptor(name, **parameters)
    return replace(
        recipe,
        layout=layout or recipe.layout,
        normalisation=normalisation or recipe.normalisation,
    )


def response_map(
    patch: ArrayLike,
    descriptor: str | Descriptor = "heat",
    *,
    beta: ArrayLike = _EIGHT,
    size: int | None = None,
    **parameters: float,
) -> FloatArray:
    """h(β, ·) over a whole patch (S, S), as in the paper's figures: (len(beta), size, size).

    The sum over pixels is exact, with the kernel at every pair of points; ``size`` is the number of
    points a side, the patch's own by default.
    """
    recipe = _recipe(descriptor, None, None, parameters)
    array = np.asarray(patch)
    if array.ndim != 2:
        raise InputError(f"patch: expected shape (S, S), got {array.shape}")
    pixels = _patches(array[None], "float64")
    side = pixels.shape[1] if size is None else size
    if side < 1:
        raise InputError(f"size must be 1 or more, got {size}")
    angles = np.atleast_1d(np.asarray(beta, np.float64))
    part = density.measure(pixels, recipe.kernel)
    points = SquarePatch(pixels.shape[1]).points()
    maps = pooling.direct_sum(recipe.kernel, angles, SquarePatch(side).points(), part, points)
    return maps.T.reshape(len(angles), side, side)
