"""Directories that are removed after an error."""

import pytest

from caloric.runtime.files import created_directory


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
