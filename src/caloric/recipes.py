"""The descriptors by name: each a recipe of kernel, layout, sampling and normalisation."""

import hashlib
from dataclasses import dataclass, field, fields, replace

from caloric.errors import InputError
from caloric.kernels import Kernel, kernel, make
from caloric.layout import Grid, Layout, Rings
from caloric.normalise import Normalisation
from caloric.sampling import Foveated, Sampling, SquarePatch


@dataclass(frozen=True)
class Descriptor:
    """A recipe: which kernel, sampled where, measured where, normalised how.

    ``power`` is the exponent of the gradient's length in the density: 1 in the theory; less makes
    strong edges count for less. ``harmonics`` cuts the kernel's series in φ: None keeps all that
    matter to 1e-6; a few keep what matters to matching.
    """

    kernel: Kernel
    layout: Layout = field(default_factory=Grid)
    normalisation: Normalisation = "root"
    sampling: Sampling = field(default_factory=lambda: SquarePatch(32))
    power: float = 1.0
    harmonics: int | None = None

    @property
    def dimension(self) -> int:
        """d: the length of a descriptor."""
        return self.layout.dimension

    def fingerprint(self, domain_sizes: tuple[float, ...] = (1.0,)) -> str:
        """The same for two recipes only if they make comparable descriptors."""
        return hashlib.sha256(f"{self!r} {domain_sizes!r}".encode()).hexdigest()[:16]


# Lengths are in half-widths of the patch. The widths are those that did well before anything was
# tuned, about one grid spacing; none was fitted to a benchmark.
_PLAIN: dict[str, dict[str, float]] = {
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

# The default: the exact similarity kernel on foveated samples, lengths in σ of the frame.
_CALORIC = Descriptor(
    kernel("similarity", sigma_d=0.8, growth=0.3, sigma_r=0.6, sigma_s=0.3, nodes=21),
    Rings(radii=(2.4, 5.6, 12.0), angles=(4, 6, 6)),
    "root",
    Foveated(),
    power=0.5,
    harmonics=6,
)


def descriptors() -> tuple[str, ...]:
    """The names that can be passed as ``descriptor``: the default first."""
    return ("caloric", *_PLAIN)


def descriptor(name: str | Descriptor | Kernel, **parameters: float) -> Descriptor:
    """The recipe of that name, with kernel parameters changed if given: ``sigma_d=.15``.

    A kernel stands for the plain recipe with that kernel.
    """
    if isinstance(name, Kernel):
        name = Descriptor(name)
    if isinstance(name, str) and name in _PLAIN:
        return Descriptor(kernel(name, **(_PLAIN[name] | parameters)))
    if not isinstance(name, Descriptor):
        if name != "caloric":
            raise InputError(f"unknown descriptor {name!r}; known are {', '.join(descriptors())}")
        name = _CALORIC
    if not parameters:
        return name
    own = {f.name: getattr(name.kernel, f.name) for f in fields(name.kernel)}
    return replace(name, kernel=make(type(name.kernel), **(own | parameters)))
