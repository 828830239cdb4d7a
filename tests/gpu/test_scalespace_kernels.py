"""The Triton kernels for the scale space agree with PyTorch."""

import torch

from caloric.gpu.pyramid import pyramid


def test_pyramids_are_bit_identical_to_pytorch(kernels, gpu_images, gpu_rows):
    assert torch.equal(kernels.build(gpu_images, pyramid(200, 231)), gpu_rows)
