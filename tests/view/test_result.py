"""A result as JSON for the page, and its settings."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.view import result, session, standalone
from caloric.view.result import Settings
from encoded_images import encode, encoded_pair


def test_the_result_is_that_of_match_images(viewer):
    settings = Settings("sift", "affine", "none", 0.8, 3.0)
    summary = result.summary(viewer.matched(settings))
    a, b = (viewer.image(side).gray for side in "ab")
    expected = caloric.match_images(
        a, b, "sift", model="affine", views=None, ratio=0.8, threshold=3.0, max_features=400
    )
    p, q = expected.all_points()
    for side, points in (("a", p), ("b", q)):
        shown = np.stack([summary[side]["x"], summary[side]["y"]], 1)
        np.testing.assert_allclose(shown, points, atol=0.006)
    assert summary["inlier"] == expected.geometry.inliers.astype(int).tolist()
    assert summary["confidence"] == expected.geometry.confidence
    assert summary["reason"] == expected.geometry.reason
    assert summary["matrix"] == expected.geometry.matrix.tolist()
    assert (summary["level"], summary["refined"]) == (1, True)


def test_an_unreliable_geometry_has_no_matrix(viewer):
    viewer.set_image(
        "b", session.LoadedImage.of("c.png", encode(photographs.gray("camera", (300, 300))))
    )
    summary = viewer.summary(Settings(views="none", ratio=0.95))
    assert summary["inlier"]
    assert not summary["reliable"]
    assert summary["reason"].startswith("not reliable")
    assert (summary["matrix"], summary["square"]) == (None, None)
    assert '"alignment": null' in standalone.render(viewer.both(), summary, None, "two")


def test_settings_are_checked_and_part_of_the_command(viewer):
    for query, message in (
        ({"descriptor": "magic"}, "magic"), ({"model": "essential"}, "unknown model"),
        ({"views": "3"}, "choice of views"), ({"ratio": "much"}, "ratio must be a number"),
        ({"threshold": "inf"}, "threshold must be a number"),
    ):  # fmt: skip
        with pytest.raises(caloric.InputError, match=message):
            Settings.of(query)
    settings = Settings.of({"views": "4", "ratio": "1", "threshold": "2.5", "other": "x"})
    assert settings.arguments()["views"] == 4
    assert settings.arguments()["ratio"] is None
    assert Settings("sift", views="none").arguments()["views"] is None
    viewer.set_image("a", session.LoadedImage.of("a.png", encoded_pair()[0], "some where/a.png"))
    command = viewer.summary(Settings("sift", threshold=2.5))["command"]
    assert command == (
        "caloric match 'some where/a.png' b.png --descriptor sift --threshold 2.5"
        " --max-features 400 --html matches.html"
    )
