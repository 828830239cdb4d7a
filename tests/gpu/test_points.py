"""Searches among points on a device agree with the CPU."""

import numpy as np
import pytest
import torch

from caloric.gpu import points
from caloric.matching import agreement
from caloric.matching.points import ON_HOST
from matched_views import frames_of, matched_views
from torch_device import DEVICE


@pytest.mark.parametrize(("number", "queries", "count"), [(300, 90, 8), (25, 40, 25), (7, 3, 1)])
def test_nearest_points(number, queries, count):
    rng = np.random.default_rng(0)
    p, q = rng.uniform(0, 500, (number, 2)), rng.uniform(-50, 600, (queries, 2))
    q[:3] = p[:3]
    expected = ON_HOST.nearest(p, q, count)
    tensors = [torch.tensor(v, device=DEVICE) for v in (p, q)]
    actual = points.ON_DEVICE.nearest(*tensors, count)
    np.testing.assert_allclose(actual[0].cpu().numpy(), expected[0], atol=1e-9)
    np.testing.assert_array_equal(actual[1].cpu().numpy(), expected[1])


def test_first_points_of_cells():
    cells = np.random.default_rng(0).integers(-9, 9, (500, 2))
    actual = points.ON_DEVICE.are_first(torch.tensor(cells, device=DEVICE))
    np.testing.assert_array_equal(actual.cpu().numpy(), ON_HOST.are_first(cells))
    assert 200 < actual.sum() < 330


def test_scores_of_agreement():
    a, b = frames_of(matched_views())
    b = b.copy()
    b[::3, :, 2] = np.random.default_rng(0).uniform(0, 300, b[::3, :, 2].shape)
    expected = agreement.scores(a, b, (300, 300))
    np.testing.assert_allclose(points.scores(a, b, (300, 300), DEVICE), expected, rtol=1e-6)
    assert np.median(expected[1::3]) > 3 > np.median(expected[::3])
    assert points.scores(a[:1], b[:1], (300, 300), DEVICE).tolist() == [0]
