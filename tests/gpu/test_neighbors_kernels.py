"""The Triton kernel for nearest neighbors agrees with PyTorch."""

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
def test_neighbors_agree_with_pytorch(module, dimension, radius):
    generator = torch.Generator("cuda").manual_seed(0)
    values = torch.randn((700, dimension), generator=generator, device="cuda")
    xy = 100 * torch.rand((700, 2), generator=generator, device="cuda")
    xy = None if radius is None else xy
    rows = [(*SETS[a], *SETS[b]) for a, b in PAIRS]
    pairs = torch.tensor(rows, dtype=torch.int32, device="cuda")
    nearest, top, second, tops = module.nearest_rows(
        module.split(values), pairs, xy, radius or 0.0, (400, 400)
    )
    for i, (start_a, count_a, start_b, count_b) in enumerate(rows):
        a, b = values[start_a:][:count_a], values[start_b:][:count_b]
        xy_b = None if xy is None else xy[start_b:][:count_b]
        index, first_distance, second_distance, _ = neighbors.nearest_rows(
            a, b, xy_b, radius or 0.0
        )
        assert torch.equal(nearest[i, :count_a].long(), index)
        for scores, expected in ((top, first_distance), (second, second_distance)):
            distances = (-2 * scores[i, :count_a]).clamp_min(0).sqrt()
            # The square root amplifies the rounding errors of scores near 0.
            torch.testing.assert_close(distances, expected, rtol=1e-4, atol=2e-2)
        expected = torch.cdist(a.double(), b.double()).amin(0).float()
        distances = (-2 * tops[i, :count_b]).clamp_min(0).sqrt()
        torch.testing.assert_close(distances, expected, rtol=1e-4, atol=2e-2)


def test_of_equal_descriptors_the_first_is_the_neighbor(module):
    values = torch.ones((300, 32), device="cuda")
    pairs = torch.tensor([[0, 100, 100, 200]], dtype=torch.int32, device="cuda")
    nearest = module.nearest_rows(module.split(values), pairs, None, 0.0, (100, 200))[0]
    assert (nearest == 0).all()


def test_split_descriptors_sum_to_the_originals(module):
    values = torch.randn((50, 20), device="cuda") * 1e-3
    split = module.split(values)
    assert split.high.shape == split.low.shape == (50, 32)
    assert split.high.dtype == split.low.dtype == torch.float16
    total = (split.high.double() + split.low.double()) * split.unscale.double().sqrt()
    assert (total[:, 20:] == 0).all()
    torch.testing.assert_close(total[:, :20].float(), values, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(split.half, 0.5 * (values**2).sum(1))
