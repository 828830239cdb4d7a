"""A result as the page shows it, and its settings."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.view import result, session, standalone
from caloric.view.result import Settings
from pair_of_pictures import encoded, pair


def test_the_result_is_that_of_the_library(showing):
    settings = Settings("sift", "affine", "none", 0.8, 3.0)
    found = result.summary(showing.matched(settings))
    a, b = (showing.picture(side).gray for side in "ab")
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


def test_an_unreliable_geometry_has_no_matrix(showing):
    showing.put(
        "b", session.LoadedImage.of("c.png", encoded(photographs.gray("camera", (300, 300))))
    )
    found = showing.summary(Settings(views="none", ratio=0.95))
    assert found["inlier"]
    assert not found["reliable"]
    assert (found["matrix"], found["place"]) == (None, None)
    assert '"path": null' in standalone.written(showing.both(), found, None, "two")


def test_settings_are_checked_and_part_of_the_command(showing):
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
