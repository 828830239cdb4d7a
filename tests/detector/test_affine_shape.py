"""Affine shape adaptation."""

import numpy as np
import pytest

import caloric
from caloric.detector.affine_shape import STRENGTH


@pytest.mark.parametrize(("ratio", "rotation"), [(1.0, 0.0), (1.4, 2.5), (2.0, 0.5), (2.8, 1.2)])
def test_affine_frames_adapt_to_the_shape_of_a_blob(ratio, rotation):
    """The ratio of axes is that of the ellipse to the power STRENGTH; σ does not change."""
    y, x = np.mgrid[:200, :200] - 100.0
    u, v = np.cos(rotation) * x + np.sin(rotation) * y, -np.sin(rotation) * x + np.cos(rotation) * y
    image = 0.2 + 0.6 * np.exp(-(u**2 / ratio + v**2 * ratio) / (2 * 8**2))
    frames = [caloric.detect(image, affine=adapt, upright=True) for adapt in (False, True)]
    circular, adapted = (f[[np.argmin(np.hypot(*(f.xy - 100).T))]] for f in frames)
    np.testing.assert_allclose(adapted.sigma, circular.sigma, rtol=1e-6)
    A = adapted.maps[0, :, :2]
    values, vectors = np.linalg.eigh(A @ A.T)
    assert np.sqrt(values[1] / values[0]) == pytest.approx(ratio**STRENGTH, rel=0.1)
    if ratio > 1:
        angle = np.arctan2(vectors[1, 1], vectors[0, 1])
        assert abs((angle - rotation + np.pi / 2) % np.pi - np.pi / 2) < 0.05
