"""Shards: damaged files, full disks, and the lock of a store."""

import os
import subprocess
import sys

import numpy as np
import pytest

import caloric
import caloric.collection
from caloric.collection import extraction, sources, store
from stores import content, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_damaged_shards_are_written_again(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    before = content(out)
    shard = extraction.shards(out).all()[0]
    shard.write_bytes(shard.read_bytes()[:100])
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    unfinished = shard.with_name(f"x.parquet.{store._host()}.{dead.pid}.0{store._UNFINISHED}")
    unfinished.write_bytes(b"half")
    again = extract(directory, out)
    assert again.made == 1
    assert content(out) == before
    shard.write_bytes(b"nothing")
    with pytest.raises(caloric.InputError, match=r"damaged .* run again"):
        list(extraction.shards(out).read(shard))
    assert not shard.exists()
    extract(directory, out)
    assert content(out) == before


def test_without_pyarrow_no_work_is_done(directory, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(sources, "hashed", None)
    with pytest.raises(caloric.InputError, match=r"pip install 'caloric\[collection\]'"):
        caloric.collection.extract(directory, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write anywhere")
def test_a_store_that_cannot_be_written_is_an_error(directory, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o500)
    with pytest.raises(caloric.InputError, match="cannot be written"):
        extract(directory, out)


def test_a_full_disk_is_an_error_and_leaves_no_files(directory, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(caloric.InputError, match="No space left"):
        extract(directory, tmp_path / "out")
    assert content(tmp_path / "out") == {}


def test_a_changed_byte_in_a_shard_is_detected(directory, tmp_path):
    def rows():
        return [{k: np.asarray(v).tolist() for k, v in r.items()} for r in shards.read(shard)]

    out = tmp_path / "out"
    extract(directory, out)
    shards = extraction.shards(out)
    shard = shards.all()[0]
    data = shard.read_bytes()
    rng, undetected = np.random.default_rng(0), 0
    expected = rows()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for _ in range(40):
        offset = int(rng.integers(4, len(data) - footer))  # in the pages
        shard.write_bytes(data[:offset] + bytes([data[offset] ^ 0x55]) + data[offset + 1 :])
        try:
            undetected += rows() != expected
        except caloric.InputError:
            undetected += shard.exists()
    assert undetected == 0


def test_shards_with_lists_of_earlier_versions_are_read(tmp_path):
    import pyarrow
    import pyarrow.parquet

    rows = [{"name": "a", "frames": np.arange(6, dtype=np.float32)},
            {"name": "b", "frames": np.zeros(0, np.float32)}]  # fmt: skip
    kinds = pyarrow.string(), pyarrow.list_(pyarrow.float32())
    columns = [
        pyarrow.array([row[k] for row in rows], kind)
        for k, kind in zip(rows[0], kinds, strict=True)
    ]
    shards = store.Shards(
        tmp_path, (("name", "string"), ("frames", "float32s"), ("new", "string")), single_rows=True
    )
    path = shards.path("00", "old")
    pyarrow.parquet.write_table(
        pyarrow.Table.from_arrays(columns, list(rows[0])), path, row_group_size=1
    )
    for names in ({"a", "b"}, {"b"}, {"other"}):
        read = list(shards.read(path, ["name", "frames", "new"], names))
        expected = [row for row in rows if row["name"] in names]
        assert [row["name"] for row in read] == [row["name"] for row in expected]
        for row, other in zip(read, expected, strict=True):
            assert row["frames"].dtype == np.float32
            assert row["frames"].tolist() == other["frames"].tolist()


def test_a_shard_that_was_replaced_is_read_again(tmp_path):
    shards = store.Shards(tmp_path, (("name", "string"), ("count", "int32")), single_rows=True)
    path = shards.path("00", "key")
    for names in (["a", "b"], ["b", "c", "a"]):
        shards.write(path, [{"name": name, "count": i} for i, name in enumerate(names)])
        for name in "abc":
            expected = [names.index(name)] if name in names else []
            assert [row["count"] for row in shards.read(path, None, {name})] == expected


def test_a_run_waits_for_another_run(directory, tmp_path):
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
    assert len(extraction.stored_images(out)) == 6


def test_a_file_size_limit_of_the_system_is_an_error(directory, tmp_path):
    """The limit is set in another process."""
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


def test_an_error_removes_a_new_store_only_if_it_is_empty(tmp_path):
    out = tmp_path / "new" / "out"

    def fail(*names):
        with store.locked(out):
            for name in names:
                (out / name).mkdir()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError):
        fail("features")
    assert sorted(path.name for path in out.iterdir()) == [".lock", "features"]


def test_a_removed_lock_is_created_again(tmp_path, monkeypatch):
    """A run that waited for one that failed does not use the lock file that it removed."""
    out, lock, removed = tmp_path / "out", store._lock, []

    def after_removal(file, directory):
        if not removed:
            (directory / ".lock").unlink()
            removed.append(directory)
        lock(file, directory)

    monkeypatch.setattr(store, "_lock", after_removal)
    with store.locked(out):
        assert (out / ".lock").exists()
