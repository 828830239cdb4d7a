"""Reading image pairs with ground truth."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.bench import pair_data
from caloric.bench.correspondence import project


def test_layouts_are_recognized(tmp_path):
    homography = photographs.oxford_scene(tmp_path)
    pairs = pair_data.read(tmp_path)
    assert len(pairs) == 5
    np.testing.assert_allclose(pairs[0].truth, homography)
    points = tmp_path / "points" / "one"
    points.mkdir(parents=True)
    image = photographs.gray("camera", (200, 200))
    for k in "12":
        cv2.imwrite(str(points / f"{k}.png"), image)
    xy = np.random.default_rng(0).uniform(10, 190, (12, 2))
    np.savetxt(points / "points.txt", np.hstack([xy, xy + np.array([3, 5])]))
    (pair,) = pair_data.read(tmp_path / "points")
    np.testing.assert_allclose(project(pair.truth, xy), xy + np.array([3, 5]), atol=1e-6)
    photos = tmp_path / "photos"
    photos.mkdir()
    cv2.imwrite(str(photos / "a_1.png"), photographs.gray("coffee", (300, 200)))
    changed = pair_data.read(photos)
    assert len(changed) == pair_data.CHANGES
    # Warped back, the changed photograph agrees with the original in the common area.
    pair = changed[0]
    size = pair.first().shape[::-1]
    back = cv2.warpPerspective(pair.second(), np.linalg.inv(pair.truth), size)
    visible = cv2.warpPerspective(np.ones_like(pair.second()), np.linalg.inv(pair.truth), size) > 0
    assert np.corrcoef(back[visible], pair.first()[visible])[0, 1] > 0.8
    with pytest.raises(caloric.InputError, match="no such directory"):
        pair_data.read(tmp_path / "none")


def test_distances_are_errors_against_the_ground_truth():
    rng = np.random.default_rng(1)
    k = np.array([[500.0, 0, 320], [0, 510, 240], [0, 0, 1]])
    rotation = cv2.Rodrigues(np.array([0.02, 0.2, -0.05]))[0]
    a = pair_data.Camera(k, np.eye(3), np.zeros(3))
    b = pair_data.Camera(k, rotation, np.array([0.8, 0.1, 0.05]))
    world = rng.uniform((-2, -2, 4), (2, 2, 9), (80, 3))
    p, q = (
        z[:, :2] / z[:, 2:]
        for z in ((world - camera.center) @ camera.rotation.T @ k.T for camera in (a, b))
    )
    cameras = pair_data.Pair("x", "x", None, None, ("", ""), (a, b))
    assert pair_data.distances(cameras, p, q).max() < 1e-6
    assert np.median(pair_data.distances(cameras, p, q + 5)) > 0.5
    plane = pair_data.Pair("x", "x", None, None, ("", ""), np.eye(3))
    np.testing.assert_allclose(pair_data.distances(plane, p, p + np.array([3, 4])), 5)
