"""Simulated views: where they lie, what they cover, and the features that come from them."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.image import views
from caloric.image.pixels import Source, source, to_grey
from caloric.image.views import TILTS, View, seen, turns
from caloric.runtime import threads

SIZE = (300, 400)


@pytest.fixture(scope="module")
def image():
    return photographs.grey("brick", SIZE[::-1])


def whole(image):
    return image.read(*(slice(0, n) for n in image.size))


@pytest.mark.parametrize("view", [View(2, 0.0), View(4, 0.7), View(8, 2.9)])
def test_a_view_shows_the_image_where_its_maps_say(view):
    """A blob of the image is seen at the place that to_image maps to it."""
    grey = np.zeros(SIZE, np.float32)
    place = np.array([210.0, 130.0])
    cv2.circle(grey, tuple(place.astype(int)), 9, 1.0, -1)
    pixels = whole(seen(source(grey), view))
    assert pixels.shape == view.size(SIZE)
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    centre = np.array([(x * pixels).sum(), (y * pixels).sum()]) / pixels.sum()
    back = view.to_image(SIZE)
    assert np.linalg.norm(back[:, :2] @ centre + back[:, 2] - place) < 0.1
    forth, corners = view.to_view(SIZE), np.array([[0, 0], [399, 0], [0, 299], [399, 299]])
    there = (corners @ forth[:, :2].T + forth[:, 2]) / (view.tilt, 1)
    np.testing.assert_allclose(there @ back[:, :2].T + back[:, 2], corners, atol=1e-9)
    assert there.min() > -1e-9
    assert (there <= np.array(pixels.shape[::-1]) + 1e-6).all()


def test_nothing_aliases():
    """A grating finer than a view can show is seen grey, not as a coarser one."""
    grey = np.zeros((64, 256), np.float32)
    grey[:, ::2] = 1
    for tilt in TILTS:
        pixels = whole(seen(source(grey), View(tilt, 0.0)))
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


def test_parts_of_a_view_are_those_of_the_whole(image):
    for view in (View(2, 0.5), View(4, 1.9)):
        rendered = seen(Source(SIZE, lambda rows, columns: to_grey(image)[rows, columns]), view)
        full = whole(rendered)
        part = rendered.read(slice(50, 120), slice(20, 61))
        np.testing.assert_allclose(part, full[50:120, 20:61], atol=2e-5)


def test_features_of_views_are_in_the_image(image):
    plain, wide = caloric.extract(image), caloric.extract(image, views=4)
    assert (plain.views, wide.views) == (1, 4)
    np.testing.assert_array_equal(wide.frames.maps[: len(plain)], plain.frames.maps)
    added = wide.frames[len(plain) :]
    assert len(added) > len(plain)
    assert added.xy.min() >= 3
    assert (added.xy <= np.array(SIZE[::-1]) - 4).all()
    stretch = np.linalg.cond(added.maps[:, :, :2])
    assert set(np.round(stretch).astype(int)) == {2, 4}
    mask = np.zeros(SIZE, bool)
    mask[:, :150] = True
    left = caloric.extract(image, views=2, mask=mask)
    assert 0 < left.frames.xy[:, 0].max() < 150.5
    assert len(caloric.extract(image, views=2, max_features=60)) <= 60 + 6 * 30
    assert len(caloric.extract(np.zeros(SIZE), views=2)) == 0


def test_it_is_the_same_for_any_threads_and_memory(image, monkeypatch, tmp_path):
    results = []
    for count in ("1", "3"):
        monkeypatch.setenv(threads.SETTING, count)
        results.append(caloric.extract(image, views=2))
    np.testing.assert_array_equal(results[0].frames.maps, results[1].frames.maps)
    np.testing.assert_array_equal(results[0].descriptors, results[1].descriptors)
    small = caloric.extract(image, views=2, memory=5_000_000)
    assert len(small) == len(results[0])
    results[0].save(tmp_path / "views.npz")
    assert caloric.Features.load(tmp_path / "views.npz").views == 2


def test_alike_frames_are_kept_once():
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


def test_a_large_image_is_reduced_first(monkeypatch):
    image = photographs.grey("camera")
    full = caloric.extract(image, views=2)
    monkeypatch.setattr(views, "_PIXELS", 512 * 512 / 4)
    small = caloric.extract(image, views=2)
    assert views.reduction((512, 512)) == 2
    plain = len(caloric.extract(image))
    added = small.frames[plain:]
    assert added.sigma.min() > 1.5 * full.frames[plain:].sigma.min()
    # The places are those of the image: blobs of both are at the same spots.
    there = full.frames.xy
    nearest = [np.linalg.norm(there - xy, axis=1).min() for xy in added.xy[:200]]
    assert np.median(nearest) < 1.0


@pytest.mark.parametrize("shape", [(1, 1), (7, 2000), (2000, 31), (0, 5)])
def test_thin_images_have_no_views(shape):
    rng = np.random.default_rng(0)
    image = rng.random(shape)
    plain, wide = caloric.extract(image), caloric.extract(image, views=8)
    np.testing.assert_array_equal(plain.frames.maps, wide.frames.maps)
    assert not caloric.match_images(image, image[::-1] * 0.5)


def test_of_a_long_image_some_views_are_taken():
    assert len(turns(2, (40, 4000))) < len(turns(2, SIZE)) == 6
    assert len(turns(2, (40, 4000))) > 0


def test_upright_frames_have_no_views(image):
    with pytest.raises(caloric.InputError, match="upright"):
        caloric.extract(image, views=2, upright=True)
    assert caloric.match_images(image, image[::-1].copy(), upright=True).level == 1


@pytest.mark.parametrize("wrong", [1, 3, 0, -2, 2.5, True, "4", "auto", [2], np.array([2, 4])])
def test_other_numbers_are_refused(image, wrong):
    with pytest.raises(caloric.InputError, match="views must be"):
        caloric.extract(image, views=wrong)


@pytest.mark.slow
def test_the_device_sees_the_same(image):
    pytest.importorskip("torch")
    cpu = caloric.extract(image, views=2, max_features=400)
    device = caloric.extract(image, views=2, max_features=400, device="torch:cpu")
    assert device.views == 2
    assert abs(len(cpu) - len(device)) <= 0.01 * len(cpu)
    there = cpu.frames.maps.reshape(-1, 6)
    away = np.array([np.abs(there - m.ravel()).max(1).min() for m in device.frames.maps])
    assert (away < 0.01).mean() > 0.98
    mask = np.zeros(SIZE, bool)
    mask[100:] = True
    below = caloric.extract(image, views=2, max_features=400, mask=mask, device="torch:cpu")
    assert len(below) > 100
    assert below.frames.xy[:, 1].min() > 99
