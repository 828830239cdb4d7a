"""Plots of features and matches."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import viz
from caloric.matching.geometry import estimate


@pytest.fixture(scope="module")
def pair():
    image = photographs.gray("brick", (300, 300))
    change = photographs.similarity(0.9, 20, (5, -8), (150, 150))
    return caloric.match_images(image, photographs.warp(image, change), max_features=300)


@pytest.mark.parametrize("shape", [(300, 300), (300, 300, 3), (300, 300, 4)])
def test_images_of_any_shape_can_be_drawn(pair, shape, tmp_path):
    image = np.zeros(shape, np.uint16)
    drawn = viz.draw_matches(
        image, pair.image_b, pair.features_a, pair.features_b, pair.matches, pair.geometry
    )
    assert drawn.pixels.dtype == np.uint8
    assert drawn.pixels.shape[1] == 608
    drawn.save(tmp_path / "m.jpg")
    np.testing.assert_equal(cv2.imread(str(tmp_path / "m.jpg")).shape, drawn.pixels.shape)
    with_features = viz.draw_features(image, pair.features_a)
    assert (with_features.pixels != viz.draw_features(image, caloric.Frames.empty()).pixels).any()
    with pytest.raises(caloric.InputError, match=r"use \.png or \.jpg"):
        drawn.save(tmp_path / "m.xyz")


def test_lines_end_at_the_matched_points():
    """A line between corners of images of different sizes, drawn at the same height."""
    a, b = np.zeros((100, 200), np.uint8), np.zeros((50, 50), np.uint8)
    drawn = viz.draw_matches(a, b, [[0, 0]], [[49, 49]], errors=[0.0]).pixels.astype(int)
    green = (drawn[..., 1] > 150) & (drawn[..., 0] < 120) & (drawn[..., 2] < 160)
    left, right = green[:, :200], green[:, 208:]
    assert drawn.shape[1] == 308
    assert left[36:44, :8].any()
    assert right[-8:, -8:].any()
    geometry = estimate([[0, 0]] * 2, [[1, 1]] * 2)
    for options, message in (
        ({"errors": [0.0, 1.0]}, "same length"),
        ({"limit": 0}, "limit must be"),
        ({"geometry": geometry}, "does not belong to these matches"),
        ({"matches": np.zeros((1, 2), int)}, "as caloric.match returns"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            viz.draw_matches(a, b, [[0, 0]], [[1, 1]], **options)
    with pytest.raises(caloric.InputError, match="no pixels"):
        viz.draw_matches(a[:0], b, [[0, 0]], [[1, 1]])
    with pytest.raises(caloric.InputError, match="Features or Frames"):
        viz.draw_features(a, [(1, 2)])


def test_a_limited_number_of_lines_is_spread_over_the_image():
    rng = np.random.default_rng(0)
    dense, sparse = rng.uniform(0, 10, (500, 2)), rng.uniform(90, 100, (5, 2))
    kept = viz.spread(np.concatenate([dense, sparse]), 50)
    assert len(kept) == 50
    assert set(range(500, 505)) <= set(kept.tolist())
    np.testing.assert_array_equal(viz.spread(sparse, 50), np.arange(5))


@pytest.mark.parametrize(
    ("sizes", "smallest"),
    [
        (((500, 9000), (400, 8000)), (200, 2000)),  # panoramas: one above the other
        (((5000, 400), (4000, 300)), (2000, 300)),
        (((500, 9000), (600, 600)), (290, 3000)),
        (((600, 800), (600, 800)), (600, 1500)),
        (((40, 800), (30, 600)), (70, 700)),  # not enlarged
    ],
)
def test_figures_of_wide_and_tall_images_are_legible(sizes, smallest):
    a, b = (np.zeros(size, np.uint8) for size in sizes)
    ends = [[[0, 0], [w - 1, h - 1]] for h, w in sizes]
    drawing = viz.arranged(a, b, *ends)
    h, w = drawing.canvas.shape[:2]
    assert (h >= smallest[0], w >= smallest[1]) == (True, True), (h, w)
    assert max(h, w) < 6500
    for x, y in [*drawing.a, *drawing.b]:
        assert -0.5 <= x < w
        assert 35.5 <= y < h
        assert drawing.canvas[int(y + 0.5), int(x + 0.5)].max() == 0  # inside an image


def test_stacked_images_have_the_same_width():
    a, b = np.zeros((100, 900), np.uint8), np.full((150, 450), 255, np.uint8)
    drawing = viz.arranged(a, b, [[899, 99]], [[0, 0]])
    np.testing.assert_allclose(drawing.a, [[899, 36 + 99]], atol=0.5)
    np.testing.assert_allclose(drawing.b, [[0.5, 36 + 100 + 8 + 0.5]], atol=0.5)
    assert drawing.canvas.shape == (36 + 100 + 8 + 300, 900, 3)
