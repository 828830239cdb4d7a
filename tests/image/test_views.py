"""Simulated views: maps, pixels, and coverage of tilts."""

import cv2
import numpy as np
import pytest

import photographs
from caloric.image import views
from caloric.image.pixels import Source, source, to_gray
from caloric.image.views import TILTS, View, render, views_of
from caloric.runtime import native
from marks import exact_sampling

SIZE = (300, 400)


def whole(image):
    return image.read(*(slice(0, n) for n in image.size))


@pytest.mark.parametrize("view", [View(2, 0.0), View(4, 0.7), View(8, 2.9)])
def test_the_pixels_of_a_view_agree_with_its_maps(view):
    """A blob of the image appears in the view at the position that to_image maps to it."""
    gray = np.zeros(SIZE, np.float32)
    position = np.array([210.0, 130.0])
    cv2.circle(gray, tuple(position.astype(int)), 9, 1.0, -1)
    pixels = whole(render(source(gray), view))
    assert pixels.shape == view.size(SIZE)
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    center = np.array([(x * pixels).sum(), (y * pixels).sum()]) / pixels.sum()
    back = view.to_image(SIZE)
    assert np.linalg.norm(back[:, :2] @ center + back[:, 2] - position) < 0.1
    forth, corners = view.to_view(SIZE), np.array([[0, 0], [399, 0], [0, 299], [399, 299]])
    mapped = (corners @ forth[:, :2].T + forth[:, 2]) / (view.tilt, 1)
    np.testing.assert_allclose(mapped @ back[:, :2].T + back[:, 2], corners, atol=1e-9)
    assert mapped.min() > -1e-9
    assert (mapped <= np.array(pixels.shape[::-1]) + 1e-6).all()


def test_views_have_no_aliasing():
    """A grating finer than the resolution of a view becomes gray."""
    gray = np.zeros((64, 256), np.float32)
    gray[:, ::2] = 1
    for tilt in TILTS:
        pixels = whole(render(source(gray), View(tilt, 0.0)))
        inner = pixels[:, 20 // tilt + 1 : -20 // tilt - 1]
        assert np.abs(inner - 0.5).max() < 0.01


def transition(tilt, angle, other_tilt, other_angle):
    """The relative tilt of two views: the ratio of the axes of the map from one to the other."""
    c, s = np.cos(angle - other_angle), np.sin(angle - other_angle)
    squares = (c * other_tilt / tilt) ** 2 + (s / tilt) ** 2 + (s * other_tilt) ** 2 + c**2
    half = squares * tilt / other_tilt / 2
    return half + np.sqrt(np.maximum(half**2 - 1, 0))


@pytest.mark.parametrize("largest", TILTS)
def test_views_cover_all_tilts_up_to_the_largest(largest):
    tilts = np.geomspace(1, largest, 40)[:, None]
    angles = np.linspace(0, np.pi, 500)
    selected = [v for t in (1, *TILTS) if t <= largest for v in views_of(SIZE, t)]
    nearest = np.min([transition(v.tilt, v.angle, tilts, angles) for v in selected], 0)
    assert nearest.max() < 1.72
    if largest == 8:  # no tilt is redundant
        fewer = [v for v in selected if v.tilt != 4]
        assert np.min([transition(v.tilt, v.angle, tilts, angles) for v in fewer], 0).max() > 2


@exact_sampling
def test_a_window_of_a_view_equals_that_part_of_the_whole_view():
    image = photographs.gray("brick", SIZE[::-1])
    for view in (View(2, 0.5), View(4, 1.9)):
        rendered = render(Source(SIZE, lambda rows, columns: to_gray(image)[rows, columns]), view)
        full = whole(rendered)
        part = rendered.read(slice(50, 120), slice(20, 61))
        np.testing.assert_allclose(part, full[50:120, 20:61], atol=2e-5)


def test_similar_frames_are_kept_once():
    rng = np.random.default_rng(0)
    maps = np.concatenate([rng.normal(0, 3, (40, 2, 2)), rng.uniform(50, 900, (40, 2, 1))], 2)
    maps[np.linalg.det(maps[:, :, :2]) < 0, 0] *= -1
    twice = np.concatenate([maps, maps])
    for keep in (0, 40):
        np.testing.assert_array_equal(views.distinct(twice, keep), np.arange(40))
    assert len(views.distinct(twice, 50)) == 50
    scaled, rotated = maps.copy(), maps.copy()
    scaled[:, :, :2] *= 2
    rotated[:, :, :2] = rotated[:, :, :2] @ [[0, -1], [1, 0]]
    assert len(views.distinct(np.concatenate([maps, scaled, rotated]), 0)) == 120


@pytest.mark.skipif(native.core() is None, reason="no compiled core")
def test_the_cells_of_the_core_are_those_of_numpy():
    rng = np.random.default_rng(0)
    maps = rng.normal(0, 3, (5000, 2, 3)) * rng.choice([0, 1e-3, 1, 50], (5000, 1, 1))
    np.testing.assert_array_equal(views._cells_by_core(maps), views._cells(maps))


def test_a_long_image_has_fewer_views():
    assert len(views_of(SIZE, 2)) == 6
    assert 0 < len(views_of((40, 4000), 2)) < 6
