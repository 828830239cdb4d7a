"""Propagation on a device agrees with the CPU."""

import cv2
import numpy as np
import pytest

import caloric
from caloric.gpu import graphs, propagation
from caloric.matching.neighbors import ORIGINS
from torch_device import HERE, out_of_memory, photograph

OPTIONS = {"model": "homography", "views": None, "max_features": 300}


@pytest.fixture(scope="module")
def images():
    image = photograph(size=(320, 300))
    matrix = np.array([[0.95, 0.12, 8], [-0.1, 1.02, 12], [1e-4, 5e-5, 1]])
    return image, cv2.warpPerspective(image, matrix, (320, 300), flags=cv2.INTER_CUBIC)


def propagated(pair):
    """Return the positions (k, 4) of propagated matches in both images."""
    new = pair.matches.origin == ORIGINS.index("propagation")
    return np.concatenate([v[new] for v in pair.all_points()], 1)


def test_the_same_matches_are_added(images):
    expected, actual = (
        propagated(caloric.match_images(*images, device=device, **OPTIONS))
        for device in ("cpu", HERE)
    )
    assert len(expected) > 40
    distance = np.abs(actual[:, None] - expected).max(2).min(1)
    assert len(actual) == pytest.approx(len(expected), rel=0.03)
    assert (distance < 0.01).mean() > 0.95


def test_masks_are_respected(images):
    mask = np.ones((300, 320), np.uint8)
    mask[:, 160:] = 0
    pair = caloric.match_images(*images, device=HERE, masks=(None, mask), **OPTIONS)
    new = propagated(pair)
    assert len(new) > 10
    assert new[:, 2].max() < 160.5


def test_out_of_memory_falls_back_to_the_cpu(images, monkeypatch, caplog):
    expected = propagated(caloric.match_images(*images, **OPTIONS))
    graphs.clear()  # recorded graphs would not call the function
    monkeypatch.setattr(propagation.pipeline, "describe_in", out_of_memory)
    pair = caloric.match_images(*images, device=HERE, **OPTIONS)
    assert len(propagated(pair)) == pytest.approx(len(expected), rel=0.03)
    assert "propagating matches" in caplog.text
    monkeypatch.setattr(propagation.descent, "prepared", out_of_memory)
    pair = caloric.match_images(*images, device=HERE, **OPTIONS)
    assert len(propagated(pair)) == pytest.approx(len(expected), rel=0.03)
    assert "refining matches" in caplog.text
