"""How the page looks and reads in a real browser: themes, sizes, the drawer, a screen reader."""

import time
from pathlib import Path

import pytest

from in_browser import MATCHED, attribute, box, choose, hidden, opened, pixels, press, text
from tools.drills.browser import wait

CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(served, showing, page, theme):
    page.emulate_media(color_scheme=theme)
    opened(page, served(showing))
    assert (page.evaluate(luminance("body")) > 0.8) == (theme == "light")
    press(page, "n", "r")
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    page.evaluate("document.getElementById('error').textContent = 'an error'")
    page.evaluate("document.getElementById('error').hidden = false")
    everything = [("", 60), ("document.getElementById('save').click()", 60)]
    everything += [("document.getElementById('saving').hidePopover(); "
                    "document.getElementById('help').showModal()", 90)]  # fmt: skip
    for action, least in everything:
        page.evaluate(action or "0")
        found = page.evaluate(CONTRAST)
        assert found["texts"] >= least
        assert found["worst"][0] >= 4.5, found["worst"]
    page.evaluate("document.getElementById('help').close()")
    press(page, "s")
    wait(page, "document.querySelector('#beside .name').textContent.includes('inliers')")
    assert page.evaluate(CONTRAST)["worst"][0] >= 4.5
    press(page, "b")
    assert page.evaluate(CONTRAST)["worst"][0] >= 4.5
    press(page, "t", "t")  # from that of the system to dark, to light
    assert attribute(page, "theme", "aria-label") == "Theme: light"
    assert page.evaluate(luminance("body")) > 0.8
    page.reload()
    wait(page, MATCHED)
    assert attribute(page, "theme", "aria-label") == "Theme: light"  # it is remembered


def luminance(selector):
    """The lightness of a background, from 0 to 1."""
    return (
        f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
        ".match(/[\\d.]+/g).slice(0, 3).reduce((sum, v) => sum + v / 765, 0)"
    )


def test_the_drawer_opens_beside_the_pictures(served, showing, page):
    opened(page, served(showing))
    page.set_viewport_size({"width": 1280, "height": 800})
    wide = box(page, "#own")[2]
    assert wide == 1280
    press(page, "d")
    assert attribute(page, "details", "aria-expanded") == "true"
    assert box(page, "#own")[2] + box(page, "#drawer")[2] == 1280  # nothing is covered
    result = text(page, "result")
    assert all(part in result for part in ("Confidence", "> 0.99", "Views", "none needed"))
    press(page, "d")
    assert box(page, "#own")[2] == wide
    pixels(page)  # the pictures are where they belong again
    left, top, width, height = box(page, "#own")
    page.mouse.click(left + width / 4, top + height / 2)  # a place has its response maps
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    assert not hidden(page, "drawer")
    choose(page, "views", "2")
    wait(page, MATCHED)
    assert "found at tilt 2" in text(page, "counts")
    assert "--views 2" in text(page, "command")


def test_nothing_plays_where_motion_is_not_wanted(served, showing, page):
    page.emulate_media(reduced_motion="reduce")
    opened(page, served(showing), first_use=True)
    time.sleep(0.5)
    assert hidden(page, "player")
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")
    assert text(page, "sigma") == "σ 0 px"  # the end, at once
    assert attribute(page, "play", "aria-label") == "Play"


@pytest.mark.parametrize(("width", "height", "share"), [(390, 844, 0.75), (2560, 1440, 0.9)])
def test_narrow_and_wide_windows(served, showing, page_of, width, height, share):
    page = page_of(width, height)
    opened(page, served(showing))
    for action in ("", "d", "d", "s", "b", "m", "g"):
        press(page, *action)
        wait(page, "!document.querySelector('.stale')")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        outside = page.evaluate(
            "[...document.querySelectorAll('header *, footer *, .stage .name, #zoom *, #player *')]"
            ".filter((e) => { const b = e.getBoundingClientRect(); return e.checkVisibility() &&"
            " (b.left < 0 || b.right > innerWidth || b.top < 0 || b.bottom > innerHeight); })"
            ".map((e) => e.id || e.textContent)"
        )
        assert outside == []
    wait(page, "!document.getElementById('player').hidden")
    press(page, "Escape")
    shown = box(page, "#own")
    assert shown[2] * shown[3] > share * width * height
    ends = pixels(page, "#own .pictures")[..., :3]
    assert (ends.max(-1) > 40).mean() > 0.6  # the photographs fill most of it
    covered = page.evaluate(
        "[...document.querySelectorAll('header button')].filter((e) => { const b ="
        " e.getBoundingClientRect(), at = document.elementFromPoint(b.left + b.width / 2,"
        " b.top + b.height / 2); return !e.contains(at); }).map((e) => e.id)"
    )
    assert covered == []


def test_what_is_read_aloud(served, showing, page):
    opened(page, served(showing))
    press(page, "d")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree if not n["ignored"]
    ]
    controls = {"button", "combobox", "slider", "spinbutton", "checkbox", "textbox", "image"}
    assert [role for role in roles if role[0] in controls and not role[1].strip()] == []
    assert any(r == "image" and "inliers" in name for r, name in roles)
    for name in ("Descriptor", "Geometry", "Views", "Ratio test"):
        assert any(found.startswith(name) for _, found in roles), name
    stops = []
    for _ in range(60):  # Tab reaches everything, in the order of the page
        press(page, "Tab")
        stops.append(page.evaluate("document.activeElement.id"))
    needed = [
        "mode-matches", "mode-swipe", "mode-beside", "align", "save", "theme", "details", "ask",
        "file-a", "closer", "descriptor", "next", "respond", "lines", "inliers", "outliers",
    ]  # fmt: skip
    assert [stops.index(name) for name in needed] == sorted(stops.index(name) for name in needed)
