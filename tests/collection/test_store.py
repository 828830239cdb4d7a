"""Shards: broken ones, full disks, and the lock of a store."""

import os
import subprocess
import sys

import numpy as np
import pytest

import caloric
from caloric.collection import extraction, store
from stores import content, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_what_is_broken_is_made_again(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    before = content(out)
    shard = extraction.shards(out).all()[0]
    shard.write_bytes(shard.read_bytes()[:100])
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    left = shard.with_name(f"x.parquet.{store._host()}.{dead.pid}.0{store._UNFINISHED}")
    left.write_bytes(b"half")
    again = extract(directory, out)
    assert again.made == 1
    assert content(out) == before
    shard.write_bytes(b"nothing")
    with pytest.raises(caloric.InputError, match=r"broken .* run again"):
        list(extraction.shards(out).read(shard))
    assert not shard.exists()
    extract(directory, out)
    assert content(out) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_that_cannot_be_written_is_told(directory, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o500)
    with pytest.raises(caloric.InputError, match="cannot be written"):
        extract(directory, out)


def test_a_full_disk_is_told_and_nothing_is_left(directory, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(caloric.InputError, match="No space left"):
        extract(directory, tmp_path / "out")
    assert content(tmp_path / "out") == {}


def test_garbage_in_a_shard_is_noticed(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    own = extraction.shards(out)
    shard = own.all()[0]
    whole = shard.read_bytes()
    rng, silent = np.random.default_rng(0), 0
    expected = [{k: np.asarray(v).tolist() for k, v in row.items()} for row in own.read(shard)]
    for _ in range(40):
        at = int(rng.integers(4, len(whole) - 2000))  # the pages; the footer comes after
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = [{k: np.asarray(v).tolist() for k, v in r.items()} for r in own.read(shard)]
        except caloric.InputError:
            silent += shard.exists()
        else:
            silent += found != expected
    assert silent == 0


def test_one_run_waits_for_another(directory, tmp_path):
    out = tmp_path / "out"
    arguments = ["collection", "extract", str(directory), "-o", str(out), "--max-features", "60"]
    code = "from caloric.cli import main\nmain()"
    with store.locked(out):
        waiting = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, "--workers", "1", "--device", "cpu"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert "waiting for it" in waiting.stderr.readline()
        extract(directory, out)
        assert waiting.poll() is None
    assert waiting.wait(60) == 0
    waiting.stderr.close()
    assert len(extraction.listed(out)) == 6


def test_a_real_limit_on_files_is_told(directory, tmp_path):
    """The system's own refusal, in a process of its own."""
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "from caloric.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "collection", "extract", str(directory), "-o",
         str(tmp_path / "out"), "--workers", "1", "--device", "cpu"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot be written (File too large)" in done.stderr.splitlines()[-1]
    assert content(tmp_path / "out") == {}
