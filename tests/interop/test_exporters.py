"""Exporters: the registry, the check of image names, and atomic writes."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
from caloric import cli
from caloric.interop import exporters
from caloric.interop.exporters import FORMATS, Exporter, Format, Request
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import replacing

OUTSIDE = [
    "../a.png", "a/../../b.png", "..", "/etc/a.png", "//host/a.png", "C:\\a.png", "C:a.png",
    "c:/a.png", "a\\..\\b.png", "\\a.png", "", "a\0.png",
]  # fmt: skip
INSIDE = ("a b/ä 1.png", "x.y..z.jpg", "9:41.jpg", "..a.png", "-.png")


class Lines(Exporter):
    """Writes one line for each image and pair."""

    location = "lines/all.txt"

    def open(self):
        self.file = self.stack.enter_context(replacing(self.target))

    def features(self, name, features):
        self.file.write(f"{name} {len(features)}\n".encode())

    def pair(self, pair):
        self.file.write(f"{pair.name_a} {pair.name_b} {len(pair.matches)}\n".encode())


class Names(Exporter):
    """Writes an empty file for each image, without matches."""

    location = "names"

    def check(self):
        self.target.mkdir(exist_ok=True)

    def features(self, name, features):
        exporters.inside(self.target, name).touch()


def features(count=3):
    frames = caloric.Frames.from_xysa(*np.ones((3, count)), 0.0)
    return caloric.Features(frames, np.eye(count, 128, dtype=np.float32), (9, 9), "mine", "")


def pair(a="a.png", b="b.png"):
    matches = np.array([[0, 1]], np.uint32)
    return TwoViews(a, b, matches, np.zeros(1, np.float32), np.arange(1), np.eye(3), "homography")


@pytest.fixture
def registered(monkeypatch):
    for name, kind, suffixes in (("lines", "Lines", (".lines",)), ("names", "Names", ())):
        monkeypatch.setitem(FORMATS, name, Format(f"{__name__}:{kind}", suffixes))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Lines.__module__])


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_of_the_directory_are_errors(name, tmp_path):
    for kind in (Lines, Names):
        with pytest.raises(caloric.InputError, match="leads out"):
            kind(Request(tmp_path / "out", (name,)))
        with pytest.raises(caloric.InputError, match="leads out"):
            exporters.write(kind(Request(tmp_path / "out")), [(name, features())])
    with pytest.raises(caloric.InputError, match="leads out"):
        exporters.inside(tmp_path, name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out"]  # empty


@pytest.mark.parametrize("name", INSIDE)
def test_names_within_the_directory_are_valid(name, tmp_path):
    exporters.write(Names(Request(tmp_path / "out", (name,))), [(name, features())])
    assert (tmp_path / "out" / name).is_file()


def test_links_out_of_the_directory_are_errors(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "day").symlink_to(tmp_path)
    with pytest.raises(caloric.InputError, match="leads out"):
        exporters.write(Names(Request(tmp_path / "out")), [("day/a.png", features())])
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_every_registered_format_has_an_exporter(name):
    kind = exporters.exporter(name)
    assert issubclass(kind, Exporter)
    assert kind.__doc__
    assert not Path(kind.location).is_absolute()


def test_errors_about_unknown_formats_list_the_known_ones(tmp_path):
    known = ", ".join(FORMATS)
    with pytest.raises(caloric.InputError, match=rf"did you mean 'hloc'.* choose from {known}"):
        exporters.exporter("hlock")
    with pytest.raises(caloric.InputError, match=re.escape(exporters.outputs())):
        exporters.exporter_for(tmp_path / "x.unknown")
    assert all(suffix in exporters.outputs() for suffix in (".h5", ".npz", "a directory"))
    (tmp_path / "v1.2").mkdir()
    assert exporters.exporter_for(tmp_path / "v1.2") is exporters.exporter("npz")
    assert exporters.exporter_for(Path("x.H5")) is exporters.exporter("hloc")


def test_an_error_leaves_the_old_file(tmp_path):
    target = tmp_path / "all.txt"
    target.write_text("old")

    def images():
        yield "a.png", features()
        raise RuntimeError("after the first image")

    with pytest.raises(RuntimeError, match="after the first image"):
        exporters.write(Lines(Request(target)), images())
    assert [path.name for path in tmp_path.iterdir()] == ["all.txt"]
    assert target.read_text() == "old"
    written = exporters.write(Lines(Request(target)), [("a.png", features(2))], [pair()])
    assert written == [target]
    assert target.read_text() == "a.png 2\na.png b.png 1\n"


def test_a_full_disk_is_an_input_error(tmp_path):
    class Full(Lines):
        def features(self, name, features):
            raise OSError(28, "No space left on device")

    with pytest.raises(caloric.InputError, match=r"all.txt: cannot be written \(No space"):
        exporters.write(Full(Request(tmp_path / "all.txt")), [("a.png", features())])
    assert list(tmp_path.iterdir()) == []


def test_pairs_are_not_read_for_formats_without_matches(tmp_path):
    def pairs():
        raise AssertionError("read")
        yield

    exporters.write(Names(Request(tmp_path / "out")), [("a.png", features())], pairs())
    with pytest.raises(AssertionError, match="read"):
        exporters.write(Lines(Request(tmp_path / "x")), [("a.png", features())], pairs())


def test_both_commands_support_a_registered_format(registered, matched, originals, tmp_path):
    def run(*words):
        return CliRunner().invoke(cli.app, [str(word) for word in words])

    image = originals / "eins" / "bild ä 0.png"
    result = run("extract", image, "-o", tmp_path / "out.lines", "--max-features", 30)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out.lines").read_text() == "bild ä 0.png 30\n"
    result = run("collection", "export", matched[0], "--to", "lines")
    assert result.exit_code == 0, result.output
    assert f"written: {matched[0] / 'lines' / 'all.txt'}" in result.output
    lines = (matched[0] / "lines" / "all.txt").read_text().splitlines()
    assert len(lines) == 6 + 15
