"""Extraction: features are stored, and extracted only once."""

from collections import OrderedDict
from dataclasses import replace

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import collection
from caloric.collection import exporting, extraction, matching, refining, sources, store
from caloric.options import ExtractOptions
from stores import HERE, content, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_features_are_stored_and_extracted_only_once(directory, tmp_path):
    out = tmp_path / "out"
    first = extract(directory, out)
    assert len(first.found) == first.extracted == 6
    assert not first.skipped
    assert all("ä" in name for name in first.found)
    before = content(out)
    again = extract(directory, out)
    assert (again.made, again.extracted) == (0, 0)
    assert again.found == first.found
    assert content(out) == before
    stored = dict(exporting.images(out))["eins/bild ä 0.png"]
    image = caloric.read_image(directory / "eins" / "bild ä 0.png")
    expected = caloric.extract(image, max_features=120, dtype="uint8", contrast=0.02)
    np.testing.assert_array_equal(stored.descriptors, expected.descriptors)
    np.testing.assert_allclose(stored.frames.maps, expected.frames.maps, rtol=1e-6, atol=1e-5)
    assert stored.recipe == expected.recipe


def test_only_new_and_changed_images_are_extracted(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    cv2.imwrite(str(directory / "eins" / "bild ä 1.png"), photographs.gray("camera", (200, 200)))
    (directory / "zwei und drei" / "bild ä 2.png").unlink()
    cv2.imwrite(str(directory / "new.png"), photographs.gray("rocket", (200, 200)))
    again = extract(directory, out)
    assert again.extracted == 2
    assert set(again.found) == set(sources.names(str(directory)))
    from_scratch = tmp_path / "from_scratch"
    extract(directory, from_scratch)
    assert content(out) == content(from_scratch)
    other = extraction.extract(str(directory), out, ExtractOptions(max_features=50), HERE)
    assert other.extracted == 6


def test_a_worker_keeps_the_rows_of_the_last_images(directory, tmp_path, monkeypatch):
    out = tmp_path / "out"
    extract(directory, out)
    images = extraction.stored_images(out)
    reads, read = [], store.Shards.read

    def counted(self, path, columns=None, names=None):
        reads.append(names)
        return read(self, path, columns, names)

    def rows(name):
        return extraction.rows(images[name].path, {name, "in another shard"})

    monkeypatch.setattr(store.Shards, "read", counted)
    monkeypatch.setattr(extraction, "_kept", OrderedDict())
    first, second, third = sorted(images)[:3]
    sizes = [extraction._size(rows(name)[name]) for name in (first, second, third)]
    monkeypatch.setattr(extraction, "_KEPT_BYTES", sum(sizes) - 1)  # any two of the three
    extraction._kept.clear()
    stored = dict(exporting.images(out))
    for name, is_read in ((first, True), (second, True), (first, False), (third, True),
                          (first, False), (second, True)):  # fmt: skip
        reads.clear()
        values = rows(name)
        assert any(name in names for names in reads) == is_read
        assert values.keys() == {name}
        np.testing.assert_array_equal(
            extraction.features_of(values[name]).descriptors, stored[name].descriptors
        )


def test_a_warning_names_the_image(tmp_path, caplog):
    directory = tmp_path / "images"
    directory.mkdir()
    cv2.imwrite(str(directory / "flat.png"), np.full((40, 40), 99, np.uint8))
    extract(directory, tmp_path / "out")
    (record,) = caplog.records
    assert record.getMessage().startswith("flat.png: no features found")


def test_bad_images_are_skipped_and_reported_in_each_run(directory, tmp_path):
    good = (directory / "eins" / "bild ä 0.png").read_bytes()
    (directory / "short.png").write_bytes(good[: len(good) // 2])
    (directory / "empty.jpg").write_bytes(b"")
    cv2.imwrite(str(directory / "dot.png"), np.zeros((1, 1), np.uint8))
    outside = tmp_path / "outside.png"
    outside.write_bytes(good)
    (directory / "link.png").symlink_to(outside)
    for _ in range(2):
        result = extract(directory, tmp_path / "out")
        assert set(result.skipped) == {"short.png", "empty.jpg", "link.png"}
        assert "a link out of" in result.skipped["link.png"]
        assert result.found["dot.png"] == 0
    assert result.extracted == 0
    with pytest.raises(caloric.InputError, match="no images"):
        extract(tmp_path / "out", tmp_path / "x")
    with pytest.raises(caloric.InputError, match="no such directory"):
        extract(tmp_path / "nowhere", tmp_path / "x")


def test_the_features_of_unreadable_images_are_kept(directory, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = extract(directory, out)
    before = content(out)
    real = sources.content

    def failing(directory, name):
        if "eins" in name:
            raise sources.UnreadableError(f"{name}: cannot be read (gone)")
        return real(directory, name)

    monkeypatch.setattr(sources, "content", failing)
    again = extract(directory, out)
    assert len(again.skipped) == 3
    assert all("previous features are kept" in why for why in again.skipped.values())
    assert content(out) == before
    monkeypatch.setattr(sources, "content", real)
    assert extract(directory, out).extracted == 0
    assert first.found == extract(directory, out).found


def test_an_image_that_could_not_be_read_is_retried(directory, tmp_path, monkeypatch):
    """The file is read for its hash, but the second read, for extraction, fails."""
    whole = tmp_path / "whole"
    extract(directory, whole)
    real = sources.pixels

    def failing(directory, file, white_level):
        if file.name.endswith("eins/bild ä 1.png"):
            raise sources.UnreadableError(f"{file.name}: cannot be read (timed out)")
        return real(directory, file)

    monkeypatch.setattr(sources, "pixels", failing)
    out = tmp_path / "out"
    first = extract(directory, out)
    assert [why for why in first.skipped.values() if "timed out" in why]
    assert len(extraction.stored_images(out)) == 5
    monkeypatch.setattr(sources, "pixels", real)
    again = extract(directory, out)
    assert again.extracted == 1
    assert not again.skipped
    assert content(out) == content(whole)


def test_stores_of_earlier_versions_stay_valid():
    """The expected hashes are those of version 3 of the detector, which changes their order."""
    assert extraction.settings_hash(ExtractOptions()) == "150f7b2b3885dbfe"
    options = ExtractOptions(descriptor="heat", max_features=100, affine=True, contrast=0.02)
    assert extraction.settings_hash(options) == "77f774608f57621b"


@pytest.mark.parametrize(
    "options",
    [
        {"descriptor": "heat"},
        {"max_features": 100},
        {"affine": True},
        {"contrast": 0.03},
        {"edge": 5.0},
        {"detector": "opencv"},
        {"domain_sizes": 3},
        {"normalisation": "clip"},
        {"parameters": (("sigma_d", 0.3),)},
    ],
)
def test_every_option_changes_the_hash(options):
    assert extraction.settings_hash(ExtractOptions(**options)) != extraction.settings_hash(
        ExtractOptions()
    )


@pytest.mark.parametrize("descriptor", ["caloric", "heat"])
def test_shards_of_earlier_versions_are_read_and_copied(descriptor, directory, tmp_path):
    """They have no column ``encoding``; the encoding follows from the descriptor."""
    options = ExtractOptions(descriptor=descriptor, max_features=40)
    out, whole = tmp_path / "out", tmp_path / "whole"
    (directory / "bad.png").write_bytes(b"not an image")
    extraction.extract(str(directory), out, options, HERE)
    expected = {name: image.encoding for name, image in exporting.images(out)}
    assert set(expected.values()) == {"uint8+128" if descriptor == "caloric" else "uint8"}
    current = extraction.shards(out)
    columns = tuple(column for column in extraction.COLUMNS if column[0] != "encoding")
    old = replace(current, columns=columns)
    for path in current.all():
        old.write(path, list(current.read(path)))
    assert "encoding" not in next(current.read(current.all()[0]))
    assert {name: image.encoding for name, image in exporting.images(out)} == expected
    cv2.imwrite(str(directory / "new.png"), photographs.gray("rocket", (200, 200)))
    before = set(current.all())
    assert extraction.extract(str(directory), out, options, HERE).extracted == 1
    extraction.extract(str(directory), whole, options, HERE)
    copied = set(current.all()) - before
    assert copied
    for path in copied:
        assert (
            path.read_bytes() == extraction.shards(whole).directory.joinpath(path.name).read_bytes()
        )


def test_images_are_retried_after_a_lack_of_memory(directory, tmp_path, monkeypatch):
    def failing(directory, file, white_level):
        if file.name.endswith("1.png"):
            raise MemoryError
        return real(directory, file)

    real = sources.pixels
    monkeypatch.setattr(sources, "pixels", failing)
    first = extract(directory, tmp_path / "out")
    assert len(first.skipped) == 2
    assert all("not enough memory" in why for why in first.skipped.values())
    monkeypatch.setattr(sources, "pixels", real)
    assert extract(directory, tmp_path / "out").extracted == 2


def test_the_white_level_applies_to_extraction_and_refinement(tmp_path):
    gray = photographs.gray("brick", (240, 240)).astype(np.uint16)
    deep, usual = tmp_path / "deep", tmp_path / "usual"
    for folder, scale in ((deep, 16), (usual, 257)):
        folder.mkdir()
        for name, pixels in (("a", gray), ("b", np.rot90(gray))):
            cv2.imwrite(str(folder / f"{name}.tif"), pixels * scale)
    out, expected = tmp_path / "out", tmp_path / "expected"
    options = ExtractOptions(max_features=120, contrast=0.02)
    with pytest.raises(caloric.InputError, match="white level must be"):
        collection.extract(deep, out, options, white_level=0)

    def extracted(folder, out, white_level=None):
        return extraction.extract(str(folder), out, options, HERE, white_level=white_level)

    assert max(extracted(deep, out).found.values()) < 60
    assert extracted(deep, out, 4080).found == extracted(usual, expected).found
    assert extracted(deep, out, 4080.0).extracted == 0
    for store_path, folder in ((out, deep), (expected, usual)):
        matching.match(store_path, [("a.tif", "b.tif")], matching.Matching(confidence=0.0), HERE)
        matching.verify(store_path, matching.Matching(confidence=0.0), HERE)
        assert refining.refine(str(folder), store_path, HERE).moved > 10
    for name, features in exporting.images(out):
        other = dict(exporting.images(expected))[name]
        np.testing.assert_allclose(features.frames.maps, other.frames.maps, atol=2e-3)
