"""Triton kernels, and images on a GPU to compare them with PyTorch."""

import numpy as np
import pytest
import torch

import photographs
from caloric.gpu import backend, scalespace
from caloric.gpu.pyramid import pyramid


@pytest.fixture(scope="session")
def kernels():
    """The Triton kernels of the first GPU; tests that request them are skipped without one."""
    if not torch.cuda.is_available():
        pytest.skip("Triton kernels need an NVIDIA GPU")
    found = backend.of(torch.device("cuda", 0))
    if not found.compiled:
        pytest.skip("Triton is not installed")
    return found


@pytest.fixture(scope="session")
def gpu_images(kernels):
    """Three photographs (3, 200, 231) on the GPU."""
    names = ("astronaut", "coffee", "camera")
    gray = [photographs.gray(name, (231, 200)).astype(np.float32) / 255 for name in names]
    return torch.from_numpy(np.stack(gray)).to(torch.device("cuda", 0))


@pytest.fixture(scope="session")
def gpu_rows(gpu_images):
    """The scale spaces of the photographs, by PyTorch."""
    return scalespace.build(gpu_images, pyramid(*gpu_images.shape[1:]))
