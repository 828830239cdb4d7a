"""The kernels: one file each, one formula each.

A descriptor is linear in the gradient-orientation density of a patch,
h(β, x) = Σ_y |∇f(y)| K(β, x; φ(y), y), and the kernel K distinguishes one descriptor from another.
To add a kernel, write a subclass of :class:`~caloric.kernels.base.Kernel` in a new file and list it
here.
"""

from dataclasses import MISSING, fields

from caloric.errors import InputError, unknown
from caloric.kernels.base import Kernel
from caloric.kernels.distribution_field import DistributionField
from caloric.kernels.distribution_field_heat import DistributionFieldHeat
from caloric.kernels.dsp import Dsp
from caloric.kernels.dsp_both import DspBoth
from caloric.kernels.dsp_domain import DspDomain
from caloric.kernels.dsp_inner import DspInner
from caloric.kernels.heat import Heat
from caloric.kernels.sift import Sift
from caloric.kernels.similarity import Similarity

KERNELS: dict[str, type[Kernel]] = {
    cls.name: cls
    for cls in (
        Sift,
        Dsp,
        DspInner,
        DspBoth,
        DspDomain,
        Heat,
        Similarity,
        DistributionField,
        DistributionFieldHeat,
    )
}


def kernel(name: str, **parameters: float) -> Kernel:
    """Return a kernel of the theory, as a function of the gradient's angle and place.

    Parameters
    ----------
    name : str
        For example "sift", "dsp-inner", "similarity" or "heat"; the page on kernels lists all.
    **parameters : float
        Widths of the diffusion that replace the defaults of the kernel.

    Returns
    -------
    Kernel
        It is called as K(beta, x, phi, y) and returns float64. All arguments broadcast, and x and y
        have a last axis of 2. No constant is dropped: the values are those of the integrals.

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
    """Return a kernel of class ``cls``, or raise an error that names the wrong parameter."""
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
