"""The images of a directory: links, invalid names, URLs."""

import os

import pytest

import caloric
from caloric.collection import extraction, sources, store
from stores import HERE, SETTINGS, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_links_and_names_that_are_not_utf8_are_skipped(directory, tmp_path):
    (directory / "linked").symlink_to(tmp_path)
    (directory / "gone.png").symlink_to(directory / "nothing")
    with open(os.fsencode(directory) + b"/b\xe9.png", "wb") as file:
        file.write((directory / "eins" / "bild ä 0.png").read_bytes())
    result = extract(directory, tmp_path / "out")
    assert set(result.skipped) == {"linked", "gone.png", "b\\udce9.png"}
    assert "link out of" in result.skipped["linked"]
    assert "rename" in result.skipped["b\\udce9.png"]
    assert len(result.found) == 9


def test_directories_may_be_urls(directory, tmp_path):
    with pytest.raises(caloric.InputError, match="cannot be opened"):
        sources.names("foo://bar")
    result = extraction.extract(f"file://{directory}", tmp_path / "a", SETTINGS, HERE)
    assert len(result.found) == 6
    assert sources.absolute("s3://bucket/x") == "s3://bucket/x"


def test_hidden_files_are_skipped_and_logged_once(directory, tmp_path, caplog):
    data = (directory / "eins" / "bild ä 0.png").read_bytes()
    (directory / ".cache").mkdir()
    for name in (".x.png", "eins/._IMG.jpg", ".cache/a.png"):
        (directory / name).write_bytes(data)
    names = sources.names(str(directory))
    assert len(names) == 6
    assert not any("/." in f"/{name}" for name in names)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message == "hidden files are skipped: 3, such as .cache/a.png"
    # Dots in the path of the directory do not matter.
    assert sources.names(str(directory / ".cache")) == ["a.png"]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / ".a.png").write_bytes(data)
    with pytest.raises(caloric.InputError, match="contains no images"):
        sources.names(str(tmp_path / "only"))
