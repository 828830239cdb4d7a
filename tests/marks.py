"""Conditions and the device for tests of several modules."""

import os

import cv2
import pytest

# CALORIC_TEST_DEVICE=cuda runs the same tests on a GPU.
TORCH_DEVICE = os.environ.get("CALORIC_TEST_DEVICE", "torch:cpu")

exact_sampling = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5,
    reason="OpenCV 4 rounds sampling positions to 1/32 of a pixel",
)
