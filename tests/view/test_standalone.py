"""The self-contained page."""

import json
import shlex

import numpy as np
from typer.testing import CliRunner

from caloric import cli
from encoded_images import encoded_pair


def test_the_page_shows_what_the_command_computed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in zip(("a b.png", "b.png"), encoded_pair(), strict=True):
        (tmp_path / name).write_bytes(data)
    options = ["--max-features", "300", "--no-refine", "--seed", "7", "--views", "2"]
    words = ["match", "a b.png", "b.png", "--json", "out.json", "--html", "page.html", *options]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    computed = json.loads((tmp_path / "out.json").read_text())
    text = (tmp_path / "page.html").read_text("utf-8")
    data = text.split('id="embedded-data">')[1].split("</script>")[0]
    shown = json.loads(data)["result"]
    rows = np.array(computed["matches"])
    positions = np.stack([shown[side][axis] for side in "ab" for axis in "xy"], 1)
    np.testing.assert_allclose(positions, rows[:, :4], atol=0.006)
    assert shown["inlier"] == [int(row[5]) for row in computed["matches"]]
    for name in ("level", "confidence", "matrix", "model", "features", "refined"):
        assert shown[name] == computed[name], name
    assert shown["level"] == 2
    command = shlex.split(shown["command"])
    assert command[:4] == ["caloric", "match", "a b.png", "b.png"]
    assert sorted(command[4:]) == sorted(words[3:])
