"""Extrema by Triton kernels, compared with PyTorch."""

import torch

from caloric.gpu import extrema
from caloric.gpu.pyramid import pyramid
from caloric.options import ExtractOptions


def test_extrema_are_those_of_pytorch(kernels, gpu_rows):
    layout, options = pyramid(200, 231), ExtractOptions(max_features=None)
    found, plain = (
        find(gpu_rows, layout, options.lowest, options.edge, 4096)
        for find in (kernels.find, extrema.find)
    )
    (places, strengths), (expected, known) = (extrema.strongest(f, 300) for f in (found, plain))
    assert torch.equal(strengths, known)
    assert (known > 0).sum() > 200
    nonzero = known > 0
    torch.testing.assert_close(places[nonzero], expected[nonzero], rtol=1e-12, atol=1e-9)
