"""The worked examples of CONTRIBUTING run as they are printed, and its tools are consistent."""

import re
import textwrap

from caloric.kernels import KERNELS
from paths import ROOT


def blocks(section):
    """Return the blocks of Python in a section of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split(f"\n## {section}\n")[1]
    found = re.findall(r"^( *)```python\n(.*?)^\1```", text.split("\n## ")[0], re.S | re.M)
    return [textwrap.dedent(code) for _, code in found]


def test_a_new_kernel(monkeypatch):
    kernel, test = blocks("A new kernel")
    scope = {"__name__": "student"}
    exec(kernel, scope)
    monkeypatch.setitem(KERNELS, "student", scope["Student"])
    exec(test, scope)
    scope["test_integral"]()


def test_pre_commit_uses_the_version_of_ruff_that_lint_uses():
    (pinned,) = re.findall(r"^ruff==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    hooks = re.findall(r"\[ruff==(\S+)\]", (ROOT / ".pre-commit-config.yaml").read_text())
    assert set(hooks) == {pinned}
