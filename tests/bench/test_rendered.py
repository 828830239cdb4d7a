"""Rendered views: their overlap is known, and they are written once."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.bench import rendered
from caloric.bench.rendered import Rendering, Task


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "photographs"
    path.mkdir()
    for name in ("camera", "coffee"):
        cv2.imwrite(str(path / f"{name}.png"), photographs.gray(name, (900, 700)))
    return path


def test_views_match_where_their_corners_say(directory):
    views = [rendered.view(str(directory), 0, number) for number in range(2)]
    pair = caloric.match_images(*views, model="homography", max_features=500)
    assert pair.geometry.confidence > 0.9
    w, h = rendered.SIZE
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float32)
    to_texture = [
        cv2.getPerspectiveTransform(corners, rendered._corners(0, i).astype(np.float32))
        for i in range(2)
    ]
    expected = np.linalg.inv(to_texture[1]) @ to_texture[0]
    grid = np.float32([[[200, 150]], [[400, 150]], [[300, 300]]])
    a, b = (cv2.perspectiveTransform(grid, m) for m in (expected, pair.geometry.matrix))
    # The corners are those of pixels, half a pixel from their centers.
    assert np.abs(a - b).max() < 1


def test_overlapping_pairs_are_of_one_scene():
    rendering = Rendering("nowhere", 25)
    pairs = list(rendering.overlapping())
    names = {rendering.name(i) for i in range(25)}
    assert len(names) == 25
    assert pairs
    assert all(a < b and {a, b} <= names for a, b in pairs)
    assert {a.rpartition("-")[0] == b.rpartition("-")[0] for a, b in pairs} == {True}
    assert len(set(pairs)) == len(pairs)
    # Three scenes of 10, 10 and 5 views have 45, 45 and 10 pairs.
    assert 80 < len(pairs) <= 100


def test_images_are_written_once(directory, tmp_path):
    task = Task(Rendering(str(directory), 3), str(tmp_path / "out"), range(3))
    assert rendered.write(task) == 3
    files = sorted((tmp_path / "out").rglob("*.jpg"))
    assert len(files) == 3
    content = [path.read_bytes() for path in files]
    files[1].unlink()
    assert rendered.write(task) == 1
    assert [path.read_bytes() for path in files] == content
