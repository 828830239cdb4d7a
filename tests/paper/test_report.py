"""``caloric paper``."""

import json
import re
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from caloric import cli
from caloric.errors import InputError
from caloric.paper import report, side_by_side, table1
from paths import DOCS

# The candidates that `caloric paper` selects, and one other each, to save time.
CANDIDATES = {
    "sift": [{"sigma_d": 0.15, "sigma_r": 0.4}, {"sigma_d": 0.2, "sigma_r": 0.3}],
    "dsp-inner": [
        {"sigma_d": d, "sigma_r": 0.4, "sigma_s": s} for d, s in ((0.15, 0.2), (0.1, 0.4))
    ],
    "similarity": [
        {"sigma_d": d, "sigma_r": r, "sigma_s": 0.3, "nodes": 33}
        for d, r in ((0.1, 0.55), (0.2, 0.4))
    ],
    "heat": [{"sigma_d": 0.1, "sigma_a": 0.55}, {"sigma_d": 0.2, "sigma_a": 0.3}],
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "a directory"
    candidates = {
        name: tuple(table1.method(name, **v) for v in sets) for name, sets in CANDIDATES.items()
    }
    for name, methods in candidates.items():
        assert set(methods) <= set(table1.CANDIDATES[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table1, "CANDIDATES", candidates)
        result = CliRunner().invoke(cli.app, ["paper", str(out)])
    assert result.exit_code == 0, result.output
    assert str(out / "index.html") in result.stdout
    return out


@pytest.mark.slow
def test_the_report_contains_every_figure(page):
    html = (page / "index.html").read_text(encoding="utf-8")
    shown = re.findall(r'<img src="([^"]+)" alt="[^"]+"', html)
    assert len(shown) == len(set(shown)) == 8
    for name in shown:
        pixels = np.asarray(Image.open(page / name).convert("L"))
        assert pixels.std() > 10
        assert min(pixels.shape) > 200
    assert "http://" not in html
    assert "https://" not in html


@pytest.mark.slow
def test_the_results_reproduce_the_paper(page):
    results = json.loads((page / "results.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(results["toy"]["algorithm_1"], (1, 0.25), atol=1e-3)
    assert abs(results["toy"]["plain_descent"][0]) < 0.1
    for example in results["table_1"].values():
        assert example["sift"]["correct"] > example["sift"]["incorrect"]
        assert example["heat"]["correct"] < example["heat"]["incorrect"]
        assert example["only_sift_correct"] > 0
        assert example["searched"] == 325 * 20 * 20
    groups = {row["group"] for row in results["letters"]}
    assert groups == {"best", "equal blur", "the paper's SIFT"}
    for row in results["letters"]:
        assert list(row["share"]) == ["0.1", "0.2", "0.3", "0.4", "0.5"]
        for mean, low, high in row["share"].values():
            assert 0.5 < low <= mean <= high <= 1
    assert len(results["errata"]) == 16
    truth = side_by_side.TEMPLATES[side_by_side.TRUTH]
    assert [row["template"] for row in results["side_by_side"]] == [truth] * 3
    angle, scale, shift = results["side_by_side"][0]["error"]
    assert angle < 5
    assert scale < 0.08
    assert shift < 0.03


@pytest.mark.slow
def test_the_documentation_states_the_results(page):
    results = json.loads((page / "results.json").read_text(encoding="utf-8"))
    document = " ".join((DOCS / "paper.md").read_text("utf-8").split())
    assert len(results["verdict"]) == 2
    for sentence in results["verdict"]:
        assert sentence in document


def test_without_matplotlib_the_error_suggests_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "caloric.paper.figures", None)
    monkeypatch.delattr("caloric.paper.figures", raising=False)
    with pytest.raises(InputError, match=r"pip install 'caloric\[viz\]'"):
        report.write(tmp_path / "out")


def test_output_must_be_a_directory(tmp_path, capsys, monkeypatch):
    file = tmp_path / "file"
    file.write_text("content")
    monkeypatch.setattr("sys.argv", ["caloric", "paper", str(file)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.strip().endswith("exists and is not a directory; specify another")
    assert len(captured.err.strip().splitlines()) == 1
    assert file.read_text() == "content"


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("content")
    monkeypatch.setattr("sys.argv", ["caloric", "--debug", "paper", str(file)])
    with pytest.raises(ValueError, match="not a directory"):
        cli.main()
