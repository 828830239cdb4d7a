"""Plots of alignments."""

import builtins
import logging

import numpy as np
import pytest

import photographs
from caloric import viz
from caloric.viz import alignment_figure

IDENTITY = np.array([[1.0, 0, 0], [0, 1, 0]])
BLUE, GREEN, RED = (90, 190, 255), (90, 255, 140), (255, 80, 80)


def has(figure, color):
    return (figure.pixels == color).all(-1).any()


@pytest.mark.parametrize("energies", [[-0.9], [np.inf], [0.0, 0.0], [1e-9, 3e5], []])
def test_any_energies_can_be_drawn(energies):
    """Scores are negative energies, and a detector without candidates has an infinite one."""
    image = photographs.gray("camera", (120, 120))
    steps = [(140.0 / (i + 1), IDENTITY, energy) for i, energy in enumerate(energies)]
    for reliable in (True, False):
        figure = viz.draw_alignment(
            image[:60, :80], image, IDENTITY, steps, "x", reliable=reliable,
            others=[((20, 30), np.array([[1.0, 0, 85], [0, 1, 70]]))],
        )  # fmt: skip
        assert figure.pixels.shape == (706, 1232, 3)
        assert has(figure, BLUE)
        assert has(figure, GREEN) == reliable
        assert has(figure, RED) != reliable


def test_each_image_size_has_a_separate_curve():
    assert alignment_figure._runs([35.0, 12, 0, 8, 0, 8, 0]) == [[0, 1, 2], [3, 4], [5, 6]]
    assert alignment_figure._runs([]) == []


def test_without_matplotlib_the_energy_is_not_plotted(monkeypatch, caplog):
    image = photographs.gray("camera", (120, 120))
    steps = [(8.0, IDENTITY, 0.5), (0.0, IDENTITY, 0.25)]
    arguments = (image[:60, :80], image, IDENTITY, steps, "x")
    complete = viz.draw_alignment(*arguments)
    original_import = builtins.__import__

    def import_without_matplotlib(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", import_without_matplotlib)
    alignment_figure._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        drawn = [viz.draw_alignment(*arguments) for _ in range(2)]
    assert [record.getMessage() for record in caplog.records] == [
        "the energy is not plotted: plots need matplotlib: pip install 'caloric[viz]'"
    ]
    assert drawn[0].pixels.shape == complete.pixels.shape
    same = (drawn[0].pixels == complete.pixels).all(-1)
    assert same[:370].all()  # the other panels
    assert same[370:, 820:].all()
    assert not same.all()
