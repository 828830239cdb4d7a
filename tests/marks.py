"""Conditions for tests of several modules."""

import cv2
import pytest

exact_sampling = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5,
    reason="OpenCV 4 rounds sampling positions to 1/32 of a pixel",
)
