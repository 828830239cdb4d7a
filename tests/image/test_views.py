"""Simulated views: their maps, their pixels, and the tilts that they cover."""

import cv2
import numpy as np
import pytest

import photographs
from caloric.image import views
from caloric.image.pixels import Source, source, to_gray
from caloric.image.views import TILTS, View, seen, turns

SIZE = (300, 400)


def whole(image):
    return image.read(*(slice(0, n) for n in image.size))


@pytest.mark.parametrize("view", [View(2, 0.0), View(4, 0.7), View(8, 2.9)])
def test_a_view_shows_the_image_where_its_maps_say(view):
    """A blob of the image is seen at the place that to_image maps to it."""
    gray = np.zeros(SIZE, np.float32)
    place = np.array([210.0, 130.0])
    cv2.circle(gray, tuple(place.astype(int)), 9, 1.0, -1)
    pixels = whole(seen(source(gray), view))
    assert pixels.shape == view.size(SIZE)
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    center = np.array([(x * pixels).sum(), (y * pixels).sum()]) / pixels.sum()
    back = view.to_image(SIZE)
    assert np.linalg.norm(back[:, :2] @ center + back[:, 2] - place) < 0.1
    forth, corners = view.to_view(SIZE), np.array([[0, 0], [399, 0], [0, 299], [399, 299]])
    there = (corners @ forth[:, :2].T + forth[:, 2]) / (view.tilt, 1)
    np.testing.assert_allclose(there @ back[:, :2].T + back[:, 2], corners, atol=1e-9)
    assert there.min() > -1e-9
    assert (there <= np.array(pixels.shape[::-1]) + 1e-6).all()


def test_nothing_aliases():
    """A grating finer than a view can show is seen gray, not as a coarser one."""
    gray = np.zeros((64, 256), np.float32)
    gray[:, ::2] = 1
    for tilt in TILTS:
        pixels = whole(seen(source(gray), View(tilt, 0.0)))
        inner = pixels[:, 20 // tilt + 1 : -20 // tilt - 1]
        assert np.abs(inner - 0.5).max() < 0.01


def transition(tilt, turn, other, turned):
    """The tilt between two views, the ratio of the axes of the map from one to the other."""
    c, s = np.cos(turn - turned), np.sin(turn - turned)
    squares = (c * other / tilt) ** 2 + (s / tilt) ** 2 + (s * other) ** 2 + c**2
    half = squares * tilt / other / 2
    return half + np.sqrt(np.maximum(half**2 - 1, 0))


@pytest.mark.parametrize("largest", TILTS)
def test_views_cover_all_tilts_up_to_the_largest(largest):
    tilts = np.geomspace(1, largest, 40)[:, None]
    directions = np.linspace(0, np.pi, 500)
    known = [v for t in (1, *TILTS) if t <= largest for v in turns(t, SIZE)]
    nearest = np.min([transition(v.tilt, v.turn, tilts, directions) for v in known], 0)
    assert nearest.max() < 1.72
    if largest == 8:  # and there are not more than it takes: without one tilt it fails
        fewer = [v for v in known if v.tilt != 4]
        assert np.min([transition(v.tilt, v.turn, tilts, directions) for v in fewer], 0).max() > 2


def test_parts_of_a_view_are_those_of_the_whole():
    image = photographs.gray("brick", SIZE[::-1])
    for view in (View(2, 0.5), View(4, 1.9)):
        rendered = seen(Source(SIZE, lambda rows, columns: to_gray(image)[rows, columns]), view)
        full = whole(rendered)
        part = rendered.read(slice(50, 120), slice(20, 61))
        np.testing.assert_allclose(part, full[50:120, 20:61], atol=2e-5)


def test_similar_frames_are_kept_once():
    rng = np.random.default_rng(0)
    maps = np.concatenate([rng.normal(0, 3, (40, 2, 2)), rng.uniform(50, 900, (40, 2, 1))], 2)
    maps[np.linalg.det(maps[:, :, :2]) < 0, 0] *= -1
    twice = np.concatenate([maps, maps])
    for known in (0, 40):
        np.testing.assert_array_equal(views.new_shapes(twice, known), np.arange(40))
    assert len(views.new_shapes(twice, 50)) == 50
    larger, turned = maps.copy(), maps.copy()
    larger[:, :, :2] *= 2
    turned[:, :, :2] = turned[:, :, :2] @ [[0, -1], [1, 0]]
    assert len(views.new_shapes(np.concatenate([maps, larger, turned]), 0)) == 120


def test_of_a_long_image_some_views_are_taken():
    assert len(turns(2, (40, 4000))) < len(turns(2, SIZE)) == 6
    assert len(turns(2, (40, 4000))) > 0
