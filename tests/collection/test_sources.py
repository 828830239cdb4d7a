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
