"""Features of simulated oblique views, in the coordinates of the image."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.image import views
from caloric.runtime import threads

SIZE = (300, 400)


@pytest.fixture(scope="module")
def image():
    return photographs.gray("brick", SIZE[::-1])


def test_features_of_views_are_inside_the_image(image):
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


def test_features_do_not_depend_on_threads_and_memory(image, monkeypatch, tmp_path):
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


def test_a_large_image_is_reduced_first(monkeypatch):
    image = photographs.gray("camera")
    full = caloric.extract(image, views=2)
    monkeypatch.setattr(views, "_PIXELS", 512 * 512 / 4)
    small = caloric.extract(image, views=2)
    assert views.reduction((512, 512)) == 2
    plain = len(caloric.extract(image))
    added = small.frames[plain:]
    assert added.sigma.min() > 1.5 * full.frames[plain:].sigma.min()
    # Positions are in image coordinates: they agree with those of the full image.
    nearest = [np.linalg.norm(full.frames.xy - xy, axis=1).min() for xy in added.xy[:200]]
    assert np.median(nearest) < 1.0


@pytest.mark.parametrize("shape", [(1, 1), (7, 2000), (2000, 31), (0, 5)])
def test_thin_images_have_no_views(shape):
    rng = np.random.default_rng(0)
    image = rng.random(shape)
    plain, wide = caloric.extract(image), caloric.extract(image, views=8)
    np.testing.assert_array_equal(plain.frames.maps, wide.frames.maps)
    assert not caloric.match_images(image, image[::-1] * 0.5)


def test_views_cannot_be_combined_with_upright(image):
    with pytest.raises(caloric.InputError, match="upright"):
        caloric.extract(image, views=2, upright=True)
    assert caloric.match_images(image, image[::-1].copy(), upright=True).level == 1


@pytest.mark.parametrize("views", [1, 3, 0, -2, 2.5, True, "4", "auto", [2], np.array([2, 4])])
def test_other_values_of_views_are_errors(image, views):
    with pytest.raises(caloric.InputError, match="views must be"):
        caloric.extract(image, views=views)
