"""The Triton kernels for extrema agree with PyTorch."""

import torch

from caloric.gpu import extrema
from caloric.gpu.pyramid import pyramid
from caloric.options import ExtractOptions


def test_extrema_agree_with_pytorch(kernels, gpu_rows):
    layout, options = pyramid(200, 231), ExtractOptions(max_features=None)
    peaks, expected_peaks = (
        find(gpu_rows, layout, options.lowest, options.edge, 4096)
        for find in (kernels.find, extrema.find)
    )
    positions, strengths = extrema.strongest(peaks, 300)
    expected_positions, expected = extrema.strongest(expected_peaks, 300)
    assert torch.equal(strengths, expected)
    valid = expected > 0
    assert valid.sum() > 200
    torch.testing.assert_close(positions[valid], expected_positions[valid], rtol=1e-12, atol=1e-9)
