"""Cancellation of long operations in a browser, by Esc and by the button."""

import json

import numpy as np
import pytest

import photographs
from caloric.options import ExtractOptions
from caloric.runtime import progress
from caloric.view import server, session
from caloric.view.result import Settings
from encoded_images import encode, encoded_pair
from in_browser import (
    MATCHED,
    box,
    choose,
    click,
    console_errors,
    drop,
    hidden,
    open_page,
    pixels,
    press,
    text,
)
from tools.drills.browser import wait

SHOWN = "!document.getElementById('progress').hidden"
IDLE = "document.getElementById('progress').hidden && !document.querySelector('.stale')"


def cancel(page, by):
    """Cancel with Esc, with the mouse, or with the keyboard on the button."""
    wait(page, SHOWN)
    if by == "Escape":
        press(page, "Escape")
    elif by == "mouse":
        page.locator("#cancel").click()
    else:
        for _ in range(40):
            press(page, "Tab")
            if page.evaluate("document.activeElement.id") == "cancel":
                break
        press(page, "Enter")
        assert page.evaluate("document.activeElement.id") == "mode-matches"  # not lost
    assert hidden(page, "progress")


@pytest.mark.parametrize("by", ["Escape", "mouse", "keyboard"])
def test_cancelling_a_match_returns_to_the_previous_result(served, viewer, page, slow, by):
    open_page(page, served(viewer))
    before, shown = text(page, "counts"), pixels(page)
    matched = slow(viewer, "matched")
    choose(page, "descriptor", "heat")
    assert matched.started.wait(5)
    wait(page, "document.getElementById('progress-text').textContent.includes('tilt')")
    assert text(page, "progress-text") == "Matching with heat: simulated views, tilt 4"
    cancel(page, by)
    assert matched.cancelled.wait(1)  # on the server
    assert text(page, "counts") == before
    assert page.evaluate("document.getElementById('descriptor').value") == "caloric"
    np.testing.assert_array_equal(pixels(page), shown)
    assert text(page, "announcement") == "Cancelled"
    matched.proceed.set()
    choose(page, "descriptor", "heat")  # works again
    wait(page, MATCHED)
    assert "heat" in text(page, "counts")
    assert console_errors(page) == []


def test_the_first_match_can_be_cancelled_and_started_again(served, viewer, page, slow):
    matched = slow(viewer, "matched")
    page.goto(served(viewer))
    cancel(page, "Escape")
    assert matched.cancelled.wait(1)
    assert text(page, "counts") == "Matching cancelled"
    assert not hidden(page, "empty")
    matched.proceed.set()
    page.locator("#rematch").click()
    wait(page, MATCHED)
    assert hidden(page, "empty")


def test_cancelling_after_a_drop_returns_to_the_previous_images(
    served, viewer, page, slow, tmp_path
):
    open_page(page, served(viewer))
    before, shown, both = text(page, "counts"), pixels(page), viewer.both()
    paths = [tmp_path / "c.png", tmp_path / "d.png"]
    for path, data in zip(paths, encoded_pair()[::-1], strict=True):
        path.write_bytes(data)
    matched = slow(viewer, "matched")
    for files in (paths, paths[:1]):
        matched.started.clear()
        matched.proceed.clear()
        drop(page, *files, at=(0.2, 0.5))
        assert matched.started.wait(5)
        assert viewer.image("a").name == "c.png"
        page.evaluate("performance.clearMarks()")
        cancel(page, "Escape")
        assert matched.cancelled.wait(1)
        matched.proceed.set()  # for the summary of the previous result
        wait(page, MATCHED)
        assert viewer.both() == both
        assert text(page, "counts") == before
        assert "a.png" in text(page, "drop-a")
        np.testing.assert_array_equal(pixels(page), shown)
    drop(page, paths[0], at=(0.2, 0.5))  # cancelled before matching starts
    wait(page, "document.getElementById('progress-text').textContent.includes('second file')")
    cancel(page, "Escape")
    assert text(page, "counts") == "Not matched yet"
    wait(page, "document.getElementById('drop-a').textContent.includes('a.png')")
    wait(page, f"document.getElementById('counts').textContent === {json.dumps(before)}")
    assert console_errors(page) == []


@pytest.mark.parametrize("by", ["Escape", "mouse"])
def test_an_alignment_can_be_cancelled(served, viewer, page, slow, by):
    open_page(page, served(viewer))
    shown = pixels(page)
    aligned = slow(viewer, "aligned")
    press(page, "g")
    assert aligned.started.wait(5)
    cancel(page, by)
    assert aligned.cancelled.wait(1)
    assert hidden(page, "player")
    np.testing.assert_array_equal(pixels(page), shown)
    press(page, "g")
    press(page, "b")  # a change of the view cancels it as well
    wait(page, IDLE)
    assert not hidden(page, "swipe")
    press(page, "m")
    aligned.proceed.set()
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")
    press(page, "Escape")
    assert hidden(page, "player")
    assert console_errors(page) == []


@pytest.mark.parametrize("by", ["Escape", "mouse"])
def test_response_maps_can_be_cancelled(served, viewer, page, slow, by):
    open_page(page, served(viewer))
    press(page, "n", "r")
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    before = page.evaluate("document.getElementById('responses').innerHTML")
    responses = slow(server.details, "responses")
    press(page, "n", "r")
    assert responses.started.wait(5)
    cancel(page, by)
    assert responses.cancelled.wait(1)
    assert page.evaluate("document.getElementById('responses').innerHTML") == before
    assert not hidden(page, "drawer")  # Esc cancels first
    press(page, "Escape")
    assert hidden(page, "drawer")
    assert console_errors(page) == []


@pytest.mark.parametrize("by", ["Escape", "mouse"])
def test_a_comparison_can_be_cancelled(served, viewer, page, slow, by):
    open_page(page, served(viewer))
    before, shown = text(page, "counts"), pixels(page)
    matched = slow(viewer, "matched")
    press(page, "s")
    assert matched.started.wait(5)
    wait(page, "document.getElementById('progress-text').textContent.includes('SIFT')")
    cancel(page, by)
    assert matched.cancelled.wait(1)
    assert hidden(page, "comparison")
    assert text(page, "counts") == before
    np.testing.assert_array_equal(pixels(page), shown)
    matched.proceed.set()
    press(page, "s")
    wait(page, "document.querySelector('#comparison .name').textContent.includes('inliers')")
    matched.started.clear()
    matched.cancelled.clear()
    matched.proceed.clear()
    names = text(page, "primary"), text(page, "comparison")
    choose(page, "threshold", "5")  # both are matched again
    assert matched.started.wait(5)
    cancel(page, by)
    assert (text(page, "primary"), text(page, "comparison")) == names
    assert page.evaluate("document.getElementById('threshold').value") == ""
    assert not hidden(page, "comparison")
    assert console_errors(page) == []


def test_saving_a_page_can_be_cancelled(served, viewer, page, slow):
    open_page(page, served(viewer))
    saved = slow(viewer, "page")
    click(page, "save-page")
    assert saved.started.wait(5)
    cancel(page, "Escape")
    assert saved.cancelled.wait(1)
    assert console_errors(page) == []


def test_a_real_match_through_all_views_stops_within_a_second(served, page, monkeypatch):
    viewer = session.Session(options=ExtractOptions(max_features=2000))
    for side, name in (("a", "coffee"), ("b", "camera")):  # unrelated
        data = encode(photographs.gray(name, (640, 480)))
        viewer.set_image(side, session.LoadedImage.of(f"{name}.png", data))
    raised = []
    compute = viewer.matched

    def matched(settings):
        try:
            return compute(settings)
        except progress.CancellationError:
            raised.append(settings)
            raise

    monkeypatch.setattr(viewer, "matched", matched)
    page.goto(served(viewer))
    wait(page, "document.getElementById('progress-text').textContent.includes('tilt 2')", 60)
    press(page, "Escape")
    assert text(page, "counts") == "Matching cancelled"
    page.wait_for_timeout(1000)
    assert raised == [Settings()]


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_progress_fits_and_its_button_is_large_enough(
    served, viewer, page_of, slow, width, theme
):
    page = page_of(width, 800)
    page.emulate_media(color_scheme=theme)
    open_page(page, served(viewer))
    matched = slow(viewer, "matched")
    choose(page, "descriptor", "caloric-unlearned")
    wait(page, "document.getElementById('progress-text').textContent.includes('tilt 4')")
    left, _, across, down = box(page, "#progress")
    assert left >= 0
    assert left + across <= width
    assert down < 120
    assert min(box(page, "#cancel")[2:]) >= 24
    at = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).id",
        [sum(v) / 2 for v in zip(*edges(page, "#cancel"), strict=True)],
    )
    assert at == "cancel"  # nothing covers it
    matched.proceed.set()
    wait(page, MATCHED)


def edges(page, selector):
    """The top left and bottom right corner of an element."""
    left, top, width, height = box(page, selector)
    return (left, top), (left + width, top + height)
