"""The backend of a device: the stages that exist both in PyTorch and as Triton kernels.

Both use the same tables. The Triton kernels are faster, but not differentiable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from caloric.gpu import density, extrema, scalespace
from caloric.gpu.pyramid import FrameBlock, Measurement, Peaks, Pyramid


@dataclass(frozen=True)
class Backend:
    """The implementations of three stages.

    ``build`` returns pyramids, ``find`` extrema, and ``harmonics`` the densities around frames.
    ``compiled`` is True for Triton kernels. They never synchronize with the device, so calls can be
    recorded in CUDA graphs.
    """

    build: Callable[[Tensor, Pyramid], Tensor]
    find: Callable[[Tensor, Pyramid, float, float, int], Peaks]
    harmonics: Callable[[Tensor, Pyramid, Tensor, FrameBlock, Measurement, Any], Tensor]
    compiled: bool


_TORCH = Backend(scalespace.build, extrema.find, density.measure, compiled=False)


def of(device: Any) -> Backend:
    """Return the backend of a device: Triton on a GPU if it is installed, otherwise PyTorch."""
    return _triton() or _TORCH if device.type == "cuda" else _TORCH


@cache
def _triton() -> Backend | None:
    try:
        from caloric.gpu import density_kernels, extrema_kernels, scalespace_kernels
    except ImportError:
        return None
    return Backend(
        scalespace_kernels.build, extrema_kernels.find, density_kernels.measure, compiled=True
    )
