"""Fixtures to compare Triton kernels with PyTorch on a GPU."""

import numpy as np
import pytest
import torch

import photographs
from caloric.gpu import backend, scalespace
from caloric.gpu.pyramid import pyramid


@pytest.fixture(scope="session")
def kernels():
    """The Triton backend of the first GPU; tests that use it are skipped without a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("Triton kernels need an NVIDIA GPU")
    triton = backend.of(torch.device("cuda", 0))
    if not triton.compiled:
        pytest.skip("Triton is not installed")
    return triton


@pytest.fixture(scope="session")
def gpu_images(kernels):
    """Three photographs (3, 200, 231) on the GPU."""
    names = ("astronaut", "coffee", "camera")
    gray = [photographs.gray(name, (231, 200)).astype(np.float32) / 255 for name in names]
    return torch.from_numpy(np.stack(gray)).to(torch.device("cuda", 0))


@pytest.fixture(scope="session")
def gpu_rows(gpu_images):
    """The scale spaces of the photographs, computed by PyTorch."""
    return scalespace.build(gpu_images, pyramid(*gpu_images.shape[1:]))
