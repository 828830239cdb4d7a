"""Progress, reports and checks of paths, shared by all commands."""

import io
import json
import sys

import cv2
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from brick import views
from caloric import InputError, cli
from caloric.cli import console


def test_progress_without_a_terminal_is_plain_lines(capsys, monkeypatch):
    now = iter([0.0, 20.0, 21.0, 40.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    progress = console.Progress()
    progress("images", 100, 1000)
    progress("images", 105, 1000)  # too soon for another line
    progress("images", 1000, 1000)
    del progress  # prints nothing
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "  100 of 1,000 images, 5 per second, 3 min left",
        "  1,000 of 1,000 images, 25 per second, done",
    ]
    assert captured.out == ""


def test_the_time_before_the_first_item_does_not_count(capsys, monkeypatch):
    now = iter([0.0, 60.0, 60.0, 80.0, 80.0])  # a minute of planning
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    progress = console.Progress()
    progress("pairs", 0, 100_000)
    progress("pairs", 40_000, 100_000)
    assert capsys.readouterr().err.splitlines() == [
        "  0 of 100,000 pairs",
        "  40,000 of 100,000 pairs, 2,000 per second, 30 s left",
    ]


def test_the_remaining_time_of_the_mapper_grows_faster_than_the_number_of_images():
    assert console.remaining("images registered", 9.0, 3, 30) is None
    left = console.remaining("images registered with lower thresholds", 10.0, 10, 30)
    assert 20 < console.remaining("pairs", 10.0, 10, 30) + 1 < left < 70
    assert console.remaining("images registered", 9.0, 30, 30) == 0
    # COLMAP 3.8 on lund: images, seconds; the last is the end.
    seconds = {10: 7.48, 15: 13.74, 20: 21.23, 25: 36.54, 29: 46.82}
    for done in (10, 15, 20, 25):
        total = seconds[done] + console.remaining("images registered", seconds[done], done, 29)
        assert abs(total - seconds[29]) < 0.15 * seconds[29]


def test_the_clock_starts_again_with_another_model(capsys, monkeypatch):
    now = iter([0.0, 20.0, 25.0, 26.0, 45.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    progress = console.Progress()
    progress("images registered", 10, 20)
    progress("images registered", 2, 20)  # another model, at 25 s
    progress("images registered", 10, 20)  # 20 s later
    assert capsys.readouterr().err.splitlines() == [
        "  10 of 20 images registered, 50 s left",
        "  10 of 20 images registered, 50 s left",
    ]


@pytest.fixture
def terminal(monkeypatch):
    """A stream that receives the output of a terminal on stderr."""
    stream = io.StringIO()
    monkeypatch.setattr(
        console, "Console", lambda **_: Console(file=stream, force_terminal=True, width=80)
    )
    return stream


def test_progress_is_a_bar_on_a_terminal(terminal):
    progress = console.Progress()
    progress("images", 5, 10)
    assert progress._bars.live.is_started
    progress("images", 10, 10)
    assert not progress._bars.live.is_started  # the cursor is visible again
    assert "images" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()
    progress("pairs", 1, 2)
    assert progress._bars.live.is_started
    live = progress._bars.live
    del progress
    assert not live.is_started  # also after an error


def test_a_counter_reports_one_item_per_call(capsys):
    count = console.Progress().counter("pairs", 2)
    count("a")
    count("b")
    assert capsys.readouterr().err.splitlines()[-1].startswith("  2 of 2 pairs,")


@pytest.mark.parametrize("to", [None, "-", "out.json"])
def test_reports_go_either_to_a_file_or_to_stdout(to, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    console.report_results(to, {"a": 1}, ["line"])
    out = capsys.readouterr().out
    if to == "-":
        assert json.loads(out) == {"a": 1}
    else:
        assert out == "line\n"
        assert (tmp_path / "out.json").exists() == (to == "out.json")


def test_an_output_must_not_be_an_input(tmp_path):
    source = tmp_path / "a.png"
    source.write_bytes(b"x")
    with pytest.raises(InputError, match="is an input and would be overwritten"):
        console.check_outputs(None, source, inputs=(source,))
    console.check_outputs(None, tmp_path / "b.png", inputs=(source,))


def test_plots_need_matplotlib(monkeypatch, tmp_path):
    console.check_plot(None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    console.check_plot(None)
    with pytest.raises(InputError, match=r"caloric\[viz\]"):
        console.check_plot(tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations(seconds, text):
    assert console.duration(seconds) == text


def test_no_command_overwrites_its_input(tmp_path):
    first, second, _ = views()
    a, b = tmp_path / "a.png", tmp_path / "b.png"
    cv2.imwrite(str(a), first)
    cv2.imwrite(str(b), second)
    link = tmp_path / "link.png"
    link.symlink_to(a)
    before = a.read_bytes()
    for arguments in (
        ["match", a, b, "-o", a],
        ["match", a, b, "-o", link],
        ["match", a, b, "-o", tmp_path / "." / "b.png"],
        ["match", a, b, "--json", b],
        ["align", b, a, "-o", a],
        ["find", a, b, "-o", b],
        ["bench", "speed", a, "--json", a],
        ["bench", "pairs", "--data", tmp_path, "--json", b],
    ):
        result = CliRunner().invoke(cli.app, [str(x) for x in arguments])
        assert "would be overwritten" in str(result.exception)
    assert a.read_bytes() == before
    disguised = tmp_path / "a.npz"
    disguised.write_bytes(before)
    (tmp_path / "directory").mkdir()
    inside = tmp_path / "directory" / "a.png.npz"
    inside.write_bytes(before)
    for arguments in (
        ["extract", disguised, "-o", disguised],
        ["extract", a, inside, "-o", tmp_path / "directory"],
    ):
        result = CliRunner().invoke(cli.app, [str(x) for x in arguments])
        assert "would be overwritten" in str(result.exception)
    assert disguised.read_bytes() == inside.read_bytes() == before
    one = str(tmp_path / "x.png")
    result = CliRunner().invoke(cli.app, ["match", str(a), str(b), "-o", one, "--json", one])
    assert "two outputs have the same path" in str(result.exception)


def test_a_pair_without_geometry_exits_with_status_1(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        noise = cv2.GaussianBlur(rng.integers(0, 255, (120, 120), np.uint8), (0, 0), 3)
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full_like(noise, 128))
    result = CliRunner().invoke(cli.app, ["match", *(str(tmp_path / f"{n}.png") for n in "ab")])
    assert result.exit_code == 1
    assert "no geometry" in result.output
