"""What the page does in a real browser: keys, states, views, files, failures."""

import base64
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
from in_browser import (
    MATCHED,
    attribute,
    box,
    choose,
    click,
    complaints,
    hidden,
    opened,
    pixels,
    press,
    requested,
    text,
)
from pair_of_pictures import ask, encoded, pair
from tools.drills.browser import wait


def test_keys_work_on_load_and_are_listed(served, showing, page):
    address = served(showing)
    opened(page, address)
    assert page.evaluate("document.activeElement === document.body")  # nothing was clicked
    assert hidden(page, "drawer")
    press(page, "n")
    wait(page, "document.querySelectorAll('#detail img').length === 4")
    first = text(page, "detail")
    press(page, "n")
    wait(page, f"document.getElementById('detail').textContent !== {json.dumps(first)}")
    press(page, "p")
    wait(page, f"document.getElementById('detail').textContent === {json.dumps(first)}")
    assert "residual" in text(page, "announced")  # for who does not see the line
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
    assert set("npgrmbsiodt0?+") <= set(listed)
    assert page.evaluate("document.getElementById('help').open")
    page.evaluate("document.getElementById('help').close()")
    page.evaluate(
        "document.getElementById('details').click(); document.getElementById('ratio').focus()"
    )
    press(page, "d")  # is typed there
    assert not hidden(page, "drawer")
    page.evaluate(
        "(() => { const e = document.getElementById('descriptor'); e.focus();"
        " e.dispatchEvent(new PointerEvent('pointerdown')); e.value = 'heat';"
        " performance.clearMarks(); e.dispatchEvent(new Event('change')); })()"
    )
    wait(page, MATCHED)
    press(page, "d")  # who has chosen by mouse is back on the page
    assert hidden(page, "drawer")
    assert all(url.startswith((address, "data:", "blob:")) for url in requested(page))
    assert complaints(page) == []


def test_a_stale_result_is_grayed_and_says_so(served, showing, page, monkeypatch):
    opened(page, served(showing))
    press(page, "d")
    before = text(page, "counts")
    assert "Caloric" in before
    shown = pixels(page)
    assert shown[..., 3].max() == 255
    go, compute = threading.Event(), showing.matched
    monkeypatch.setattr(showing, "matched", lambda settings: (go.wait(20), compute(settings))[1])
    choose(page, "descriptor", "heat")
    wait(page, "document.getElementById('own').classList.contains('stale')")
    assert text(page, "counts") == "matching with heat …"
    assert text(page, "doing") == "matching with heat …"
    assert not hidden(page, "pill")
    assert "grayscale" in page.evaluate(
        "getComputedStyle(document.querySelector('#own .matches')).filter"
    )
    assert "221" not in text(page, "result")
    assert page.evaluate("document.getElementById('mode-swipe').disabled")
    press(page, "n")  # has nothing to show
    go.set()
    wait(page, MATCHED)
    assert not page.evaluate("document.getElementById('own').classList.contains('stale')")
    assert "heat" in text(page, "counts")
    assert hidden(page, "pill")
    assert complaints(page) == []


def test_failures_are_reported_and_nothing_old_stays(served, showing, page, monkeypatch):
    address = served(showing)
    opened(page, address)

    def fails(settings):
        raise caloric.InputError("the core melted")

    monkeypatch.setattr(showing, "matched", fails)
    choose(page, "descriptor", "heat")
    wait(page, "!document.getElementById('error').hidden")
    assert text(page, "error") == "Not matched: the core melted"
    assert text(page, "counts") == "Not matched: the core melted"
    assert pixels(page)[..., 3].max() == 0
    assert page.evaluate("document.getElementById('mode-swipe').disabled")
    page.context.set_offline(True)
    choose(page, "descriptor", "sift")
    wait(page, "document.getElementById('error').textContent.includes('does not respond')")


def test_no_matches_are_explained(served, page):
    showing = session.Session()
    for side in "ab":
        picture = encoded(np.full((200, 300), 90, np.uint8))
        showing.put(side, session.LoadedImage.of(f"{side}.png", picture))
    opened(page, served(showing))
    assert "no features" in text(page, "nothing")
    assert not hidden(page, "nothing")
    assert text(page, "counts").startswith("No matches")
    press(page, *"npgrosbi0+")
    time.sleep(0.3)
    assert hidden(page, "swipe")
    assert complaints(page) == []


def test_an_unreliable_result_is_reported(served, page):
    showing = session.Session(options=ExtractOptions(max_features=300))
    for side, name in (("a", "coffee"), ("b", "camera")):
        data = encoded(photographs.gray(name, (200, 160)))
        showing.put(side, session.LoadedImage.of(f"{name}.png", data))
    opened(page, served(showing), first_use=True)
    assert "not reliable" in text(page, "counts")
    assert "no reliable match with simulated views up to tilt 8" in text(page, "counts")
    assert page.evaluate("document.getElementById('mode-swipe').disabled")
    assert hidden(page, "player")  # there is nothing to play


def test_swipe_shows_the_first_picture_where_the_second_is(served, showing, page):
    opened(page, served(showing))
    press(page, "b")
    assert hidden(page, "own")
    before = pixels(page, "#swipe canvas")

    def divide(share):
        left, top, width, height = box(page, "#swipe")
        page.mouse.move(*middle(page))
        page.mouse.down()
        page.mouse.move(left + share * width, top + height / 2)
        page.mouse.up()
        assert float(attribute(page, "divider", "aria-valuenow")) == pytest.approx(100 * share)
        return pixels(page, "#swipe canvas")[..., :3].astype(float)

    second, first = divide(0), divide(1)
    h, w = second.shape[:2]
    inner = (slice(h // 3, 2 * h // 3), slice(w // 3, 2 * w // 3))
    apart = np.abs(first[inner] - second[inner]).mean()
    moved = np.abs(first[inner] - np.roll(second, 20, 1)[inner]).mean()
    assert apart < 5 < 2 * apart + 5 < moved
    assert np.abs(before[..., :3] - first).max() > 50
    press(page, "ArrowLeft")
    assert float(attribute(page, "divider", "aria-valuenow")) == 96
    choose(page, "model", "affine")  # another geometry, in the same place
    wait(page, MATCHED)
    assert not hidden(page, "swipe")
    choose(page, "model", "fundamental")  # which moves no picture
    wait(page, MATCHED)
    wait(page, "document.getElementById('swipe').hidden")
    assert not hidden(page, "own")
    assert complaints(page) == []


def middle(page):
    left, top, width, height = box(page, "#divider")
    return left + width / 2, top + height / 2


def test_sift_is_compared_after_one_click(served, showing, page):
    opened(page, served(showing))
    click(page, "mode-beside")
    wait(page, "document.querySelector('#beside .name').textContent.includes('inliers')")
    names = page.evaluate(
        "[...document.querySelectorAll('.stage > .name')].map((e) => e.textContent)"
    )
    expected = [
        f"{title}: {len(showing.matched(session.Settings(name)))} inliers"
        for title, name in (("Caloric", "caloric"), ("SIFT", "sift"))
    ]
    assert names[:2] == expected
    assert pixels(page, "#beside .matches")[..., 3].max() == 255

    def both():
        names = ("#own .pictures", "#beside .pictures")
        first, second = (pixels(page, name).astype(int) for name in names)
        h, w = np.minimum(first.shape, second.shape)[:2]
        return first[:h, :w], second[:h, :w]

    before, same = both()
    assert np.abs(before - same).mean() < 1  # one picture, seen alike
    press(page, "+", "+")
    moved, along = both()
    assert np.abs(before - moved).mean() > 5
    assert np.abs(moved - along).mean() < 1
    choose(page, "descriptor", "sift")
    wait(page, MATCHED)
    assert text(page, "mode-beside") == "Compare Caloric"
    press(page, "s")
    assert hidden(page, "beside")
    choose(page, "threshold", "5")
    wait(page, MATCHED)
    press(page, "s")  # what stands beside has the same settings
    wide = len(showing.matched(session.Settings(threshold=5.0)))
    wait(page, f"document.querySelector('#beside .name').textContent === 'Caloric: {wide} inliers'")
    assert complaints(page) == []


def test_the_alignment_plays_once_by_itself(served, showing, page):
    address = served(showing)
    opened(page, address, first_use=True)
    wait(page, "!document.getElementById('player').hidden")
    first = text(page, "sigma")
    wait(page, f"document.getElementById('sigma').textContent !== {json.dumps(first)}")
    wait(page, "document.getElementById('player').hidden", 15)  # and makes way for the matches
    page.reload()
    wait(page, MATCHED)
    time.sleep(0.4)
    assert hidden(page, "player")
    press(page, "g")
    wait(page, "!document.getElementById('player').hidden")
    assert attribute(page, "play", "aria-label") == "Pause"
    click(page, "play")
    press(page, "Escape")
    assert hidden(page, "player")


def downloaded(page, name, directory):
    """The file that a click on an element saves."""
    with page.expect_download() as download:
        click(page, name)
    path = directory / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_what_is_shown_can_be_saved_and_made_again(served, showing, page, tmp_path, monkeypatch):
    opened(page, served(showing))
    choose(page, "descriptor", "sift")
    wait(page, MATCHED)
    press(page, "s")
    wait(page, "document.querySelector('#beside .name').textContent.includes('inliers')")
    pixels(page)
    click(page, "save")
    picture = downloaded(page, "save-picture", tmp_path)
    assert picture.name == "matches.png"
    image = cv2.imread(str(picture))
    assert image.shape[1] == 1000
    assert image.std() > 20
    written = downloaded(page, "save-page", tmp_path)
    assert written.name == "matches.html"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    click(page, "copy")
    wait(page, "document.getElementById('copy').textContent === 'Copied'")
    counts, command = text(page, "counts"), text(page, "command")
    page.goto(written.as_uri())  # with both results
    wait(page, MATCHED)
    assert text(page, "counts") == counts
    press(page, "s")
    wait(page, "document.querySelector('#beside .name').textContent.startsWith('Caloric: ')")
    monkeypatch.chdir(tmp_path)
    for name, data in zip(("a.png", "b.png"), pair(), strict=True):
        (tmp_path / name).write_bytes(data)
    result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert f"{counts.split()[0]} inliers" in result.output


DROP = """(async () => {
  const data = Uint8Array.from(atob(%s), (c) => c.charCodeAt(0));
  const file = new File([data], %s), transfer = new DataTransfer();
  transfer.items.add(file);
  const box = document.getElementById('canvas').getBoundingClientRect();
  const at = { clientX: box.left + box.width * %s, clientY: box.top + box.height * %s };
  document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, ...at }));
})()"""


def drop(page, data, name, x, y):
    content = json.dumps(base64.b64encode(data).decode())
    page.evaluate(DROP % (content, json.dumps(name), x, y))


def test_pictures_are_dropped_on_a_narrow_screen(served, page_of):
    showing = session.Session(options=ExtractOptions(max_features=200))
    page = page_of(390, 800)
    page.goto(served(showing) + "/")
    wait(page, "document.getElementById('descriptor')?.options.length > 3")
    assert not hidden(page, "drop-a")
    assert "Two images are needed" in text(page, "counts")
    drop(page, b"no picture", "bad.jpg", 0.5, 0.2)
    wait(page, "!document.getElementById('error').hidden")
    assert "bad.jpg" in text(page, "error")
    a, b = pair()
    drop(page, a, "ä.png", 0.5, 0.2)
    wait(page, "document.getElementById('drop-a').classList.contains('loaded')")
    drop(page, b, "b.png", 0.5, 0.9)
    wait(page, MATCHED)
    assert showing.picture("a").name == "ä.png"
    assert "inliers" in text(page, "counts")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_fifty_megapixels_are_shown(served, page):
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (40, 60), np.uint8)
    large = cv2.resize(small, (8700, 5800), interpolation=cv2.INTER_CUBIC)
    address = served(session.Session({"a": session.LoadedImage.of_pixels("large.png", large)}))
    began = time.monotonic()
    assert ask(f"{address}/api/responses/a?x=4000&y=3000&s=1500")[0] == 200
    assert time.monotonic() - began < 20  # on a shrunk copy: at full size it took minutes
    page.goto(address + "/")
    wait(page, "performance.getEntriesByName('shown').length > 0", 60)
    left, top, width, height = box(page, "#canvas")
    page.mouse.move(left + width / 4, top + height / 4)
    with page.expect_request("**/api/crop/a*"):
        for _ in range(6):
            page.mouse.wheel(0, -900)


def test_a_page_in_one_file_is_shown_without_a_server(tmp_path, page):
    for name, data in zip(("a b</script>.png", "b.png"), pair(), strict=True):
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
    wait(page, "!document.getElementById('player').hidden")  # its alignment is in the file
    press(page, "Escape", "n")
    wait(page, "document.querySelectorAll('#detail img').length === 2")
    assert page.evaluate("document.getElementById('mode-beside').disabled")
    press(page, "b")
    assert not hidden(page, "swipe")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in requested(page))
    assert complaints(page) == []
