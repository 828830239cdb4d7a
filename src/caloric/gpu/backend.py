"""The backend of a device: the stages that exist both in PyTorch and as Triton kernels.

Both forms compute the same from the same tables. The Triton kernels are faster and not
differentiable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from caloric.gpu import density, extrema, scalespace
from caloric.gpu.pyramid import Measurement, Owners, Peaks, Pyramid


@dataclass(frozen=True)
class Backend:
    """``build``: pyramids; ``find``: extrema; ``harmonics``: densities around frames.

    ``compiled`` says that they are Triton kernels, which never wait for the device, so that calls
    can be recorded.
    """

    build: Callable[[Tensor, Pyramid], Tensor]
    find: Callable[[Tensor, Pyramid, float, float, int], Peaks]
    harmonics: Callable[[Tensor, Pyramid, Tensor, Owners, Measurement, Any], Tensor]
    compiled: bool


_TORCH = Backend(scalespace.build, extrema.find, density.measured, compiled=False)


def of(device: Any) -> Backend:
    """Return Triton kernels for a GPU, if Triton is installed, and PyTorch otherwise."""
    return _triton() or _TORCH if device.type == "cuda" else _TORCH


@cache
def _triton() -> Backend | None:
    try:
        from caloric.gpu import density_kernels, extrema_kernels, scalespace_kernels
    except ImportError:
        return None
    return Backend(
        scalespace_kernels.build, extrema_kernels.find, density_kernels.measured, compiled=True
    )
