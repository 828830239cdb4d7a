"""Figures of the paper, drawn from small results."""

import numpy as np
import pytest
from PIL import Image

from caloric.paper import figures, side_by_side, table1
from caloric.paper.letters import random_deformation
from caloric.paper.side_by_side import NEAREST_CANDIDATE, POSE, Outcome, SideBySide
from caloric.theory import toy
from caloric.theory.continuation import Path, Step


@pytest.fixture
def drawn(tmp_path):
    """Draws a figure and returns its pixels (h, w, 3)."""

    def draw(figure, *arguments):
        figure(tmp_path / "figure.png", *arguments)
        return np.asarray(Image.open(tmp_path / "figure.png").convert("RGB")).astype(int)

    return draw


def count_pixels(pixels, color):
    """Return the number of pixels with approximately a color such as #1f5fa8."""
    expected = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels - expected).max(-1) < 12).sum())


def test_the_signals_are_drawn(drawn):
    pixels = drawn(figures.signals)
    for color in (figures.BLUE, figures.RED):
        assert count_pixels(pixels, color) > 300


def test_the_contours_are_those_of_the_cost():
    """Undiffused, the lowest cost of the grid is near the global minimum."""
    c, theta, cost = figures._landscape(0.0, side=21)
    row, column = np.unravel_index(cost.argmin(), cost.shape)
    assert abs(c[column] - 1) <= np.diff(c)[0]
    assert abs(theta[row] - toy.SHIFT) <= np.diff(theta)[0]


def test_landscapes_show_the_path(drawn, monkeypatch):
    grid = figures._landscape
    monkeypatch.setattr("caloric.paper.figures._landscape", lambda sigma: grid(sigma, side=9))
    path = Path(tuple(Step(s, np.array([0.5, 0.1]), 0.0, True) for s in figures.SHOWN_SIGMAS))
    four = drawn(figures.diffused_landscapes, path)
    one = drawn(figures.landscape, path.steps[-1])
    assert count_pixels(one, figures.RED) > 50
    assert count_pixels(four, figures.RED) > 4 * 30


@pytest.fixture
def example():
    rng = np.random.default_rng(0)
    deformations = random_deformation(rng, 0.2), random_deformation(rng, 0.2)
    sift = table1.method("sift", sigma_d=0.3, sigma_r=0.8)
    heat = table1.method("heat", sigma_d=0.1, sigma_a=0.55)
    return table1.Example("A", "R", deformations, 0.2, sift, heat, (1, 2), (2, 1), 1, 1, 2)


def test_statistics_show_each_group(drawn):
    """The line of a method is drawn in its color, in the panel of its group."""
    shares = [table1.Share(0.9, 0.88, 0.92) for _ in table1.STRENGTHS]
    heat, similarity = table1.CANDIDATES["heat"][0], table1.CANDIDATES["similarity"][0]
    rows = [
        table1.Row("best", heat, "l2", shares, None),
        table1.Row("equal blur", similarity, "l2", shares, None),
        table1.Row("equal blur", heat, "root", shares, None),  # not drawn
    ]
    pixels = drawn(figures.statistics, table1.Result({}, rows, 1))
    left, _, right = np.array_split(pixels, 3, 1)
    for panel, shown, other in (
        (left, figures.RED, figures.BLUE),
        (right, figures.BLUE, figures.RED),
    ):
        assert count_pixels(panel, shown) > 200
        assert count_pixels(panel, other) == 0


def test_the_response_maps_of_sift_and_heat_differ(drawn, example):
    assert drawn(figures.letters, example).std() > 60
    maps = [
        drawn(figures.responses, example, method)
        for method in (example.sift_method, example.heat_method)
    ]
    assert maps[0].shape == maps[1].shape
    assert np.abs(maps[0] - maps[1]).mean() > 1


def test_the_result_of_each_algorithm_is_drawn(drawn):
    outcomes = tuple(
        Outcome(title, template, pose)
        for title, template, pose in (
            ("one", 1, POSE),
            ("two", 1, NEAREST_CANDIDATE),
            ("three", 0, POSE),
        )
    )
    point = np.array([0.1, 0.8, 0.1, 1, 0, 0, 0])
    path = Path(tuple(Step(s, point, 0.0, True) for s in side_by_side.SIGMAS))
    pixels = drawn(figures.algorithms, SideBySide(outcomes, path, np.eye(3), np.eye(3)))
    for panel in np.array_split(pixels, 4, 1):
        assert count_pixels(panel, figures.RED) > 50
