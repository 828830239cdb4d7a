"""Plots by matplotlib, which is optional."""

import sys

import pytest
from typer.testing import CliRunner

from caloric import InputError, cli
from caloric.viz import plots


def test_a_figure_is_converted_to_pixels_of_its_size():
    figure = plots.new_figure(figsize=(3, 2), dpi=50)
    figure.subplots().plot([0, 1], [1, 0])
    pixels = plots.pixels(figure)
    assert pixels.shape == (100, 150, 3)
    assert pixels.std() > 10


def test_without_matplotlib_bench_fails_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'caloric\[viz\]'"):
        plots.new_figure()
    arguments = ["bench", "oxford", "--data", str(tmp_path), "--plot", str(tmp_path / "p.png")]
    with pytest.raises(InputError, match="plots need matplotlib"):
        CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
