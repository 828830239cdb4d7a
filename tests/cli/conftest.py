"""A fixture: two image files."""

import cv2
import pytest

import photographs


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pair")
    image = photographs.gray("camera")
    view = photographs.similarity(1.2, 20, (5, 5), (255, 255))
    paths = directory / "one é.png", directory / "two.jpg"
    for path, pixels in zip(paths, (image, photographs.warp(image, view)), strict=True):
        path.write_bytes(cv2.imencode(path.suffix, pixels)[1].tobytes())
    return paths
