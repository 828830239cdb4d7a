"""The page: what its server answers, and what a real browser shows of it."""

import json
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.view import server, session
from tools.drills import browser as chrome
from tools.drills import view as benchmark

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")


def encoded(image, suffix=".png"):
    return cv2.imencode(suffix, image)[1].tobytes()


def two():
    image = photographs.colour("coffee")[:300, :400, ::-1].copy()
    turned = photographs.warp(image, photographs.similarity(1.1, 12, (5, -8), (200, 150)))
    return encoded(image), encoded(turned)


@pytest.fixture
def served():
    """Starts a server and gives its address; stopped after the test."""
    with ExitStack() as running:
        yield lambda showing: running.enter_context(benchmark.served(showing))


@pytest.fixture
def showing():
    found = session.Session(most=400)
    for side, data in zip("ab", two(), strict=True):
        found.put(side, session.Picture.of(f"{side}.png", data))
    return found


def ask(address, method="GET", data=None, **headers):
    request = urllib.request.Request(address, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_matches_are_those_of_the_library(showing):
    found = session.summary(showing.matched("caloric", "homography"))
    a, b = (caloric.extract(showing.picture(s).grey, max_features=400) for s in "ab")
    expected = caloric.match(a, b, ratio=0.8)
    ratios = np.array(found["ratio"])
    assert (np.diff(ratios) >= 0).all()
    assert abs((ratios < 0.8).sum() - len(expected)) <= 1
    inliers = np.array(found["residual"])[ratios <= 0.9] < 2
    assert inliers.mean() > 0.8


def test_details_responses_and_paths(showing):
    found = showing.matched("sift", "homography")
    one = session.detail(showing, found, 0)
    assert len(one["a"]["descriptor"]) == 128
    assert one["a"]["patch"].startswith("data:image/png;base64,")
    apart = np.linalg.norm(np.subtract(one["a"]["descriptor"], one["b"]["descriptor"]))
    assert apart == pytest.approx(one["distance"], abs=2e-3)
    maps = session.responses(showing.picture("a"), 200, 150, 4)["maps"]
    assert [len(maps[name]) for name in ("sift", "heat")] == [8, 8]
    path = session.aligned(showing, 200, 150, 96)
    assert path["converged"]
    truth = photographs.similarity(1.1, 12, (5, -8), (200, 150))
    left, top, _ = path["template"]
    corner = truth @ [left, top, 1]
    assert np.hypot(*(np.array(path["steps"][-1]["corners"][0]) - corner)) < 1.5
    assert path["steps"][0]["sigma"] > path["steps"][-1]["sigma"]


def test_patches_are_turned_and_scaled_with_their_frames():
    image = np.zeros((100, 100), np.float32)
    image[40:60, 50:90] = 1  # to the right of the middle
    right = session.patch(image, np.array([[4.0, 0, 50], [0, 4, 50]]), 6)
    assert right[:, 26:].mean() > 5 * right[:, :22].mean()
    down = session.patch(image, np.array([[0, 4.0, 50], [-4, 0, 50]]), 6)  # +v points right
    assert down[26:].mean() > 5 * down[:22].mean()
    assert (session.patch(image, np.array([[4.0, 0, 900], [0, 4, 900]]), 6) == 0).all()


def test_the_server_answers_and_says_what_is_wrong(served, showing, monkeypatch):
    address = served(showing)
    status, page, headers = ask(address + "/")
    assert status == 200
    assert b"<canvas" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    state = json.loads(ask(address + "/api/state")[1])
    assert state["pictures"]["a"] == {"name": "a.png", "width": 400, "height": 300}
    assert "heat" in state["descriptors"]
    for wrong, part in (
        ("/api/detail?match=99999", "matches"), ("/api/detail?match=x", "number"),
        ("/api/matches?descriptor=magic", "magic"), ("/api/matches?model=magic", "unknown model"),
        ("/api/picture/c", "a or b"), ("/api/responses/a?x=-5&y=0&s=3", "outside"),
        ("/api/crop/a?x=9999&y=0&w=5&h=5", "outside"), ("/api/align?x=nan&y=1&size=64", "number"),
    ):  # fmt: skip
        status, text, _ = ask(address + wrong)
        assert status == 400, wrong
        assert part in json.loads(text)["error"], wrong
    assert ask(address + "/static/../session.py")[0] == 404
    assert ask(address + "/static/%2e%2e/session.py")[0] == 404
    assert ask(address + "/", Host="evil.example")[0] == 400
    status, text, _ = ask(
        address + "/api/picture/a", "PUT", b"no picture", **{"x-name": "b%C3%A9.jpg"}
    )
    assert (status, json.loads(text)["error"].split(":")[0]) == (400, "bé.jpg")
    monkeypatch.setattr(server, "UPLOAD", 1000)
    status, text, _ = ask(address + "/api/picture/a", "PUT", b"x" * 2000)
    assert "larger" in json.loads(text)["error"]
    assert showing.picture("a").name == "a.png"


def test_what_was_made_of_a_picture_goes_with_it(showing):
    showing.matched("sift", "homography")
    assert len(showing._features) == 2
    before = showing.picture("a")
    showing.put("a", session.Picture.of("c.png", two()[1]))
    assert len(showing._features) == 1
    assert not showing._matched
    assert all(before not in key for key in showing._features)


def test_a_flat_place_has_no_path():
    flat = np.full((200, 200), 120, np.uint8)
    flat[:, 150:] = photographs.grey("camera", (200, 200))[:, 150:]
    showing = session.Session()
    for side in "ab":
        showing.put(side, session.Picture.of(f"{side}.png", encoded(flat)))
    found = session.aligned(showing, 60, 60, 64)
    assert found["steps"] == []
    assert not found["converged"]


def test_patches_show_the_same_surroundings_for_every_descriptor(showing):
    found = showing.matched("caloric", "homography")
    row = found.indices[0][0]
    wide = session.patch(showing.picture("a").grey, found.features[0].frames.maps[row], 10.0)
    shown = session.detail(showing, found, 0)["a"]["patch"]
    assert shown == session._uri(session._grey_byte(wide))


@pytest.mark.parametrize(("host", "port"), [("::1", 0), ("127.0.0.1", 99999), ("10.99.99.99", 0)])
def test_an_address_that_cannot_be_used_is_told(host, port, showing):
    with pytest.raises(caloric.InputError, match="port"):
        server.serve(showing, host, port, print)


def test_pictures_of_any_kind_are_shown():
    for image in (
        np.full((20, 30), 60000, np.uint16), np.zeros((20, 30, 4), np.uint8),
        np.zeros((1, 1), np.uint8),
    ):  # fmt: skip
        picture = session.Picture.of("x.png", encoded(image))
        assert picture.colour.shape == (*image.shape[:2], 3)
        assert session.preview(picture)[:2] == b"\xff\xd8"
    red = np.zeros((4, 5, 4), np.uint16)
    red[..., 2] = red[..., 3] = 65535  # BGRA, as OpenCV writes it
    assert (session.Picture.of("red.png", encoded(red)).colour == [255, 0, 0]).all()
    with pytest.raises(caloric.InputError, match=r"x\.jpg"):
        session.Picture.of("x.jpg", b"")


browser = pytest.mark.skipif(chrome.chromium() is None, reason="no Chromium")


@pytest.fixture
def page():
    pytest.importorskip("websocket")
    with chrome.page() as opened:
        yield opened


def centre(page):
    return page.run(
        "(() => { const b = document.getElementById('canvas').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )


def counts(page):
    return page.run("document.getElementById('counts').textContent")


MATCHED = "performance.getEntriesByName('matched').length > 0"


@browser
def test_a_browser_shows_matches(served, showing, page):
    address = served(showing)
    page.go(address + "/")
    page.wait(MATCHED)
    before = counts(page)
    assert "inliers of" in before
    asked = len(page.requested())
    page.run("(() => { const r = document.getElementById('ratio'); r.value = 0.6;"
             " r.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert counts(page) != before  # at once, without the server
    assert len(page.requested()) == asked
    left, top, width, height = centre(page)
    for k in range(60):
        page.mouse("mouseMoved", left + width * (0.1 + 0.005 * k), top + height * (0.3 + 0.006 * k))
    page.wait("document.querySelectorAll('#detail img').length >= 4")
    assert "ratio to the second" in page.run("document.getElementById('detail').textContent")
    page.mouse("mouseWheel", left + width / 4, top + height / 2, deltaX=0, deltaY=-600)
    page.click(left + width / 4, top + height / 2)
    page.wait("document.querySelectorAll('.responses img').length > 16")
    page.wait("document.querySelector('.path') !== null")
    page.run("document.getElementById('canvas').focus()")
    shown = "document.querySelector('#detail .match .facts b')?.textContent"
    was = page.run(shown)
    page.key("n", "n")
    page.wait(f"{shown} !== {json.dumps(was)}")
    page.key("p", "p")
    page.wait(f"{shown} === {json.dumps(was)}")
    assert page.run("document.querySelector('.responses') !== null")  # a match does not hide them
    page.run("(() => { const d = document.getElementById('descriptor'); d.value = 'heat';"
             " performance.clearMarks(); d.dispatchEvent(new Event('change')); })()")  # fmt: skip
    page.wait(MATCHED)
    assert all(url.startswith((address, "data:", "blob:")) for url in page.requested())
    assert page.complaints() == []


DROP = """(async () => {
  const data = Uint8Array.from(atob(%s), (c) => c.charCodeAt(0));
  const file = new File([data], %s), transfer = new DataTransfer();
  transfer.items.add(file);
  const box = document.getElementById('canvas').getBoundingClientRect();
  const at = { clientX: box.left + box.width * %s, clientY: box.top + box.height * %s };
  document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, ...at }));
})()"""


def drop(page, data, name, x, y):
    import base64

    text = json.dumps(base64.b64encode(data).decode())
    page.run(DROP % (text, json.dumps(name), x, y))


@browser
def test_pictures_are_dropped_on_a_narrow_screen(served, page):
    showing = session.Session(most=200)
    page.size(390, 800)
    page.go(served(showing) + "/")
    page.wait("document.getElementById('drop-a') && !document.getElementById('drop-a').hidden")
    page.wait("document.getElementById('descriptor').options.length > 3")
    drop(page, b"no picture", "bad.jpg", 0.5, 0.2)
    page.wait("!document.getElementById('error').hidden")
    assert "bad.jpg" in page.run("document.getElementById('error').textContent")
    a, b = two()
    drop(page, a, "ä.png", 0.5, 0.2)
    page.wait("document.getElementById('drop-a').classList.contains('loaded')")
    drop(page, b, "b.png", 0.5, 0.8)
    page.wait(MATCHED)
    assert showing.picture("a").name == "ä.png"
    assert "inliers of" in counts(page)
    assert page.run("document.documentElement.scrollWidth") <= 390


@browser
def test_fifty_megapixels_are_shown(served, page):
    rng = np.random.default_rng(0)
    small = rng.integers(0, 255, (40, 60), np.uint8)
    large = cv2.resize(small, (8700, 5800), interpolation=cv2.INTER_CUBIC)
    showing = session.Session(most=100)
    address = served(showing)
    for side in "ab":
        status, _, _ = ask(f"{address}/api/picture/{side}", "PUT", encoded(large, ".jpg"))
        assert status == 200
    began = time.monotonic()
    assert ask(f"{address}/api/responses/a?x=4000&y=3000&s=1500")[0] == 200
    assert time.monotonic() - began < 20  # on a shrunk copy: at full size it took minutes
    page.go(address + "/")
    page.wait("performance.getEntriesByName('shown').length > 0", 60)
    left, top, width, height = centre(page)
    for _ in range(6):
        page.mouse("mouseWheel", left + width / 4, top + height / 2, deltaX=0, deltaY=-900)
    until = time.monotonic() + 30
    while not any("/api/crop/a" in url for url in page.requested()):
        assert time.monotonic() < until
        page.run("0")
        time.sleep(0.1)


@browser
def test_a_page_in_one_file_is_shown_without_a_server(tmp_path, page):
    for name, data in zip(("a b</script>.png", "b.png"), two(), strict=True):
        (tmp_path / name.replace("/", "∕")).write_bytes(data)
    first, second = sorted(tmp_path.iterdir())
    out = tmp_path / "page.html"
    arguments = ["match", str(first), str(second), "--html", str(out), "--max-features", "300"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    text = out.read_text("utf-8")
    assert "http://" not in text
    assert "https://" not in text
    page.go(out.as_uri())
    page.wait(MATCHED)
    assert "inliers of" in counts(page)
    page.run("document.getElementById('canvas').focus()")
    page.key("n", "n")
    page.wait("document.querySelectorAll('#detail img').length === 2")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in page.requested())
    assert page.complaints() == []
