"""The page of a model in a browser: points, cameras, selections."""

import numpy as np
import pytest
from PIL import Image

from caloric.view import model_server
from caloric.view.model import ShownImage, ShownModel
from in_browser import console_errors, hidden, press, requested_urls, text
from tools.drills import view as benchmark
from tools.drills.browser import wait

LOADED = "performance.getEntriesByName('loaded').length > 0"
SELECTED = "performance.getEntriesByName('selected').length > {}"


@pytest.fixture
def address(tmp_path):
    """The address of a page with 400 points on a plane in front of three cameras."""
    pytest.importorskip("uvicorn")
    random = np.random.default_rng(0)
    xyz = np.concatenate([random.uniform(-1, 1, (400, 2)), np.full((400, 1), 3.0)], 1)
    images = []
    for i in range(3):
        Image.new("RGB", (160, 120), (40 * i, 90, 200)).save(tmp_path / f"{i}.png")
        center = np.array([0.5 * i - 0.5, 0, 0])
        xy = 100 * (xyz - center)[:, :2] / 3 + (80, 60)
        images.append(
            ShownImage(f"{i}.png", (160, 120), 100.0, np.eye(3), center, xy, np.arange(400))
        )
    colors = np.full((400, 3), (250, 40, 30), np.uint8)
    up = np.array([0.0, -1, 0])
    model = ShownModel(
        "plane",
        "400 points",
        np.arange(400),
        xyz,
        colors,
        np.ones(400),
        tuple(images),
        up,
        tmp_path,
    )
    application = model_server.application(model, ["127.0.0.1", "localhost"])
    with benchmark.served_application(application) as url:
        yield url


def test_points_images_and_tracks_are_shown(address, page_of):
    page = page_of(1280, 800)
    page.goto(address)
    wait(page, LOADED)
    assert text(page, "title") == "plane"
    assert page.locator("#images li").count() == 3
    page.locator("#images li button").nth(1).click()
    wait(page, SELECTED.format(0))
    assert "400 points; shares points with 2 images" in text(page, "selection")
    page.locator("#selection li button").first.click()
    wait(page, "document.getElementById('photograph').ariaLabel.startsWith('400 common points')")
    press(page, "Escape")
    wait(page, "document.getElementById('selection').hidden")
    assert not hidden(page, "images")
    if not hidden(page, "message"):
        pytest.skip("no WebGL in this browser")
    press(page, "c")
    box = page.locator("#canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for step in range(40):  # some point is near one of these positions
        page.mouse.click(x + 6 * step - 120, y)
        page.wait_for_timeout(30)
        if "Point" in text(page, "selection") and not hidden(page, "selection"):
            break
    assert "Observed in 3 images" in text(page, "selection")
    assert all(url.startswith((address, "data:", "blob:")) for url in requested_urls(page))
    assert console_errors(page) == []


def test_the_theme_and_narrow_pages(address, page_of):
    for width in (390, 1920):
        page = page_of(width, 900)
        page.goto(address)
        wait(page, LOADED)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        press(page, "t")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
