"""The worked examples of CONTRIBUTING run unchanged, and tool versions agree."""

import re
import sys
import textwrap
from types import ModuleType

from caloric.collection.matching import two_views
from caloric.interop.exporters import FORMATS, Format
from caloric.kernels import KERNELS
from paths import ROOT
from stores import run


def blocks(section):
    """Return the Python blocks of a section of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split(f"\n## {section}\n")[1]
    fenced = re.findall(r"^( *)```python\n(.*?)^\1```", text.split("\n## ")[0], re.S | re.M)
    return [textwrap.dedent(code) for _, code in fenced]


def test_a_new_kernel(monkeypatch):
    kernel, test = blocks("A new kernel")
    scope = {"__name__": "student"}
    exec(kernel, scope)
    monkeypatch.setitem(KERNELS, "student", scope["Student"])
    exec(test, scope)
    scope["test_integral"]()


def test_pre_commit_and_lint_use_the_same_version_of_ruff():
    (pinned,) = re.findall(r"^ruff==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    hooks = re.findall(r"\[ruff==(\S+)\]", (ROOT / ".pre-commit-config.yaml").read_text())
    assert set(hooks) == {pinned}


def test_a_new_export_format(monkeypatch, matched, originals, tmp_path):
    """The module, its registration and its test run unchanged."""
    code, test = blocks("A new export format")
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (line,) = re.findall(r"^ +(\"csv\": Format.*),$", text, re.M)
    module = ModuleType("caloric.interop.csv")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, kind in eval(f"{{{line}}}", {"Format": Format}).items():
        monkeypatch.setitem(FORMATS, name, kind)
    scope = {}
    exec(test, scope)
    scope["test_each_feature_has_a_row"](tmp_path)

    image, table = originals / "eins" / "bild ä 0.png", tmp_path / "one.csv"
    assert run("extract", image, "-o", table, "--max-features", 30).exit_code == 0
    assert len(table.read_text("utf-8").splitlines()) == 31
    result = run("collection", "export", matched[0], "--to", "csv")
    assert result.exit_code == 0, result.output
    rows = (matched[0] / "csv" / "matches.csv").read_text("utf-8").splitlines()
    inliers = sum(len(pair.inliers) for pair in two_views(matched[0]))
    assert len(rows) == 1 + inliers > 100
    assert "did you mean 'csv'" in str(
        run("collection", "export", matched[0], "--to", "csw").exception
    )
