"""Directories that are removed after an error, and temporary files of killed processes."""

import os
import time

import pytest

from caloric.runtime.files import created_directory, remove_stale, replacing_path


def test_an_error_removes_new_and_empty_directories(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(RuntimeError), created_directory(tmp_path / "old" / "a" / "b"):
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
    with pytest.raises(RuntimeError), created_directory(tmp_path / "old"):
        raise RuntimeError
    assert (tmp_path / "old").exists()


def test_directories_with_files_are_kept(tmp_path):
    def fail():
        with created_directory(tmp_path / "a" / "b"):
            (tmp_path / "a" / "file").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["file"]
    with created_directory(tmp_path / "c") as path:
        assert path.is_dir()
    assert path.is_dir()


def test_old_temporary_files_of_a_path_are_removed(tmp_path):
    target, age = tmp_path / "a.db", 2 * 24 * 3600
    with replacing_path(target) as stale, replacing_path(tmp_path / "b.db") as other:
        journal = stale.with_name(f"{stale.name}-journal")
        kept = [tmp_path / name for name in (".a.db.txt", ".a.db", "a.db.0123456789ab")]
        for path in (stale, journal, other, *kept):
            path.touch()
            os.utime(path, (time.time() - age,) * 2)
        with replacing_path(target) as recent:
            remove_stale(target)
            assert not stale.exists()
            assert not journal.exists()
            assert all(path.exists() for path in (recent, other, *kept))
        stale.touch()  # so that it can replace the path
