"""A plan: what is to be extracted from images, with all options checked before any work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.descriptor.engine import output_type
from caloric.descriptor.recipes import Descriptor
from caloric.detector.detection import Options
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image import views
from caloric.kernels import Kernel


@dataclass(frozen=True)
class Plan:
    """What :func:`caloric.extract` was asked for.

    ``sizes`` are the relative sizes at which each frame is described, ``output`` is the type of
    the descriptors, ``name`` what their recipe is called and ``views`` the largest tilt of the
    views that features are taken from.
    """

    recipe: Descriptor
    options: Options = Options()  # noqa: RUF009 - frozen
    sizes: tuple[float, ...] = (1.0,)
    output: str = "float32"
    name: str = ""
    views: int = 1

    @classmethod
    def of(
        cls,
        descriptor: str | Descriptor | Kernel,
        recipe: Descriptor,
        options: Options,
        domain_sizes: int | Sequence[float] | None = None,
        dtype: DTypeLike = "float32",
        views: int = 1,
    ) -> "Plan":
        """Return the plan for a recipe that the caller asked for as ``descriptor``."""
        if views > 1 and options.upright:
            raise InputError(
                "views are turned, so that upright=True has none: leave out one of them"
            )
        name = descriptor if isinstance(descriptor, str) else recipe.kernel.name
        sizes, output = relative_sizes(domain_sizes), output_type(dtype, recipe)
        return cls(recipe, options, sizes, output, name, views)

    @property
    def tilts(self) -> tuple[int, ...]:
        """The tilts of the views besides the image itself."""
        return tuple(tilt for tilt in views.TILTS if tilt <= self.views)

    def of_tilt(self, tilt: int) -> "Plan":
        """Return the plan for views of one tilt, which have fewer features than the image."""
        if tilt == 1:
            return self
        most = self.options.max_features
        if most is not None:
            most = min(most, views.FEATURES) // tilt
        return replace(self, options=replace(self.options, max_features=most))

    def features(
        self, frames: Frames, values: NDArray[np.generic], size: tuple[int, int]
    ) -> Features:
        """Return features of an image of that size (h, w)."""
        return Features(frames, values, size, self.name, self.fingerprint, self.views)

    @cached_property
    def fingerprint(self) -> str:
        """What features of other plans must have in common to be comparable."""
        return self.recipe.fingerprint(self.sizes)

    def empty(self, size: tuple[int, int]) -> Features:
        """Return the features of an image that has no pixels."""
        values = np.zeros((0, self.recipe.dimension), self.output)
        return self.features(Frames.empty(), values, size)


def relative_sizes(domain_sizes: int | Sequence[float] | None) -> tuple[float, ...]:
    """Return the relative sizes; a number n stands for COLMAP's: n sizes from 1/6, below 3."""
    if domain_sizes is None:
        return (1.0,)
    if isinstance(domain_sizes, int | np.integer):
        if isinstance(domain_sizes, bool) or domain_sizes < 2:
            raise InputError(f"domain_sizes must be 2 or more sizes, got {domain_sizes}")
        return tuple((1 / 6 + i * (3 - 1 / 6) / domain_sizes) for i in range(domain_sizes))
    if not isinstance(domain_sizes, Sequence | np.ndarray) or isinstance(domain_sizes, str):
        raise InputError(f"domain_sizes must be a whole number or sizes, got {domain_sizes!r}")
    try:
        sizes = tuple(float(size) for size in domain_sizes)
    except (TypeError, ValueError):
        raise InputError(f"domain_sizes must be numbers, got {domain_sizes!r}") from None
    if not sizes or not all(0 < size < np.inf for size in sizes):
        raise InputError(f"domain_sizes must be positive numbers, got {domain_sizes!r}")
    return sizes
