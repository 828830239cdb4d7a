"""Colors are converted to the same grayscale as on the CPU."""

import numpy as np
import pytest
import torch

from caloric.gpu import gray
from caloric.image.pixels import to_gray
from torch_device import DEVICE


@pytest.fixture(scope="module")
def colors():
    return np.random.default_rng(0).integers(0, 256, (3, 41, 57, 3), dtype=np.uint8)


def test_bytes_in_pytorch(colors):
    actual = gray.of_bytes(torch.tensor(colors, device=DEVICE)).cpu().numpy()
    np.testing.assert_array_equal(actual, [to_gray(image) for image in colors])


def test_the_kernel_agrees_with_the_cpu(kernels, colors):
    actual = kernels.gray(torch.tensor(colors, device="cuda")).cpu().numpy()
    np.testing.assert_array_equal(actual, [to_gray(image) for image in colors])
