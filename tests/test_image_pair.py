"""Matching two images in one call, and the representations of results."""

from itertools import combinations
from typing import get_args

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import image_pair
from caloric.image.views import TILTS
from marks import TORCH_DEVICE, exact_sampling


@pytest.fixture(scope="module")
def views():
    image = photographs.gray("brick", (300, 300))
    change = photographs.similarity(0.9, 20, (5, -8), (150, 150))
    return image, photographs.warp(image, change), change


@pytest.fixture(scope="module")
def pair(views):
    steps = {"agreement": False, "propagate": False}
    return caloric.match_images(*views[:2], max_features=400, **steps)


def test_points_agree_with_the_known_change(pair, views):
    assert pair
    assert len(pair) == len(pair.points_a) == len(pair.points_b) > 100
    moved = photographs.apply(views[2], pair.points_a)
    assert np.median(np.hypot(*(moved - pair.points_b).T)) < 0.7
    assert len(pair.all_points()[0]) == len(pair.matches) >= len(pair)


def test_match_images_gives_the_result_of_the_separate_steps(pair, views):
    a, b = caloric.extract(list(views[:2]), max_features=400)
    matches = caloric.match(a, b, refine=True, images=views[:2])
    geometry = caloric.verify(a, b, matches)
    np.testing.assert_array_equal(pair.matches.indices, matches.indices)
    np.testing.assert_array_equal(pair.geometry.matrix, geometry.matrix)


def test_the_model_is_chosen_by_default(pair, views):
    assert pair.geometry.model == "homography"
    assert pair.geometry.reason.startswith("homography: ")
    assert "inliers of a homography" in pair.summary


def test_files_masks_and_refinement(views, tmp_path):
    paths = [tmp_path / f"{name}.png" for name in "ab"]
    for path, image in zip(paths, views[:2], strict=True):
        cv2.imwrite(str(path), image)
    left = np.zeros((300, 300), bool)
    left[:, :150] = True
    result = caloric.match_images(*paths, max_features=400, masks=(left, None), refine=True)
    assert result.points_a[:, 0].max() < 151
    moved = photographs.apply(views[2], result.points_a)
    assert np.median(np.hypot(*(moved - result.points_b).T)) < 0.3
    assert "refined" in repr(result.matches)


def test_images_without_a_geometry_are_false(tmp_path):
    rng = np.random.default_rng(0)
    nothing = caloric.match_images(np.zeros((80, 80)), rng.random((80, 80)))
    assert not nothing
    assert nothing.points_a.shape == nothing.points_b.shape == (0, 2)
    assert "no homography" in repr(nothing.geometry)
    nothing.save(tmp_path / "nothing.png")
    assert (tmp_path / "nothing.png").stat().st_size > 0


def test_unrelated_photographs_have_no_geometry():
    names = ("camera", "brick", "coffee", "astronaut", "grass", "chelsea")
    images = [photographs.gray(name, (320, 400)) for name in names]
    for a, b in combinations(images, 2):
        for model in ("homography", "fundamental"):
            result = caloric.match_images(a, b, model=model, views=None)
            assert not result
            assert result.geometry.confidence < 0.5
            assert "not reliable" in repr(result)


@pytest.mark.parametrize("device", ["cpu", TORCH_DEVICE])
def test_errors_name_the_image(views, tmp_path, device):
    bad = np.full((50, 50), np.nan, np.float32)
    with pytest.raises(caloric.InputError, match=r"missing\.png: no such file"):
        caloric.match_images(views[0], tmp_path / "missing.png", device=device)
    for refine in (True, False):
        with pytest.raises(caloric.InputError, match=r"^the second image: .*NaN"):
            caloric.match_images(views[0], bad, device=device, refine=refine)
    with pytest.raises(caloric.InputError, match=r"^the first image: .*mask"):
        caloric.match_images(*views[:2], masks=(np.ones(3), None), device=device)
    cv2.imwrite(str(tmp_path / "bad.tif"), bad)
    features = caloric.extract(views[0], max_features=20)
    with pytest.raises(caloric.InputError, match=r"bad\.tif: .*NaN"):
        caloric.match(
            features, features, refine=True, images=[views[0], tmp_path / "bad.tif"], device=device
        )


def test_invalid_options_are_errors(views):
    with pytest.raises(caloric.InputError, match="did you mean 'max_features'"):
        caloric.match_images(*views[:2], max_feature=5)
    for options, message in (
        ({"masks": (None,)}, "two masks"),
        ({"max_features": -2}, "^max_features must be 0 or more"),
        ({"descriptor": "sifft"}, "^unknown descriptor"),
        ({"model": "magic"}, "^unknown model"),
        ({"ratio": 2}, "^ratio must be"),
        ({"threshold": 0}, "^threshold must be"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            caloric.match_images(*views[:2], **options)
    with pytest.raises(caloric.InputError, match="not lists or batches"):
        caloric.match_images([views[0]], [views[1]])


def test_results_have_text_html_and_png_representations(pair):
    assert repr(pair).startswith("ImageMatch(400 and 400 features")
    assert repr(pair.features_a) == "Features(400 of 'caloric', 128-d float32, image 300 x 300)"
    assert repr(pair.features_a.frames).startswith("Frames(400, σ ")
    assert repr(pair.matches).startswith(f"Matches({len(pair.matches)}, distances ")
    assert repr(pair.geometry).startswith(f"Geometry(homography, {len(pair)} inliers of ")
    assert max(len(repr(x)) for x in (pair, pair.features_a, pair.matches, pair.geometry)) < 100
    for shown in (pair.features_a, pair.features_a.frames, pair.matches, pair.geometry):
        text = shown._repr_html_()
        assert text.startswith("<table>")
        assert len(text) < 2500
    assert "395 more" in pair.features_a._repr_html_()
    assert pair._repr_png_().startswith(b"\x89PNG")
    empty = caloric.Frames.empty()
    assert repr(empty) == "Frames(0)"
    assert "<table>" in empty._repr_html_()


def test_results_are_indexed_like_arrays(pair):
    features, matches = pair.features_a, pair.matches
    for index in (slice(3, 7), [3, 4], np.arange(400) % 2 == 0, 5):
        some = features[index]
        np.testing.assert_array_equal(some.frames.maps, features.frames[index].maps)
        assert len(some.descriptors) == len(some)
    assert len(features[-1]) == 1
    np.testing.assert_array_equal(matches[2:5].indices, matches.indices[2:5])
    assert len(matches[0]) == 1
    with pytest.raises(IndexError):
        features[400]


def test_12_bit_data_cause_a_warning(caplog):
    image = photographs.gray("brick", (300, 300)).astype(np.uint16) * 16
    assert len(caloric.extract(image)) < 400
    assert "the brightest pixel is" in caplog.text
    assert "12 bits, set the white level to 4095" in caplog.text
    caplog.clear()
    assert len(caloric.extract(image / 4095)) > 500
    assert not caplog.text
    caloric.detect(np.float32(0.5 + 1e-4 * (image / 4095)))
    assert "gray levels span" in caplog.text


@pytest.fixture(scope="module")
def oblique_pair():
    """Return an image of a wall, an oblique view of it with a tilt of 5, and the affine map."""
    image = photographs.gray("gravel", (400, 400))
    narrow = np.array([[0.2, 0, 100], [0, 1, 0]], np.float64)
    rotation = photographs.similarity(1, 30, (0, 0), (200, 200))
    change = rotation[:, :2] @ narrow + np.array([[0, 0, rotation[0, 2]], [0, 0, rotation[1, 2]]])
    return image, photographs.warp(photographs.warp(image, narrow), rotation), change


@exact_sampling
def test_an_oblique_pair_is_matched_with_simulated_views(oblique_pair):
    image, other, change = oblique_pair
    assert not caloric.match_images(image, other, views=None)
    pair = caloric.match_images(image, other)
    assert pair
    assert pair.level > 1
    assert pair.geometry.confidence > 0.9
    assert f"up to tilt {pair.level}" in pair.summary
    moved = photographs.apply(change, pair.points_a)
    assert np.median(np.hypot(*(moved - pair.points_b).T)) < 1
    assert len(pair) >= 40
    again = caloric.match_images(image, other, views=pair.level)
    np.testing.assert_array_equal(again.matches.indices, pair.matches.indices)
    np.testing.assert_array_equal(again.geometry.matrix, pair.geometry.matrix)
    # Several views give one match per position; propagated ones are from one view.
    matches = pair.matches[~pair.matches.is_from("propagation")]
    i, j = matches.indices.T
    positions = pair.features_a.frames.xy[i], pair.features_b.frames.xy[j]
    cells = np.round(np.concatenate(positions, 1) / 2)
    assert len(np.unique(cells, axis=0)) == len(matches)


def test_an_easy_pair_needs_no_views(pair):
    assert pair.level == 1
    assert "tilt" not in pair.summary


def test_unrelated_images_are_not_reliable_at_any_level():
    a, b = (photographs.gray(name, (240, 200)) for name in ("camera", "brick"))
    result = caloric.match_images(a, b)
    assert not result
    assert result.geometry.confidence < 0.5
    assert result.level < TILTS[-1]  # further views are of no use


def test_the_choices_of_views_match_the_tilts():
    assert get_args(image_pair.ViewsChoice) == ("auto", "none", *map(str, TILTS))
    arguments = [image_pair.views_argument(choice) for choice in get_args(image_pair.ViewsChoice)]
    assert arguments == ["auto", None, *TILTS]


def test_features_of_simulated_views_are_counted_separately():
    rng = np.random.default_rng(0)
    image, other = rng.random((2, 150, 150))
    pair = caloric.match_images(image, other, max_features=60, refine=False)
    assert pair.level > 1
    a, b = pair.view_features
    assert (len(pair.features_a) - a, len(pair.features_b) - b) == (60, 60)
    assert pair.summary.startswith(f"60 and 60 features and {a} and {b} of simulated views, ")
    plain = caloric.match_images(image, image, max_features=60)
    assert plain.view_features == (0, 0)
    assert plain.summary.startswith("60 and 60 features, ")
