"""Fixtures: two image files, and commands run as by a user."""

import cv2
import pytest

import photographs
from caloric import cli


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pair")
    image = photographs.gray("camera")
    view = photographs.similarity(1.2, 20, (5, 5), (255, 255))
    paths = directory / "one é.png", directory / "two.jpg"
    for path, pixels in zip(paths, (image, photographs.warp(image, view)), strict=True):
        path.write_bytes(cv2.imencode(path.suffix, pixels)[1].tobytes())
    return paths


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
