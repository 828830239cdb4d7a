"""Images that the page shows."""

import numpy as np
import pytest

import caloric
from caloric.view import images, session
from pair_of_pictures import encoded


def test_images_of_any_kind_are_shown():
    for image in (
        np.full((20, 30), 60000, np.uint16), np.zeros((20, 30, 4), np.uint8),
        np.zeros((1, 1), np.uint8),
    ):  # fmt: skip
        picture = session.LoadedImage.of("x.png", encoded(image))
        assert picture.color.shape == (*image.shape[:2], 3)
        assert images.preview(picture)[:2] == b"\xff\xd8"
    red = np.zeros((4, 5, 4), np.uint16)
    red[..., 2] = red[..., 3] = 65535  # BGRA, as OpenCV writes it
    assert (session.LoadedImage.of("red.png", encoded(red)).color == [255, 0, 0]).all()
    with pytest.raises(caloric.InputError, match=r"x\.jpg"):
        session.LoadedImage.of("x.jpg", b"")
