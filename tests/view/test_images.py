"""Images that the page shows."""

import numpy as np
import pytest

import caloric
from caloric.view import images, session
from encoded_images import encode


def test_images_of_any_type_are_loaded():
    for image in (
        np.full((20, 30), 60000, np.uint16), np.zeros((20, 30, 4), np.uint8),
        np.zeros((1, 1), np.uint8),
    ):  # fmt: skip
        loaded = session.LoadedImage.of("x.png", encode(image))
        assert loaded.color.shape == (*image.shape[:2], 3)
        assert images.preview(loaded)[:2] == b"\xff\xd8"
    red = np.zeros((4, 5, 4), np.uint16)
    red[..., 2] = red[..., 3] = 65535  # BGRA, as OpenCV writes it
    assert (session.LoadedImage.of("red.png", encode(red)).color == [255, 0, 0]).all()
    with pytest.raises(caloric.InputError, match=r"x\.jpg"):
        session.LoadedImage.of("x.jpg", b"")
