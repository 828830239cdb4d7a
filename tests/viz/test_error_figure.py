"""The figure of expected errors."""

import numpy as np
import pytest

import caloric
from caloric import viz
from caloric.errors import InputError

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).uniform(20, 100, (40, 2))


def test_contours_are_drawn_over_the_image(points):
    noise = np.random.default_rng(1).normal(0, 0.3, points.shape)
    image = np.full((120, 400), 0.5)
    geometry = caloric.verify(points, points + noise + (3, 1))
    figure = viz.draw_error(image, geometry)
    h, w = figure.pixels.shape[:2]
    assert w > 2 * h
    # The background is gray; contours are colored.
    assert np.ptp(figure.pixels.astype(int), axis=2).max() > 50


def test_an_exact_geometry_has_no_contours(points):
    figure = viz.draw_error(np.full((120, 120), 0.5), caloric.verify(points, points + 1.0))
    assert np.ptp(figure.pixels.astype(int), axis=2).max() == 0


def test_geometries_without_a_map_of_errors(points):
    image = np.zeros((120, 120))
    with pytest.raises(InputError, match="maps points to lines"):
        viz.draw_error(image, caloric.verify(points, points, model="fundamental"))
    with pytest.raises(InputError, match="too few"):
        viz.draw_error(image, caloric.verify(points[:2], points[:2]))
