"""The behavior of the page in a browser: keys, states, views, files, failures."""

import json
import shlex
import threading
import time

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.options import ExtractOptions
from caloric.view import session
from encoded_images import encode, encoded_pair, request
from in_browser import (
    MATCHED,
    attribute,
    box,
    choose,
    click,
    console_errors,
    hidden,
    open_page,
    pixels,
    press,
    requested_urls,
    text,
)
from tools.drills.browser import wait


def test_propagated_matches_are_shown_separately(served, viewer, page):
    open_page(page, served(viewer))
    shown = "document.getElementById('propagated-text').textContent"
    assert int(page.evaluate(shown).split()[1].replace(",", "")) > 0
    with_all = pixels(page)
    press(page, "a")
    assert attribute(page, "propagated", "aria-pressed") == "false"
    without = pixels(page)
    press(page, "a")
    press(page, "i")  # the propagated ones alone
    alone = pixels(page)
    for one, other in ((with_all, without), (with_all, alone), (without, alone)):
        assert np.abs(one.astype(int) - other).max() > 0


def test_keys_work_immediately_and_are_listed(served, viewer, page):
    address = served(viewer)
    open_page(page, address)
    assert page.evaluate("document.activeElement === document.body")  # nothing has the focus
    assert hidden(page, "drawer")
    press(page, "n")
    wait(page, "document.querySelectorAll('#detail img').length === 4")
    first = text(page, "detail")
    press(page, "n")
    wait(page, f"document.getElementById('detail').textContent !== {json.dumps(first)}")
    press(page, "p")
    wait(page, f"document.getElementById('detail').textContent === {json.dumps(first)}")
    assert "residual" in text(page, "announcement")  # for screen readers
    press(page, "o")
    assert attribute(page, "outliers", "aria-pressed") == "true"
    before = pixels(page)
    press(page, "+")
    assert np.abs(before.astype(int) - pixels(page)).max() > 0
    press(page, "r")
    wait(page, "document.querySelectorAll('#responses img').length === 17")
    press(page, "Escape")
    assert hidden(page, "drawer")
    press(page, "?")
    listed = page.evaluate("[...document.querySelectorAll('#help kbd')].map((k) => k.textContent)")
    assert set("npgrmbsiaodt0?+") <= set(listed)
    assert page.evaluate("document.getElementById('help').open")
    page.evaluate("document.getElementById('help').close()")
    page.evaluate(
        "document.getElementById('details').click(); document.getElementById('ratio').focus()"
    )
    press(page, "d")  # typed into the field
    assert not hidden(page, "drawer")
    page.evaluate(
        "(() => { const e = document.getElementById('descriptor'); e.focus();"
        " e.dispatchEvent(new PointerEvent('pointerdown')); e.value = 'heat';"
        " performance.clearMarks(); e.dispatchEvent(new Event('change')); })()"
    )
    wait(page, MATCHED)
    press(page, "d")  # after a choice by mouse, shortcuts work again
    assert hidden(page, "drawer")
    assert all(url.startswith((address, "data:", "blob:")) for url in requested_urls(page))
    assert console_errors(page) == []


def test_a_stale_result_is_grayed_out_while_matching(served, viewer, page, monkeypatch):
    open_page(page, served(viewer))
    press(page, "d")
    before = text(page, "counts")
    assert "Caloric" in before
    shown = pixels(page)
    assert shown[..., 3].max() == 255
    proceed, compute = threading.Event(), viewer.matched
    monkeypatch.setattr(
        viewer, "matched", lambda settings: (proceed.wait(20), compute(settings))[1]
    )
    choose(page, "descriptor", "heat")
    wait(page, "document.getElementById('primary').classList.contains('stale')")
    assert text(page, "counts") == "Matching with heat…"
    wait(page, "!document.getElementById('progress').hidden")
    assert text(page, "progress-text") == "Matching with heat…"
    assert "grayscale" in page.evaluate(
        "getComputedStyle(document.querySelector('#primary .matches')).filter"
    )
    assert "221" not in text(page, "result")
    assert page.evaluate("document.getElementById('mode-swipe').disabled")
    press(page, "n")  # has no effect
    proceed.set()
    wait(page, MATCHED)
    assert not page.evaluate("document.getElementById('primary').classList.contains('stale')")
    assert "heat" in text(page, "counts")
    assert hidden(page, "progress")
    assert console_errors(page) == []


def test_a_failure_is_reported_and_the_old_result_removed(served, viewer, page, monkeypatch):
    address = served(viewer)
    open_page(page, address)

    def fail(settings):
        raise caloric.InputError("no such thing")

    monkeypatch.setattr(viewer, "matched", fail)
    choose(page, "descriptor", "heat")
    wait(page, "!document.getElementById('error').hidden")
    assert text(page, "error") == "Matching failed: no such thing"
    assert text(page, "counts") == "Matching failed: no such thing"
    assert pixels(page)[..., 3].max() == 0
    assert page.evaluate("document.getElementById('mode-swipe').disabled")
    page.context.set_offline(True)
    choose(page, "descriptor", "sift")
    wait(page, "document.getElementById('error').textContent.includes('does not respond')")


def test_images_without_features_are_explained(served, page):
    viewer = session.Session()
    for side in "ab":
        data = encode(np.full((200, 300), 90, np.uint8))
        viewer.set_image(side, session.LoadedImage.of(f"{side}.png", data))
    open_page(page, served(viewer))
    assert "no features" in text(page, "empty")
    assert not hidden(page, "empty")
    assert text(page, "counts").startswith("No matches")
    press(page, *"npgrosbi0+")
    time.sleep(0.3)
    assert hidden(page, "swipe")
    assert console_errors(page) == []


def test_an_unreliable_result_is_reported(served, page):
    viewer = session.Session(options=ExtractOptions(max_features=300))
    for side, name in (("a", "coffee"), ("b", "camera")):
        data = encode(photographs.gray(name, (200, 160)))
        viewer.set_image(side, session.LoadedImage.of(f"{name}.png", data))
    open_page(page, served(viewer))
    assert "not reliable, even with simulated views up to tilt 2" in text(page, "counts")
    assert page.evaluate("document.getElementById('mode-swipe').disabled")


def test_swipe_warps_the_first_image_onto_the_second(served, viewer, page):
    open_page(page, served(viewer))
    press(page, "b")
    assert hidden(page, "primary")
    before = pixels(page, "#swipe canvas")

    def drag_divider(share):
        left, top, width, height = box(page, "#swipe")
        page.mouse.move(*middle(page))
        page.mouse.down()
        page.mouse.move(left + share * width, top + height / 2)
        page.mouse.up()
        assert float(attribute(page, "divider", "aria-valuenow")) == pytest.approx(100 * share)
        return pixels(page, "#swipe canvas")[..., :3].astype(float)

    second, first = drag_divider(0), drag_divider(1)
    h, w = second.shape[:2]
    inner = (slice(h // 3, 2 * h // 3), slice(w // 3, 2 * w // 3))
    difference = np.abs(first[inner] - second[inner]).mean()
    shifted = np.abs(first[inner] - np.roll(second, 20, 1)[inner]).mean()
    assert difference < 5 < 2 * difference + 5 < shifted
    assert np.abs(before[..., :3] - first).max() > 50
    press(page, "ArrowLeft")
    assert float(attribute(page, "divider", "aria-valuenow")) == 96
    choose(page, "model", "affine")  # stays in this mode
    wait(page, MATCHED)
    assert not hidden(page, "swipe")
    choose(page, "model", "fundamental")  # cannot warp an image
    wait(page, MATCHED)
    wait(page, "document.getElementById('swipe').hidden")
    assert not hidden(page, "primary")
    assert console_errors(page) == []


def middle(page):
    left, top, width, height = box(page, "#divider")
    return left + width / 2, top + height / 2


def test_one_click_compares_with_sift(served, viewer, page):
    open_page(page, served(viewer))
    click(page, "mode-compare")
    wait(page, "document.querySelector('#comparison .name').textContent.includes('inliers')")
    names = page.evaluate(
        "[...document.querySelectorAll('.stage > .name')].map((e) => e.textContent)"
    )
    expected = [
        f"{title}: {len(viewer.matched(session.Settings(name)))} inliers"
        for title, name in (("Caloric", "caloric"), ("SIFT", "sift"))
    ]
    assert names[:2] == expected
    assert pixels(page, "#comparison .matches")[..., 3].max() == 255

    def both():
        names = ("#primary .images", "#comparison .images")
        first, second = (pixels(page, name).astype(int) for name in names)
        h, w = np.minimum(first.shape, second.shape)[:2]
        return first[:h, :w], second[:h, :w]

    before, same = both()
    assert np.abs(before - same).mean() < 1  # the same images in the same view
    press(page, "+", "+")
    zoomed, follower = both()
    assert np.abs(before - zoomed).mean() > 5
    assert np.abs(zoomed - follower).mean() < 1
    choose(page, "descriptor", "sift")
    wait(page, MATCHED)
    assert text(page, "mode-compare") == "Compare with Caloric"
    press(page, "s")
    assert hidden(page, "comparison")
    choose(page, "threshold", "5")
    wait(page, MATCHED)
    press(page, "s")  # the comparison has the same settings
    count = len(viewer.matched(session.Settings(threshold=5.0)))
    wait(
        page,
        f"document.querySelector('#comparison .name').textContent === 'Caloric: {count} inliers'",
    )
    assert console_errors(page) == []


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_first_view_is_the_matches(served, viewer, page_of, width):
    page = page_of(width, 800)
    open_page(page, served(viewer))  # the first use: nothing is stored in the browser
    requests = requested_urls(page)
    first = pixels(page)
    time.sleep(1.5)  # longer than an alignment takes
    assert hidden(page, "player")
    np.testing.assert_array_equal(pixels(page), first)
    assert not any("align" in url for url in requests + requested_urls(page))
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")
    assert attribute(page, "play", "aria-label") == "Pause"
    click(page, "play")
    press(page, "Escape")
    assert hidden(page, "player")
    np.testing.assert_array_equal(pixels(page), first)


def download(page, name, directory):
    """Click an element and return the path of the file that it downloads."""
    with page.expect_download() as event:
        click(page, name)
    path = directory / event.value.suggested_filename
    event.value.save_as(path)
    return path


def test_images_pages_and_commands_are_saved(served, viewer, page, tmp_path, monkeypatch):
    open_page(page, served(viewer))
    choose(page, "descriptor", "sift")
    wait(page, MATCHED)
    press(page, "s")
    wait(page, "document.querySelector('#comparison .name').textContent.includes('inliers')")
    pixels(page)
    click(page, "save")
    image_file = download(page, "save-image", tmp_path)
    assert image_file.name == "matches.png"
    image = cv2.imread(str(image_file))
    assert image.shape[1] == 1000
    assert image.std() > 20
    page_file = download(page, "save-page", tmp_path)
    assert page_file.name == "matches.html"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    click(page, "copy")
    wait(page, "document.getElementById('copy').textContent === 'Copied'")
    counts, command = text(page, "counts"), text(page, "command")
    page.goto(page_file.as_uri())  # contains both results
    wait(page, MATCHED)
    assert text(page, "counts") == counts
    press(page, "s")
    wait(page, "document.querySelector('#comparison .name').textContent.startsWith('Caloric: ')")
    monkeypatch.chdir(tmp_path)
    for name, data in zip(("a.png", "b.png"), encoded_pair(), strict=True):
        (tmp_path / name).write_bytes(data)
    result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert f"{counts.split()[0]} inliers" in result.output


def test_large_images_are_shown_quickly(served, page):
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (40, 60), np.uint8)
    large = cv2.resize(small, (8700, 5800), interpolation=cv2.INTER_CUBIC)
    address = served(session.Session({"a": session.LoadedImage.of_pixels("large.png", large)}))
    start = time.monotonic()
    assert request(f"{address}/api/responses/a?x=4000&y=3000&s=1500")[0] == 200
    assert time.monotonic() - start < 20  # minutes without downsampling
    page.goto(address + "/")
    wait(page, "performance.getEntriesByName('shown').length > 0", 60)
    left, top, width, height = box(page, "#canvas")
    page.mouse.move(left + width / 4, top + height / 4)
    with page.expect_request("**/api/crop/a*"):
        for _ in range(6):
            page.mouse.wheel(0, -900)


def test_a_self_contained_page_works_without_a_server(tmp_path, page):
    for name, data in zip(("a b</script>.png", "b.png"), encoded_pair(), strict=True):
        (tmp_path / name.replace("/", "∕")).write_bytes(data)
    first, second = sorted(tmp_path.iterdir())
    out = tmp_path / "page.html"
    arguments = ["match", str(first), str(second), "--html", str(out), "--max-features", "300"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    content = out.read_text("utf-8")
    assert "http://" not in content
    assert "https://" not in content
    page.goto(out.as_uri())
    wait(page, MATCHED)
    assert f"{text(page, 'counts').split()[0]} inliers" in result.output
    time.sleep(0.5)
    assert hidden(page, "player")  # the matches are the first view here too
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")  # the file contains the alignment
    press(page, "Escape", "n")
    wait(page, "document.querySelectorAll('#detail img').length === 2")
    assert page.evaluate("document.getElementById('mode-compare').disabled")
    press(page, "b")
    assert not hidden(page, "swipe")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requested_urls(page))
    assert console_errors(page) == []
