"""The Triton kernel for the nearest points agrees with PyTorch."""

import pytest
import torch

from caloric.gpu import nearest_points


@pytest.mark.parametrize(("number", "queries", "count"), [(5000, 900, 8), (25, 40, 25), (7, 3, 1)])
def test_nearest_points(kernels, number, queries, count):
    generator = torch.Generator("cuda").manual_seed(0)
    p, q = (
        500 * torch.rand((n, 2), generator=generator, dtype=torch.float64, device="cuda")
        for n in (number, queries)
    )
    q[:3] = p[:3]
    expected, indices = nearest_points.nearest(p, q, count)
    squares, unordered = kernels.nearest(p, q, count)
    squares, order = squares.sort(1)
    torch.testing.assert_close(squares, expected, rtol=1e-12, atol=1e-9)
    assert torch.equal(unordered.gather(1, order), indices)


def test_no_queries(kernels):
    p = torch.rand((5, 2), dtype=torch.float64, device="cuda")
    assert kernels.nearest(p, p[:0], 3)[1].shape == (0, 3)
