"""Installation of shell completion."""

import sys

import pytest


@pytest.fixture
def user_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    return tmp_path


def test_changed_files_are_reported_before_they_are_changed(user_directory, command):
    code, out, _ = command("--install-completion")
    assert code == 0
    first, second = out.splitlines()[:2]
    assert "~/.bash_completions/caloric.sh" in first
    assert "~/.bashrc" in first
    assert "installed" in second
    # All files that were written are in the report.
    written = [
        path.relative_to(user_directory).as_posix()
        for path in user_directory.rglob("*")
        if path.is_file()
    ]
    assert sorted(written) == [".bash_completions/caloric.sh", ".bashrc"]


def test_a_user_can_decline(user_directory, command, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert command("--install-completion")[0] == 1
    assert list(user_directory.iterdir()) == []
