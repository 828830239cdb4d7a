"""The commands of ``caloric collection``."""

import pytest

from caloric.collection import store
from caloric.interop import colmap
from stores import run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_the_commands_run_in_sequence_and_reject_invalid_options(directory, tmp_path, caplog):
    out = tmp_path / "out"
    (directory / "bad.png").write_bytes(b"not an image")
    options = ["-o", out, "--max-features", 120, "--workers", 1]
    result = run("collection", "extract", directory, *options)
    assert result.exit_code == 1
    assert "6 of 7 images" in result.output
    assert "bad.png" in caplog.text
    (directory / "bad.png").unlink()
    assert run("collection", "extract", directory, *options).exit_code == 0
    assert "15 pairs" in run("collection", "pairs", out).output
    assert run("collection", "match", out, "--workers", 1).exit_code == 0
    assert "have a geometry" in run("collection", "verify", out, "--workers", 1).output
    if colmap.available():
        assert run("collection", "export", out, "--images", directory).exit_code == 0
        assert (out / "colmap" / "database.db").exists()
    for arguments in (
        ["match", out, "--ratio", 2], ["verify", out, "--model", "magic"],
        ["pairs", out, "--pairs", "magic"], ["extract", directory, "-o", out, "--workers", -1],
        ["extract", directory, "-o", out, "--descriptor", "magic"],
        ["reconstruct", directory, "-o", tmp_path / "empty"],
    ):  # fmt: skip
        assert run("collection", *arguments).exit_code != 0
