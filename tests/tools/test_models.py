"""``python -m tools models``: comparison of camera centers."""

import numpy as np

from tools import models


def test_centers_are_compared_after_alignment_by_a_similarity():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((7, 3))
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    np.testing.assert_allclose(models.aligned(points, 3 * points @ rotation.T + 5), 0, atol=1e-12)
    moved = points.copy()
    moved[0] += 1
    assert models.aligned(moved, points).max() > 0.3
