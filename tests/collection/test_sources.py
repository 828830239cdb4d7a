"""The images of a directory: links, odd names, addresses."""

import os

import pytest

import caloric
from caloric.collection import extraction, sources, store
from stores import HERE, SETTINGS, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_links_and_names_that_are_not_text_are_told(directory, tmp_path):
    (directory / "away").symlink_to(tmp_path)
    (directory / "gone.png").symlink_to(directory / "nothing")
    with open(os.fsencode(directory) + b"/b\xe9.png", "wb") as file:
        file.write((directory / "eins" / "bild ä 0.png").read_bytes())
    found = extract(directory, tmp_path / "out")
    assert set(found.skipped) == {"away", "gone.png", "b\\udce9.png"}
    assert "leads out" in found.skipped["away"] or "not followed" in found.skipped["away"]
    assert "rename" in found.skipped["b\\udce9.png"]
    assert len(found.found) == 9


def test_addresses_say_what_is_wrong(directory, tmp_path):
    with pytest.raises(caloric.InputError, match="cannot be opened"):
        sources.names("foo://bar")
    here = extraction.extract(f"file://{directory}", tmp_path / "a", SETTINGS, HERE)
    assert len(here.found) == 6
    assert sources.absolute("s3://bucket/x") == "s3://bucket/x"
