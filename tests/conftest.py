"""Image directories, stores and commands shared by tests of several modules."""

import subprocess

import cv2
import pytest

import photographs
from caloric import cli
from caloric.collection import exporting, matching, pairing
from stores import HERE, extract


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Two directories of three views each, with spaces and umlauts in their names."""
    directory = tmp_path_factory.mktemp("photos")
    for name, scene in (("astronaut", "eins"), ("coffee", "zwei und drei")):
        (directory / scene).mkdir()
        whole = photographs.gray(name, (200, 220))
        for i, degrees in enumerate((0, 6, 12)):
            moved = photographs.similarity(1.0, degrees, (2 * i, i), (100, 110))
            cv2.imwrite(str(directory / scene / f"bild ä {i}.png"), photographs.warp(whole, moved))
    return directory


@pytest.fixture
def directory(originals, tmp_path):
    target = tmp_path / "photos"
    subprocess.run(["cp", "-r", str(originals), str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def matched(originals, tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    extract(originals, out)
    pairs = pairing.pairs(out, pairing.Pairing(), HERE)
    how = matching.Matching()
    assert matching.match(out, pairs, how, HERE).new == 15
    assert matching.match(out, pairs, how, HERE).new == 0
    result = matching.verify(out, how, HERE)
    assert matching.verify(out, how, HERE) == result
    return out, result.verified


@pytest.fixture(scope="session")
def plainly_named(originals, tmp_path_factory):
    """The directory and the verified store of one scene with names without spaces."""
    directory, out = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("plain_store")
    (directory / "scene").mkdir()
    for i, path in enumerate(sorted((originals / "eins").glob("*.png"))):
        (directory / "scene" / f"{i}.png").write_bytes(path.read_bytes())
    extract(directory, out)
    how = matching.Matching()
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), how, HERE)
    lines = exporting.export(out, "text").paths[1].read_text().splitlines()
    assert "scene/0.png scene/1.png" in lines
    matching.verify(out, how, HERE)
    return directory, out


@pytest.fixture
def command(monkeypatch, capsys):
    """A function that runs a command and returns exit status, standard output and error."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["caloric", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run
