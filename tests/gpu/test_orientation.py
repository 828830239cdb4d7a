"""Orientations on a device."""

import numpy as np
import pytest
import torch

import caloric
import photographs
from caloric.detector import orientation
from caloric.gpu import orientation as on_device
from tools.gpu.agreement import compared
from torch_device import HERE


@pytest.mark.parametrize("options", [{}, {"max_features": 300}, {"upright": True}])
def test_there_is_a_frame_for_each_dominant_orientation(options):
    image = photographs.squares()
    expected = caloric.extract(image, **options)
    features = caloric.extract(image, device=HERE, **options)
    assert len(expected) == len(features) > 80
    assert compared(expected, features)[0] == 1
    if not options:
        _, counts = np.unique(expected.frames.xy, axis=0, return_counts=True)
        assert counts.max() > 4


def test_extraction_is_repeated_if_there_are_too_many_orientations(kernels):
    image = photographs.squares()
    for count in (None, 300, 5000):
        expected = caloric.extract(image, max_features=count)
        assert len(caloric.extract(image, max_features=count, device="cuda")) == len(expected)


def test_peaks_agree_with_the_cpu():
    """Random series up to order 12; rows of zeros have the angle 0."""
    rng = np.random.default_rng(0)
    shape = (60, orientation.ORDER + 1)
    terms = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    histogram = np.abs(np.fft.irfft(terms, 36)).astype(np.float32)
    histogram[-2:] = 0
    rows, angles = orientation.dominant(histogram)
    actual, valid = on_device.peaks(torch.from_numpy(histogram))
    assert (np.bincount(rows) > 1).any()
    for row in range(60):
        np.testing.assert_allclose(actual[row][valid[row]], angles[rows == row], atol=1e-9)
