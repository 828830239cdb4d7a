"""The kernels, one per file.

A descriptor samples the smoothed gradient-orientation density of a patch,
h(β, x) = Σ_y |∇f(y)| K(β, x; φ(y), y). Descriptors differ in their kernel K.
"""

from dataclasses import MISSING, fields
from importlib import import_module

from caloric.errors import InputError, unknown
from caloric.kernels.base import Kernel

# "dsp-inner" is the class DspInner of kernels/dsp_inner.py, and so on.
_NAMES = (
    "sift",
    "dsp",
    "dsp-inner",
    "dsp-both",
    "dsp-domain",
    "heat",
    "similarity",
    "distribution-field",
    "distribution-field-heat",
)


def _kernel_class(name: str) -> type[Kernel]:
    module = import_module(f"caloric.kernels.{name.replace('-', '_')}")
    cls: type[Kernel] = getattr(module, name.title().replace("-", ""))
    return cls


KERNELS = {name: _kernel_class(name) for name in _NAMES}


def kernel(name: str, **parameters: float) -> Kernel:
    """Return a kernel of the theory, as a function of the gradient's angle and position.

    Parameters
    ----------
    name : str
        For example "sift", "dsp-inner", "similarity" or "heat"; docs/kernels.md lists all.
    **parameters : float
        Widths of the diffusion. Those without a default are required.

    Returns
    -------
    Kernel
        A callable K(beta, x, phi, y) that returns float64. All arguments broadcast, and x and y
        have a last axis of 2. Values include all constant factors of the integrals.

    Examples
    --------
    >>> import caloric
    >>> heat = caloric.kernel("heat", sigma_d=0.2, sigma_a=0.3)
    >>> near, far = (float(heat(0.0, [0.1, 0.0], 0.0, y)) for y in ([0.1, 0.0], [0.5, 0.0]))
    >>> near > far
    True
    """
    if name not in KERNELS:
        raise unknown("kernel", name, KERNELS)
    return make(KERNELS[name], **parameters)


def make(cls: type[Kernel], **parameters: float) -> Kernel:
    """Return a kernel of class ``cls``; raise InputError for unknown or missing parameters."""
    accepted = {field.name: field for field in fields(cls)}
    for parameter in parameters:
        if parameter not in accepted:
            raise InputError(
                f"{cls.name}: no parameter {parameter!r}; it takes {', '.join(accepted)}"
            )
    for parameter, field in accepted.items():
        if field.default is MISSING and parameter not in parameters:
            raise InputError(f"{cls.name}: parameter {parameter!r} is missing")
    return cls(**parameters)


__all__ = ["KERNELS", "Kernel", "kernel", "make"]
