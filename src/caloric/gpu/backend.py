"""The backend of a device: the stages that exist both in PyTorch and as Triton kernels.

Both use the same tables. The Triton kernels are faster, but not differentiable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from caloric.gpu import density, extrema, gray, refinement, scalespace
from caloric.gpu.pyramid import FrameBlock, Measurement, Peaks, Pyramid
from caloric.gpu.refinement import Octaves


@dataclass(frozen=True)
class Backend:
    """The implementations of six stages.

    ``gray`` returns color images of bytes in grayscale, ``build`` pyramids, ``find`` extrema,
    ``harmonics`` the densities around frames, ``halved`` an image at half its size, and ``refined``
    the outcome of refinement. Sizes (b, 2) of images, heights and widths, are None if the images
    are as large as their layout.
    ``compiled`` is True for Triton kernels, which support any sizes. They never synchronize with
    the device, so calls can be recorded in CUDA graphs.
    """

    gray: Callable[[Tensor], Tensor]
    build: Callable[[Tensor, Pyramid, Tensor | None], Tensor]
    find: Callable[[Tensor, Pyramid, float, float, int, Tensor | None], Peaks]
    harmonics: Callable[
        [Tensor, Pyramid, Tensor, FrameBlock, Measurement, Any, Tensor | None], Tensor
    ]
    halved: Callable[[Tensor], Tensor]
    refined: Callable[[tuple[Octaves, Octaves], Tensor, Tensor], Tensor]
    compiled: bool


_TORCH = Backend(
    gray.of_bytes, scalespace.build, extrema.find, density.measure, refinement.halved,
    refinement.refined, compiled=False,
)  # fmt: skip


def of(device: Any) -> Backend:
    """Return the backend of a device: Triton on a GPU if it is installed, otherwise PyTorch."""
    return _triton() or _TORCH if device.type == "cuda" else _TORCH


@cache
def _triton() -> Backend | None:
    try:
        from caloric.gpu import (
            density_kernels,
            extrema_kernels,
            gray_kernels,
            patch_kernels,
            refinement_kernels,
            scalespace_kernels,
        )
    except ImportError:
        return None
    return Backend(
        gray_kernels.of_bytes, scalespace_kernels.build, extrema_kernels.find,
        density_kernels.measure, patch_kernels.halved, refinement_kernels.refined, compiled=True,
    )  # fmt: skip
