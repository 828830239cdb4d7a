"""Nearest neighbors by a Triton kernel, compared with PyTorch."""

import pytest
import torch

from caloric.gpu import neighbors

SETS = {"a": (0, 300), "b": (300, 400), "c": (10, 1), "d": (20, 5)}  # first row, number of rows
PAIRS = ("ab", "ba", "cd", "aa")


@pytest.fixture(scope="module")
def module(kernels):
    return pytest.importorskip("caloric.gpu.neighbors_kernels")


@pytest.mark.parametrize("dimension", [20, 128])
@pytest.mark.parametrize("radius", [None, 8.0])
def test_neighbors_are_those_of_pytorch(module, dimension, radius):
    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.randn((700, dimension), generator=generator, device="cuda")
    places = 100 * torch.rand((700, 2), generator=generator, device="cuda")
    places = None if radius is None else places
    rows = [(*SETS[a], *SETS[b]) for a, b in PAIRS]
    pairs = torch.tensor(rows, dtype=torch.int32, device="cuda")
    nearest, top, second, tops = module.nearest_rows(
        module.split(values), pairs, places, radius or 0.0, (400, 400)
    )
    for number, (begin_a, count_a, begin_b, count_b) in enumerate(rows):
        a, b = values[begin_a:][:count_a], values[begin_b:][:count_b]
        around = None if places is None else places[begin_b:][:count_b]
        index, distances, other, _ = neighbors.nearest_rows(a, b, around, radius or 0.0)
        assert torch.equal(nearest[number, :count_a].long(), index)
        for scores, expected in ((top, distances), (second, other)):
            found = (-2 * scores[number, :count_a]).clamp_min(0).sqrt()
            # The root of a difference: at distance 0 the error is that of a root.
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-2)
        columns = torch.cdist(a.double(), b.double()).amin(0).float()
        found = (-2 * tops[number, :count_b]).clamp_min(0).sqrt()
        torch.testing.assert_close(found, columns, rtol=1e-4, atol=2e-2)


def test_equal_descriptors_have_the_first_as_neighbor(module):
    values = torch.ones((300, 32), device="cuda")
    pairs = torch.tensor([[0, 100, 100, 200]], dtype=torch.int32, device="cuda")
    nearest = module.nearest_rows(module.split(values), pairs, None, 0.0, (100, 200))[0]
    assert (nearest == 0).all()


def test_numbers_are_sums_of_two_of_half_precision(module):
    values = torch.randn((50, 20), device="cuda") * 1e-3
    split = module.split(values)
    assert split.high.shape == split.low.shape == (50, 32)
    assert split.high.dtype == split.low.dtype == torch.float16
    found = (split.high.double() + split.low.double()) * split.unscale.double().sqrt()
    assert (found[:, 20:] == 0).all()
    torch.testing.assert_close(found[:, :20].float(), values, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(split.half, 0.5 * (values**2).sum(1))
