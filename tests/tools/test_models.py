"""The comparison of models."""

import numpy as np

from tools import models


def test_centers_are_compared_after_the_best_similarity():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((7, 3))
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    turn *= np.sign(np.linalg.det(turn))
    np.testing.assert_allclose(models.aligned(points, 3 * points @ turn.T + 5), 0, atol=1e-12)
    off = points.copy()
    off[0] += 1
    assert models.aligned(off, points).max() > 0.3
