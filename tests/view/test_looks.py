"""The appearance of the page in a browser: themes, sizes, the drawer, accessibility."""

from pathlib import Path

import pytest

from in_browser import MATCHED, attribute, box, choose, hidden, open_page, pixels, press, text
from tools.drills.browser import wait

CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(served, viewer, page, theme):
    page.emulate_media(color_scheme=theme)
    open_page(page, served(viewer))
    assert (page.evaluate(brightness("body")) > 0.8) == (theme == "light")
    press(page, "n", "r")
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    page.evaluate("document.getElementById('error').textContent = 'an error'")
    page.evaluate("document.getElementById('error').hidden = false")
    steps = [("", 60), ("document.getElementById('save').click()", 60)]
    steps += [("document.getElementById('saving').hidePopover(); "
                    "document.getElementById('help').showModal()", 90)]  # fmt: skip
    for action, min_texts in steps:
        page.evaluate(action or "0")
        contrast = page.evaluate(CONTRAST)
        assert contrast["texts"] >= min_texts
        assert contrast["worst"][0] >= 4.5, contrast["worst"]
    page.evaluate("document.getElementById('help').close()")
    press(page, "s")
    wait(page, "document.querySelector('#comparison .name').textContent.includes('inliers')")
    assert page.evaluate(CONTRAST)["worst"][0] >= 4.5
    press(page, "b")
    assert page.evaluate(CONTRAST)["worst"][0] >= 4.5
    press(page, "t", "t")  # from system to dark to light
    assert attribute(page, "theme", "aria-label") == "Theme: light"
    assert page.evaluate(brightness("body")) > 0.8
    page.reload()
    wait(page, MATCHED)
    assert attribute(page, "theme", "aria-label") == "Theme: light"  # remembered


def brightness(selector):
    """A script that returns the brightness of a background, from 0 to 1."""
    return (
        f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
        ".match(/[\\d.]+/g).slice(0, 3).reduce((sum, v) => sum + v / 765, 0)"
    )


def test_the_drawer_does_not_cover_the_images(served, viewer, page):
    open_page(page, served(viewer))
    page.set_viewport_size({"width": 1280, "height": 800})
    full = box(page, "#primary")[2]
    assert full == 1280
    press(page, "d")
    assert attribute(page, "details", "aria-expanded") == "true"
    assert box(page, "#primary")[2] + box(page, "#drawer")[2] == 1280
    result = text(page, "result")
    assert all(part in result for part in ("Confidence", "> 0.99", "Views", "not used"))
    press(page, "d")
    assert box(page, "#primary")[2] == full
    pixels(page)  # waits until the images are drawn again
    left, top, width, height = box(page, "#primary")
    page.mouse.click(left + width / 4, top + height / 2)  # shows the response maps there
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    assert not hidden(page, "drawer")
    choose(page, "views", "2")
    wait(page, MATCHED)
    assert "simulated views up to tilt 2" in text(page, "counts")
    assert "--views 2" in text(page, "command")


def test_nothing_is_animated_with_reduced_motion(served, viewer, page):
    page.emulate_media(reduced_motion="reduce")
    open_page(page, served(viewer))
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")
    assert text(page, "sigma") == "σ 0 px"  # the last step
    assert attribute(page, "play", "aria-label") == "Play"


@pytest.mark.parametrize(("width", "height", "share"), [(390, 844, 0.75), (2560, 1440, 0.9)])
def test_nothing_overflows_in_narrow_and_wide_windows(
    served, viewer, page_of, width, height, share
):
    page = page_of(width, height)
    open_page(page, served(viewer))
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
    stage = box(page, "#primary")
    assert stage[2] * stage[3] > share * width * height
    images = pixels(page, "#primary .images")[..., :3]
    assert (images.max(-1) > 40).mean() > 0.6  # the images fill most of it
    covered = page.evaluate(
        "[...document.querySelectorAll('header button')].filter((e) => { const b ="
        " e.getBoundingClientRect(), at = document.elementFromPoint(b.left + b.width / 2,"
        " b.top + b.height / 2); return !e.contains(at); }).map((e) => e.id)"
    )
    assert covered == []


def test_controls_have_accessible_names_and_a_tab_order(served, viewer, page):
    open_page(page, served(viewer))
    press(page, "d")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    roles = [
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree if not n["ignored"]
    ]
    controls = {"button", "combobox", "slider", "spinbutton", "checkbox", "textbox", "image"}
    assert [role for role in roles if role[0] in controls and not role[1].strip()] == []
    assert any(r == "image" and "inliers" in name for r, name in roles)
    for name in ("Descriptor", "Geometry", "Views", "Ratio test"):
        assert any(label.startswith(name) for _, label in roles), name
    stops = []
    for _ in range(60):  # Tab reaches every control, in the order of the page
        press(page, "Tab")
        stops.append(page.evaluate("document.activeElement.id"))
    needed = [
        "mode-matches", "mode-swipe", "mode-compare", "align", "save", "theme", "details",
        "show-help", "file-a", "zoom-in", "descriptor", "next", "respond", "lines", "inliers",
        "outliers",
    ]  # fmt: skip
    assert [stops.index(name) for name in needed] == sorted(stops.index(name) for name in needed)
