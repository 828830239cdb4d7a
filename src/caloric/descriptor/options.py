"""DescribeOptions: the options of description, declared, checked and documented in one class."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.descriptor import recipes
from caloric.descriptor.layout import Layout
from caloric.descriptor.recipes import Descriptor, DescriptorLike
from caloric.errors import InputError, check_options
from caloric.runtime import keywords
from caloric.types import Normalization


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    """Options of the descriptor. Invalid values raise InputError.

    Parameters
    ----------
    descriptor : str, Descriptor or Kernel
        Descriptor name, one of those listed by ``caloric info``, or an .npy file written by
        ``caloric.learn_whitening``. From Python, a recipe or a kernel is accepted as well
        (:func:`descriptors` lists the names). If the kernel, the layout or the
        normalization is changed, the descriptor is not whitened, which can change its dimension.
    layout : Grid or Rings, optional
        Layout to use instead of the recipe's.
    normalisation : "none", "l2", "clip" or "root", optional
        Normalization to use instead of the recipe's.
    dtype : "float32", "float64" or "uint8"
        Data type of the descriptors. They are computed in float32.
    domain_sizes : int or sequence of float, optional
        Domain-size pooling as in DSP-SIFT, for any descriptor: the mean of the descriptors of the
        frame scaled by each of these factors. An integer n selects n factors from 1/6 to 3 as in
        COLMAP, whose default is 10.
    parameters : float
        Kernel parameters to use instead of the recipe's, such as ``sigma_d``.
    """

    descriptor: DescriptorLike = "caloric"
    layout: Layout | None = None
    normalisation: Normalization | None = None
    dtype: DTypeLike = "float32"
    domain_sizes: int | Sequence[float] | None = None
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        """Check the options, and store them in a hashable form."""
        object.__setattr__(self, "dtype", _type_name(self.dtype))
        sizes, recipe = self.sizes, self.recipe
        if not isinstance(self.domain_sizes, int | None):
            object.__setattr__(self, "domain_sizes", sizes)
        if self.dtype == "uint8" and recipe.normalisation == "none":
            raise InputError("uint8 needs a normalized descriptor: use l2, clip or root")

    @classmethod
    def of(
        cls,
        descriptor: DescriptorLike,
        given: Mapping[str, Any],
        function: Callable[..., Any],
    ) -> Self:
        """Return the options that keywords of ``function`` describe.

        Keywords that are not fields are kernel parameters. For an unknown one, the error suggests
        the most similar keyword or parameter.
        """
        names = {field.name for field in fields(cls)} - {"descriptor", "parameters"}
        parameters = {name: given[name] for name in given if name not in names}
        if parameters:
            kernel = recipes.descriptor(descriptor).kernel
            kernel_parameters = (field.name for field in fields(kernel))
            check_options(parameters, (*keywords.named(function), *kernel_parameters))
        options = {name: given[name] for name in given if name in names}
        return cls(descriptor=descriptor, parameters=tuple(sorted(parameters.items())), **options)

    @cached_property
    def recipe(self) -> Descriptor:
        """The recipe of the descriptor, with layout, normalization and parameters replaced."""
        recipe = recipes.descriptor(self.descriptor, **dict(self.parameters))
        if self.layout is not None:
            if not isinstance(self.layout, Layout):
                raise InputError(f"layout must be a Grid or Rings, got {self.layout!r}")
            # The whitening was learned for the original layout.
            recipe = replace(recipe, layout=self.layout, whitening=None, dimensions=None)
        if self.normalisation is None or self.normalisation == recipe.normalisation:
            return recipe
        return replace(recipe, normalisation=self.normalisation, whitening=None, dimensions=None)

    @property
    def name(self) -> str:
        """The name of the descriptor."""
        is_name = isinstance(self.descriptor, str)
        return str(self.descriptor) if is_name else self.recipe.kernel.name

    @property
    def output(self) -> str:
        """The name of the data type of the descriptors."""
        return str(self.dtype)

    @property
    def empty_values(self) -> NDArray[np.generic]:
        """The descriptors (0, d) of no frames."""
        return np.zeros((0, self.recipe.dimension), self.output)

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """The relative sizes at which each frame is described."""
        return relative_sizes(self.domain_sizes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the recipe and the sizes: descriptors are comparable only if it is equal."""
        return self.recipe.fingerprint(self.sizes)


class DescribeKeywords(TypedDict, total=False):
    """The fields of :class:`DescribeOptions` and the parameters of kernels, for type checkers."""

    layout: Layout | None
    normalisation: Normalization | None
    dtype: DTypeLike
    domain_sizes: int | Sequence[float] | None
    sigma_d: float
    sigma_r: float
    sigma_s: float
    sigma_a: float
    sigma_l: float
    growth: float
    nodes: int


def _type_name(dtype: DTypeLike) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in ("float32", "float64", "uint8"):
        raise InputError(f"dtype must be float32, float64 or uint8, got {dtype!r}")
    return name


def relative_sizes(domain_sizes: int | Sequence[float] | None) -> tuple[float, ...]:
    """Return the relative sizes; an integer n selects COLMAP's: n sizes from 1/6, below 3."""
    if domain_sizes is None:
        return (1.0,)
    if isinstance(domain_sizes, int | np.integer):
        if isinstance(domain_sizes, bool) or domain_sizes < 2:
            raise InputError(f"domain_sizes must be 2 or more, got {domain_sizes}")
        return tuple((1 / 6 + i * (3 - 1 / 6) / domain_sizes) for i in range(domain_sizes))
    if not isinstance(domain_sizes, Sequence | np.ndarray) or isinstance(domain_sizes, str):
        raise InputError(
            f"domain_sizes must be an integer or a sequence of numbers, got {domain_sizes!r}"
        )
    try:
        sizes = tuple(float(size) for size in domain_sizes)
    except (TypeError, ValueError):
        raise InputError(f"domain_sizes must be numbers, got {domain_sizes!r}") from None
    if not sizes or not all(0 < size < np.inf for size in sizes):
        raise InputError(f"domain_sizes must be positive numbers, got {domain_sizes!r}")
    return sizes
