"""Images that a worker keeps in memory."""

import hashlib

import cv2
import numpy as np
import pytest
from PIL import Image

import caloric
from caloric.collection import image_cache
from caloric.collection.image_cache import Views, refine
from caloric.collection.sources import ImageFile

SIDE = 96


def image(number):
    noise = np.random.default_rng(0).normal(0.5, 0.8, (SIDE, SIDE))
    texture = np.clip(cv2.GaussianBlur(noise, (0, 0), 2), 0, 1).astype(np.float32)
    return np.roll(texture, 3 * number, axis=1)


def test_the_images_used_last_are_kept():
    reads = []

    def read(name):
        reads.append(name)
        return image(int(name)), 1

    views = Views(read)
    size = views["0"].nbytes
    views = Views(read, memory=3.5 * size)
    reads.clear()
    for name in "01020314":
        assert views[name].gray.shape == (SIDE, SIDE)
    assert reads == ["0", "1", "2", "3", "1", "4"]
    assert list(views.cache) == ["3", "1", "4"]


def test_an_error_of_an_image_is_passed_on():
    def read(name):
        raise caloric.InputError(f"{name}: unreadable")

    views = Views(read)
    with pytest.raises(caloric.InputError, match="a: unreadable"):
        views["a"]
    assert not views.cache


def saved(path, value):
    """Save an image with one gray value; return its key."""
    Image.fromarray(np.full((40, 50), value, np.uint8)).save(path)
    return ImageFile(path.name, hashlib.sha256(path.read_bytes()).hexdigest()), None


def test_files_are_kept_between_tasks_and_known_by_their_content(tmp_path):
    views = image_cache.of_directory(str(tmp_path))
    key = saved(tmp_path / "a.png", 51)
    view = views[key]
    assert view.gray.mean() == pytest.approx(0.2)
    assert image_cache.of_directory(str(tmp_path))[key] is view
    changed = saved(tmp_path / "a.png", 102)
    assert views[changed].gray.mean() == pytest.approx(0.4)
    with pytest.raises(caloric.InputError, match="the file has changed"):
        views[ImageFile("a.png", "0" * 64), None]


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_frames_are_in_the_coordinates_of_the_files(orientation):
    views = Views(lambda name: (image(int(name)), orientation))
    first, second = views["0"], views["1"]
    upright = np.tile([[2.0, 0, 40], [0, 2.0, 50]], (3, 1, 1))
    upright[:, :, 2] += [[0, 0], [9, -4], [-5, 11]]
    moved = upright.copy()
    moved[:, :, 2] += [3.4, -0.3]  # the second image is shifted by 3 pixels
    maps_a, maps_b = first.stored_maps(upright), second.stored_maps(moved)
    np.testing.assert_allclose(first.upright(maps_a), upright, atol=1e-9)
    np.testing.assert_allclose(second.stored(moved[:, :, 2]), maps_b[:, :, 2], atol=1e-9)
    refined = refine(first, second, maps_a, maps_b)
    assert refined.moved.all()
    expected = second.stored(upright[:, :, 2] + [3, 0])
    np.testing.assert_allclose(refined.xy, expected, atol=0.05)
