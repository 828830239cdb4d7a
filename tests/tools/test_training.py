"""Scenes with known cameras, on which descriptors are chosen."""

import json

import cv2
import numpy as np
import pytest

import photographs
from caloric import InputError
from caloric.descriptor import recipes
from tools import training


def write_strecha(directory):
    """Write three images of a slanted plane at depth 4; image 0 is the photograph itself."""
    (directory / "images").mkdir(parents=True)
    k = np.array([[700.0, 0, 256], [0, 700, 256], [0, 0, 1]])
    image, cameras = photographs.gray("camera", (512, 512)), {}
    normal, depth = np.array([0.2, 0.1, 1.0]), 4.0
    for i in range(3):
        rotation = cv2.Rodrigues(np.array([0.0, 0.06 * i, 0.02 * i]))[0]
        center = np.array([0.3 * i, 0.05 * i, 0.0])
        plane_map = rotation - np.outer(rotation @ center, normal) / depth
        homography = k @ plane_map @ np.linalg.inv(k)
        cv2.imwrite(
            str(directory / "images" / f"{i}.png"),
            cv2.warpPerspective(image, homography, (512, 512)),
        )
        cameras[f"{i}.png"] = {
            "K": k.tolist(), "R_world_to_cam": rotation.tolist(), "centre": center.tolist()
        }  # fmt: skip
    (directory / "cameras.json").write_text(json.dumps(cameras))


def test_correct_descriptors_score_higher_than_shuffled_ones(tmp_path):
    write_strecha(tmp_path / "plane")
    scene = training.Scene(tmp_path / "plane", 300)
    recipe = recipes.descriptor("caloric-unlearned")
    values = [training.plain(view, recipe) for view in scene.views]
    correct = scene.score(values)
    rng = np.random.default_rng(0)
    assert correct > 0.35
    assert scene.score([rng.permutation(v) for v in values]) < 0.1 * correct
    with pytest.raises(InputError, match=r"no cameras\.json"):
        training.Scene(tmp_path)
