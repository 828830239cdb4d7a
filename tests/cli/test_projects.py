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
    for words, reason in (
        ((), "directory:"),
        ((tmp_path, "--images", tmp_path), "directory once:"),
    ):
        words = map(str, ("refine", tmp_path, *words, "-o", tmp_path / "out"))
        result = CliRunner().invoke(cli.app, list(words))
        assert f"specify the image {reason} --images DIR" in str(result.exception)


def test_an_existing_file_is_not_overwritten(tmp_path):
    for project, output, words in (
        ("a.db", "b.db", ()),
        ("a.h5", "b.h5", ("--matches", tmp_path / "matches.h5")),
    ):
        (tmp_path / project).touch()
        (tmp_path / output).write_text("precious")
        words = ("refine", tmp_path / project, tmp_path, "-o", tmp_path / output, *words)
        result = CliRunner().invoke(cli.app, list(map(str, words)))
        assert f"{output} already exists; specify a new file" in str(result.exception)
        assert (tmp_path / output).read_text() == "precious"
