"""Descriptors by name; each is a recipe of kernel, layout, sampling and normalization."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from caloric.descriptor import whitening
from caloric.descriptor.layout import Grid, Layout, Rings
from caloric.descriptor.sampling import Foveated, Sampling, SquarePatch
from caloric.errors import InputError, unknown
from caloric.kernels import KERNELS, Kernel, kernel, make
from caloric.types import Normalization


@dataclass(frozen=True)
class Descriptor:
    """A recipe: everything that defines a descriptor.

    Parameters
    ----------
    kernel : Kernel
        Weight that an entry gives to each gradient of the patch.
    layout : Grid or Rings
        Positions and directions of the entries.
    normalisation : "none", "l2", "clip" or "root"
        Normalization of the entries.
    sampling : Sampling
        Points at which the density is measured.
    power : float
        Exponent of |∇f| in the density: 1 in the theory; smaller values reduce the weight of strong
        edges.
    harmonics : int, optional
        Maximum order of the kernel's series in φ; a low order is enough for matching. By default
        the neglected part is below 1e-6.
    whitening : str, optional
        Name of a learned matrix of the package, or an .npy file of :func:`learn_whitening`.
    dimensions : int, optional
        Number of columns of this matrix to use; by default all.
    """

    kernel: Kernel
    layout: Layout = field(default_factory=Grid)
    normalisation: Normalization = "root"
    sampling: Sampling = field(default_factory=lambda: SquarePatch(32))
    power: float = 1.0
    harmonics: int | None = None
    whitening: str | None = None
    dimensions: int | None = None

    def __post_init__(self) -> None:
        """Check that the whitening matrix fits the layout and has enough columns."""
        if self.whitening is not None:
            rows = whitening.load(self.whitening).shape[0]
            if rows != self.layout.dimension:
                raise InputError(
                    f"the whitening {self.whitening!r} is for descriptors of length {rows}; "
                    f"this layout has {self.layout.dimension} entries"
                )
        if self.dimensions is not None:
            is_integer = isinstance(self.dimensions, int) and not isinstance(self.dimensions, bool)
            limit = 0 if self.whitening is None else whitening.load(self.whitening).shape[1]
            if not is_integer or not 1 <= self.dimensions <= limit:
                raise InputError(
                    f"dimensions must be 1 to {limit}, got {self.dimensions!r}"
                    if limit
                    else "dimensions can be chosen only for whitened descriptors"
                )

    @property
    def dimension(self) -> int:
        """The length d of a descriptor."""
        if self.whitening is None:
            return self.layout.dimension
        return self.dimensions or int(whitening.load(self.whitening).shape[1])

    def fingerprint(self, domain_sizes: tuple[float, ...] = (1.0,)) -> str:
        """Return a hash of the recipe: descriptors are comparable only if it is equal."""
        learned = "" if self.whitening is None else whitening.fingerprint(self.whitening)
        return hashlib.sha256(f"{self!r} {domain_sizes!r} {learned}".encode()).hexdigest()[:16]


DescriptorLike: TypeAlias = str | Descriptor | Kernel  # what functions accept as a descriptor

# Similar to the default, but without learned parts: the exact similarity kernel on foveated
# samples, lengths in σ of the frame, 128 entries that are not whitened.
_UNLEARNED = Descriptor(
    kernel("similarity", sigma_d=0.8, growth=0.3, sigma_r=0.6, sigma_s=0.3, nodes=21),
    Rings(radii=(2.4, 5.6, 12.0), angles=(4, 6, 6)),
    "root",
    Foveated(),
    power=0.5,
    harmonics=6,
)


def from_numbers(numbers: Mapping[str, Any]) -> Descriptor:
    """Return the recipe of the default's family with numbers chosen by tools/choose.py."""
    names = ("sigma_d", "growth", "sigma_r", "sigma_s")
    return Descriptor(
        kernel("similarity", **{name: numbers[name] for name in names}, nodes=21),
        Rings(
            radii=tuple(numbers["radii"]),
            angles=int(numbers["angles"]),
            directions=int(numbers["directions"]),
        ),
        "root",
        Foveated(reach=numbers["reach"], finest=numbers["finest"], growth=numbers["pitch"]),
        power=numbers["power"],
        harmonics=int(numbers["harmonics"]),
    )


@cache
def search() -> Any:
    """Return the result of tools/choose.py: the chosen numbers, the search space and the scores."""
    file = resources.files("caloric") / "data" / "caloric.json"
    return json.loads(file.read_text(encoding="utf-8"))


@cache
def _default() -> Descriptor:
    return replace(from_numbers(search()["chosen"]), whitening="caloric")


def descriptors() -> tuple[str, ...]:
    """Return the names of the available descriptors, the default first.

    Returns
    -------
    tuple of str
        Names that functions accept as ``descriptor``.

    Examples
    --------
    >>> import caloric
    >>> caloric.descriptors()[:2]
    ('caloric', 'sift')
    """
    return ("caloric", *KERNELS)


VARIANTS = ("caloric-64", "caloric-32", "caloric-unwhitened", "caloric-unlearned")
"""The default with 64 and 32 dimensions, without whitening, and a similar one without learning."""


def _named(name: object) -> Descriptor:
    if isinstance(name, str) and name in KERNELS:
        return Descriptor(kernel(name, **KERNELS[name].defaults))
    if name == "caloric":
        return _default()
    if name == "caloric-unlearned":
        return _UNLEARNED
    if name == "caloric-unwhitened":
        return replace(_default(), whitening=None)
    if isinstance(name, str) and name in VARIANTS:
        return replace(_default(), dimensions=int(name.removeprefix("caloric-")))
    if isinstance(name, str) and name.endswith(".npy"):  # a file of learn_whitening
        return replace(_default(), whitening=name)
    raise unknown("descriptor", name, (*descriptors(), *VARIANTS))


def descriptor(name: str | Descriptor | Kernel, **parameters: float) -> Descriptor:
    """Return the recipe of that name, with the given kernel parameters, such as ``sigma_d=.15``.

    For a kernel it is ``Descriptor(kernel)``.
    """
    if isinstance(name, Kernel):
        name = Descriptor(name)
    recipe = name if isinstance(name, Descriptor) else _named(name)
    if not parameters:
        return recipe
    current = {f.name: getattr(recipe.kernel, f.name) for f in fields(recipe.kernel)}
    # The whitening was learned for the original kernel.
    changed = make(type(recipe.kernel), **(current | parameters))
    return replace(recipe, kernel=changed, whitening=None, dimensions=None)
