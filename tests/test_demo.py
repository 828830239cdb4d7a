"""The demo: views with known geometry, the kernels, and the command."""

import io
import re

import cv2
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import caloric
from caloric import cli, demo, synthetic
from paths import README


@pytest.mark.slow
def test_the_command_writes_a_page(tmp_path):
    result = CliRunner().invoke(cli.app, ["demo", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    out = result.stdout
    correct = {line.split()[0]: int(line.split()[1]) for line in out.splitlines()[:2]}
    assert correct["caloric"] > correct["sift"] > 0
    assert cv2.imread(str(tmp_path / "out" / "demo.png")).std() > 20
    oblique = re.search(r"SIFT: (\d+) of \d+ matches correct; Caloric: (\d+) of", out)
    shown = re.search(
        r"SIFT finds (\d+) correct match, Caloric ([\d,]+)\]", README.read_text("utf-8")
    )
    assert int(oblique[1]) < int(shown[1]) + 10
    assert int(oblique[2]) == pytest.approx(int(shown[2].replace(",", "")), rel=0.1)
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert page.count("<img") == 3
    assert str(tmp_path / "out" / "index.html") in out


def test_the_homography_of_the_changed_view_is_correct():
    """Measured with refined matches; ECC does not tolerate the shading."""
    view = demo.changed_view()
    pair = caloric.match_images(view.original, view.changed, model="homography")
    mapped = cv2.perspectiveTransform(pair.points_a[None], view.homography)[0]
    assert len(pair) > 100
    assert np.abs(np.median(mapped - pair.points_b, 0)).max() < 0.05


def test_a_score_counts_matches_within_three_pixels():
    view = synthetic.View(*np.zeros((2, 90, 120, 3), np.uint8), synthetic.translation([4.0, 0]))
    xy = np.array([[10.0, 10], [50, 40], [80, 60]])
    matched = xy + np.array([[4.0, 0], [6.5, 0], [4, 3.5]])
    score = demo.Score("some", xy, matched, view.errors(xy, matched))
    assert score.correct == 2
    assert str(score) == "some: 2 of 3 matches correct"
    assert score.drawn(view).std() > 5


def test_kernels_widen_with_the_distance_from_the_center():
    """The area that an entry covers: constant for SIFT, larger near the border for the others."""
    patch = np.zeros((40, 40), np.uint8)
    inner, outer = demo._ENTRIES.values()
    for name in demo.KERNELS:
        areas = [demo._kernel_panel(name, patch, x).astype(int).sum() for x in (inner, outer)]
        if name == "sift":
            assert areas[1] <= 1.02 * areas[0]
        else:
            assert areas[1] > 1.1 * areas[0], name


def test_the_outline_moves_to_the_template():
    result = demo.aligned()
    corners = np.array([[0.0, 0], [139, 0], [139, 139], [0, 139]])
    motion = synthetic.similarity(0.8, -30, (42, 34), (220.0, 130.0))
    expected = (corners + np.array([150, 60])) @ motion[:, :2].T + motion[:, 2]
    transform = result.alignment.transform
    aligned = corners @ transform[:, :2].T + transform[:, 2]
    assert np.linalg.norm(aligned - expected, axis=1).max() < 1
    frames = Image.open(io.BytesIO(demo.animation(result)))
    assert frames.n_frames > 20
    assert frames.size == (3 * 300 + 16, 326)
