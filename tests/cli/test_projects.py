"""``caloric refine`` for COLMAP models; projects are tested in tests/collection."""

import re
import shutil

import cv2
import numpy as np
from typer.testing import CliRunner

import rendered_models
from caloric import cli
from caloric.interop import colmap_model


def test_observations_in_a_missing_image_are_kept(tmp_path):
    scene = rendered_models.render(tmp_path / "scene", points=60)
    shutil.copytree(scene.images, tmp_path / "images")
    (tmp_path / "images" / "view 2.png").unlink()
    cv2.imwrite(str(tmp_path / "images" / "view 3.png"), np.zeros((20, 30), np.uint8))
    words = ["refine", scene.model, tmp_path / "images", "-o", tmp_path / "out", "--no-adjust"]
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    assert result.exit_code == 1, result.exception
    assert re.search("view 2.png: no such file", result.output)
    assert re.search("view 3.png: 30 x 20 pixels, but its camera has 320 x 240", result.output)
    old, new = (list(colmap_model.registered(path)) for path in (scene.model, tmp_path / "out"))
    moved = [(a.xy != b.xy).any(1).mean() for a, b in zip(old, new, strict=True)]
    assert moved[2] == moved[3] == 0
    assert moved[0] + moved[1] > 0.3


def test_the_image_directory_is_specified_once(tmp_path):
    for words in ((), (tmp_path, "--images", tmp_path)):
        words = map(str, ("refine", tmp_path, *words, "-o", tmp_path / "out"))
        result = CliRunner().invoke(cli.app, list(words))
        assert "specify the image directory once" in str(result.exception)
