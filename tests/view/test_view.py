"""The page without a browser: what is shown, and what its server answers."""

import json
import shlex

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.view import details, images, result, server, session, standalone
from caloric.view.result import Settings
from pair_of_pictures import ask, encoded, pair


def test_the_result_is_that_of_the_library(showing):
    settings = Settings("sift", "affine", "none", 0.8, 3.0)
    found = result.summary(showing.matched(settings))
    a, b = (showing.picture(side).grey for side in "ab")
    expected = caloric.match_images(
        a, b, "sift", model="affine", views=None, ratio=0.8, threshold=3.0, max_features=400
    )
    p, q = expected.all_points()
    for side, points in (("a", p), ("b", q)):
        shown = np.stack([found[side]["x"], found[side]["y"]], 1)
        np.testing.assert_allclose(shown, points, atol=0.006)
    assert found["inlier"] == expected.geometry.inliers.astype(int).tolist()
    assert found["confidence"] == expected.geometry.confidence
    assert found["matrix"] == expected.geometry.matrix.tolist()
    assert (found["level"], found["refined"]) == (1, True)


def test_the_page_in_one_file_shows_what_the_command_computed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in zip(("a b.png", "b.png"), pair(), strict=True):
        (tmp_path / name).write_bytes(data)
    options = ["--max-features", "300", "--no-refine", "--seed", "7", "--views", "2"]
    words = ["match", "a b.png", "b.png", "--json", "out.json", "--html", "page.html", *options]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    computed = json.loads((tmp_path / "out.json").read_text())
    text = (tmp_path / "page.html").read_text("utf-8")
    data = text.split('id="still">')[1].split("</script>")[0]
    shown = json.loads(data)["own"]
    rows = np.array(computed["matches"])
    places = np.stack([shown[side][axis] for side in "ab" for axis in "xy"], 1)
    np.testing.assert_allclose(places, rows[:, :4], atol=0.006)
    assert shown["inlier"] == [int(row[5]) for row in computed["matches"]]
    for name in ("level", "confidence", "matrix", "model", "features", "refined"):
        assert shown[name] == computed[name], name
    assert shown["level"] == 2
    typed = shlex.split(shown["command"])
    assert typed[:4] == ["caloric", "match", "a b.png", "b.png"]
    assert sorted(typed[4:]) == sorted(words[3:])


def test_a_geometry_that_is_not_reliable_has_no_matrix(showing):
    showing.put(
        "b", session.LoadedImage.of("c.png", encoded(photographs.grey("camera", (300, 300))))
    )
    found = showing.summary(Settings(views="none", ratio=0.95))
    assert found["inlier"]
    assert not found["reliable"]
    assert (found["matrix"], found["place"]) == (None, None)
    assert '"path": null' in standalone.written(showing.both(), found, None, "two")


def test_what_is_chosen_is_checked_and_typed(showing):
    for given, part in (
        ({"descriptor": "magic"}, "magic"), ({"model": "essential"}, "unknown model"),
        ({"views": "3"}, "choice of views"), ({"ratio": "much"}, "ratio must be a number"),
        ({"threshold": "inf"}, "threshold must be a number"),
    ):  # fmt: skip
        with pytest.raises(caloric.InputError, match=part):
            Settings.of(given)
    chosen = Settings.of({"views": "4", "ratio": "1", "threshold": "2.5", "other": "x"})
    assert chosen.arguments()["views"] == 4
    assert chosen.arguments()["ratio"] is None
    assert Settings("sift", views="none").arguments()["views"] is None
    showing.put("a", session.LoadedImage.of("a.png", pair()[0], "some where/a.png"))
    command = showing.summary(Settings("sift", threshold=2.5))["command"]
    assert command == (
        "caloric match 'some where/a.png' b.png --descriptor sift --threshold 2.5"
        " --max-features 400 --html matches.html"
    )


def test_details_responses_and_paths(showing):
    found = showing.matched(Settings("sift"))
    one = details.detail(showing.both(), found, 0)
    assert len(one["a"]["descriptor"]) == 128
    assert one["a"]["patch"].startswith("data:image/png;base64,")
    apart = np.linalg.norm(np.subtract(one["a"]["descriptor"], one["b"]["descriptor"]))
    assert apart == pytest.approx(found.matches.distances[0], abs=2e-3)
    maps = details.responses(showing.picture("a"), 200, 150, 4)["maps"]
    assert [len(maps[name]) for name in ("sift", "heat")] == [8, 8]
    path = showing.aligned(200, 150, 96)
    assert path["converged"]
    truth = photographs.similarity(1.1, 12, (5, -8), (200, 150))
    left, top, _ = path["template"]
    corner = truth @ [left, top, 1]
    assert np.hypot(*(np.array(path["steps"][-1]["corners"][0]) - corner)) < 1.5
    assert path["steps"][0]["sigma"] > path["steps"][-1]["sigma"]
    x, y, size = result.place(found)
    assert showing.aligned(x, y, size)["converged"]  # the one that plays by itself


def test_patches_are_turned_and_scaled_with_their_frames():
    image = np.zeros((100, 100), np.float32)
    image[40:60, 50:90] = 1  # to the right of the middle
    right = details.patch(image, np.array([[4.0, 0, 50], [0, 4, 50]]), 6)
    assert right[:, 26:].mean() > 5 * right[:, :22].mean()
    down = details.patch(image, np.array([[0, 4.0, 50], [-4, 0, 50]]), 6)  # +v points right
    assert down[26:].mean() > 5 * down[:22].mean()
    assert (details.patch(image, np.array([[4.0, 0, 900], [0, 4, 900]]), 6) == 0).all()


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
        ("/api/page?beside=magic", "magic"), ("/api/matches?views=3", "views"),
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
    showing.matched(Settings("sift"))
    assert showing.knows(Settings("sift"))
    before = showing.picture("a")
    showing.put("a", session.LoadedImage.of("c.png", pair()[1]))
    assert not showing.knows(Settings("sift"))
    assert all(before not in key for key in showing._results)


def test_a_flat_place_has_no_path():
    flat = np.full((200, 200), 120, np.uint8)
    flat[:, 150:] = photographs.grey("camera", (200, 200))[:, 150:]
    showing = session.Session()
    for side in "ab":
        showing.put(side, session.LoadedImage.of(f"{side}.png", encoded(flat)))
    found = showing.aligned(60, 60, 64)
    assert found["steps"] == []
    assert not found["converged"]


def test_patches_show_the_same_surroundings_for_every_descriptor(showing):
    found = showing.matched(Settings())
    for picture, maps, side in zip(showing.both(), result.frames(found), "ab", strict=True):
        wide = details.patch(picture.grey, maps[0], 10.0)
        shown = details.detail(showing.both(), found, 0)[side]["patch"]
        assert shown == details.png(details.grey_byte(wide))


@pytest.mark.parametrize(("host", "port"), [("::1", 0), ("127.0.0.1", 99999), ("10.99.99.99", 0)])
def test_an_address_that_cannot_be_used_is_told(host, port, showing):
    with pytest.raises(caloric.InputError, match="port"):
        server.serve(showing, host, port, print)


def test_pictures_of_any_kind_are_shown():
    for image in (
        np.full((20, 30), 60000, np.uint16), np.zeros((20, 30, 4), np.uint8),
        np.zeros((1, 1), np.uint8),
    ):  # fmt: skip
        picture = session.LoadedImage.of("x.png", encoded(image))
        assert picture.colour.shape == (*image.shape[:2], 3)
        assert images.preview(picture)[:2] == b"\xff\xd8"
    red = np.zeros((4, 5, 4), np.uint16)
    red[..., 2] = red[..., 3] = 65535  # BGRA, as OpenCV writes it
    assert (session.LoadedImage.of("red.png", encoded(red)).colour == [255, 0, 0]).all()
    with pytest.raises(caloric.InputError, match=r"x\.jpg"):
        session.LoadedImage.of("x.jpg", b"")


def test_alignments_in_reduced_images_have_the_coordinates_of_the_full_ones():
    large = cv2.resize(photographs.grey("camera"), (2400, 2400), interpolation=cv2.INTER_CUBIC)
    image = images.LoadedImage.of_pixels("large.png", large)
    path = details.aligned((image, image), 1100, 600, 256)
    left, top, size = path["template"]
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1) + (left, top)
    np.testing.assert_allclose(path["steps"][-1]["corners"], corners, atol=0.15)
