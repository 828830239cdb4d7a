"""Files dropped on the page or selected in its file dialogs."""

import time

import pytest

import photographs
from caloric.options import ExtractOptions
from caloric.view import session
from encoded_images import encode, encoded_pair
from in_browser import (
    MATCHED,
    console_errors,
    drop,
    hidden,
    open_page,
    press,
    requested_urls,
    text,
)
from tools.drills.browser import wait

LEFT, RIGHT = (0.2, 0.5), (0.8, 0.5)


@pytest.fixture
def files(tmp_path):
    """Paths of two images that match, and of two others that match."""
    camera = photographs.gray("camera", (300, 200))
    contents = [*encoded_pair(), encode(camera), encode(camera[10:, 15:])]
    paths = [tmp_path / f"{name}.png" for name in ("left", "right", "camera", "cropped")]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    return paths


@pytest.fixture
def matched_names(viewer, monkeypatch):
    """The names of the images of each result that the server computes or looks up first."""
    names, original = [], viewer.has_result

    def has_result(settings):
        names.append(tuple(image.name for image in viewer.both()))
        return original(settings)

    monkeypatch.setattr(viewer, "has_result", has_result)
    return names


def clear_marks(page):
    page.evaluate("performance.clearMarks()")


@pytest.mark.parametrize("by", ["drop", "dialog"])
@pytest.mark.parametrize("width", [390, 1280])
def test_two_files_replace_both_images_and_are_matched_once(
    served, viewer, page_of, files, matched_names, by, width
):
    page = page_of(width, 800)
    open_page(page, served(viewer))
    clear_marks(page)
    if by == "drop":
        drop(page, *files[:2], at=RIGHT)
    else:
        page.set_input_files("#file-b", files[:2])
    wait(page, MATCHED)
    assert [image.name for image in viewer.both()] == ["left.png", "right.png"]
    assert matched_names == [("a.png", "b.png"), ("left.png", "right.png")]
    for side, name in (("a", "left.png"), ("b", "right.png")):
        assert name in text(page, f"drop-{side}")
    assert "inliers" in text(page, "counts")
    assert console_errors(page) == []


def test_two_files_can_be_dropped_on_an_empty_page(served, page, files):
    viewer = session.Session(options=ExtractOptions(max_features=200))
    page.goto(served(viewer) + "/")
    wait(page, "document.getElementById('descriptor')?.options.length > 3")
    drop(page, *files[:2])
    wait(page, MATCHED)
    assert [image.name for image in viewer.both()] == ["left.png", "right.png"]


def test_images_can_be_dropped_one_by_one_on_a_narrow_screen(served, page_of, files, tmp_path):
    viewer = session.Session(options=ExtractOptions(max_features=200))
    page = page_of(390, 800)
    page.goto(served(viewer) + "/")
    wait(page, "document.getElementById('descriptor')?.options.length > 3")
    assert not hidden(page, "drop-a")
    assert "Drop two images" in text(page, "counts")
    first = files[0].rename(tmp_path / "ä & b.png")
    drop(page, first, at=(0.5, 0.2))
    wait(page, "document.getElementById('drop-a').classList.contains('loaded')")
    drop(page, files[1], at=(0.5, 0.9))
    wait(page, MATCHED)
    assert [image.name for image in viewer.both()] == ["ä & b.png", "right.png"]
    assert "inliers" in text(page, "counts")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("at", "expected"), [(LEFT, ("new", "b")), (RIGHT, ("a", "new"))])
@pytest.mark.parametrize("mode", ["m", "s", "b"])
def test_one_file_replaces_the_image_under_it(
    served, viewer, page, tmp_path, files, matched_names, at, expected, mode
):
    open_page(page, served(viewer))
    press(page, mode)
    wait(page, "!document.querySelector('.stale')")
    clear_marks(page)
    selector = {"m": "#primary", "s": "#comparison", "b": "#swipe"}[mode]
    drop(page, files[0].rename(tmp_path / "new.png"), at=at, selector=selector)
    wait(page, MATCHED)
    names = tuple(f"{name}.png" for name in expected)
    assert tuple(image.name for image in viewer.both()) == names
    assert matched_names[-1] == names


def test_a_second_file_that_follows_at_once_is_not_matched_with_the_old_image(
    served, viewer, page, files, matched_names
):
    open_page(page, served(viewer))
    clear_marks(page)
    drop(page, files[0], at=LEFT)
    wait(page, "document.getElementById('drop-a').textContent.includes('left.png')")
    wait(page, "!document.getElementById('progress').hidden")
    assert text(page, "progress-text") == "Waiting for a second file before matching…"
    drop(page, files[1], at=RIGHT)
    wait(page, MATCHED)
    time.sleep(1.2)  # longer than the page waits for a second file
    assert matched_names == [("a.png", "b.png"), ("left.png", "right.png")]
    drop(page, files[2], at=LEFT)
    drop(page, files[3], at=RIGHT)  # while the first is uploaded
    wait(page, "document.getElementById('drop-b').textContent.includes('cropped.png')")
    wait(page, "document.getElementById('counts').textContent.includes('matches')")
    assert matched_names[2:] == [("camera.png", "cropped.png")]
    assert console_errors(page) == []


def test_a_file_that_follows_later_stops_the_matching_of_the_first(
    served, viewer, page, files, slow
):
    open_page(page, served(viewer))
    clear_marks(page)
    matched = slow(viewer, "matched")
    drop(page, files[0], at=LEFT)
    assert matched.started.wait(5)
    drop(page, files[1], at=RIGHT)
    assert matched.cancelled.wait(5)
    matched.proceed.set()
    wait(page, MATCHED)
    assert [image.name for image in viewer.both()] == ["left.png", "right.png"]


def test_other_files_are_refused_by_name(served, viewer, page, files, tmp_path):
    open_page(page, served(viewer))
    before = text(page, "counts")
    uploads = len([url for url in requested_urls(page) if "api/images" in url])
    drop(page, *files[:3])
    wait(page, "!document.getElementById('error').hidden")
    assert text(page, "error") == "3 files: choose one or two images."
    assert len([url for url in requested_urls(page) if "api/images" in url]) == uploads
    drop(page)
    assert "No file" in text(page, "error")
    notes = tmp_path / "notes.txt"
    notes.write_text("not an image")
    drop(page, files[0], notes)
    wait(page, "document.getElementById('error').textContent.includes('notes.txt')")
    drop(page, notes, at=LEFT)
    empty = tmp_path / "empty.jpg"
    empty.touch()
    page.set_input_files("#file-a", empty)
    wait(page, "document.getElementById('error').textContent.includes('empty.jpg')")
    large = tmp_path / "large.tif"
    with large.open("wb") as file:
        file.truncate(65_000_000)
    page.set_input_files("#file-a", large)
    wait(page, "document.getElementById('error').textContent.includes('large.tif')")
    assert "64 MB" in text(page, "error")
    assert [image.name for image in viewer.both()] == ["a.png", "b.png"]  # nothing is replaced
    assert text(page, "counts") == before
    assert hidden(page, "progress")
