"""``caloric refine`` for COLMAP models: observations get closer to the truth, never worse."""

import re
import shutil

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import rendered_models
from caloric import cli
from caloric.collection import model_refining, scenes
from caloric.interop import colmap_command, colmap_model, weighted_adjustment


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return rendered_models.render(tmp_path_factory.mktemp("scene"))


def content(directory):
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("model", rendered_models.CAMERAS)
def test_observations_get_three_times_closer_to_the_truth(model, tmp_path):
    scene = rendered_models.render(tmp_path, model)
    before = content(scene.model)
    result = caloric.refine_model(scene.model, scene.images, tmp_path / "out", adjust=False)
    assert content(scene.model) == before
    assert result.improved
    assert result.refined > 0.9 * result.observations
    old, new = (np.median(scene.scatter(path)) for path in (scene.model, tmp_path / "out"))
    assert old > 1
    assert new < old / 10
    assert result.after < result.before / 3
    assert set(result.by_length) == {4}


def test_text_and_binary_models_give_the_same_result(scene, tmp_path):
    rendered_models.write_text(scene.model, tmp_path / "text")
    results = []
    for source, name in ((scene.model, "a"), (tmp_path / "text", "b")):
        caloric.refine_model(source, scene.images, tmp_path / name, adjust=False)
        results.append(content(tmp_path / name))
    a, b = results
    assert sorted(a) == ["cameras.bin", "covariances.npz", "images.bin", "points3D.bin"]
    assert a == b


def test_a_bundle_adjustment_follows(scene, tmp_path, monkeypatch):
    monkeypatch.setattr(weighted_adjustment, "available", lambda: False)
    if colmap_command.executable() is None:
        pytest.skip("no colmap executable on the PATH")
    words = ["refine", scene.model, "--images", scene.images, "-o", tmp_path / "new"]
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    assert result.exit_code == 0, result.exception
    assert "without weights" in result.output
    before, after = map(float, re.findall(r"([\d.]+) px (?:before|after)", result.output))
    assert after < before / 5
    assert colmap_model.summary(tmp_path / "new").error == pytest.approx(after, abs=0.01)
    out = tmp_path / "text"
    out.mkdir()
    paths = ("--input_path", tmp_path / "new", "--output_path", out)
    colmap_command.call("model_converter", *paths, "--output_type", "TXT")
    converted, written = scenes.read(out), scenes.read(tmp_path / "new")
    np.testing.assert_allclose(converted.points.xyz, written.points.xyz[
        np.searchsorted(written.points.ids, converted.points.ids)])  # fmt: skip
    assert sorted(converted.points.lengths) == sorted(written.points.lengths)


def test_covariances_are_those_of_the_observations(scene, tmp_path):
    result = caloric.refine_model(scene.model, scene.images, tmp_path / "out", adjust=False)
    with np.load(tmp_path / "out" / model_refining.COVARIANCES) as file:
        arrays = dict(file)
    assert len(arrays["covariances"]) == result.observations
    refined = arrays["refined"]
    assert refined.sum() == result.refined
    assert np.isinf(arrays["covariances"][~refined][:, [0, 2]]).all()
    xx, xy, yy = arrays["covariances"][refined].T
    assert (xx > 0).all()
    assert (xx * yy > xy**2).all()
    images = {image.number: image for image in colmap_model.registered(tmp_path / "out")}
    for number, keypoint in zip(arrays["image_ids"], arrays["keypoints"], strict=True):
        assert images[number].points[keypoint] >= 0


def test_images_with_exif_orientation_have_the_coordinates_of_the_file(scene, tmp_path):
    """COLMAP ignores the orientation."""
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(4):
        image = Image.open(scene.images / f"view {i}.png")
        exif = image.getexif()
        exif[0x0112] = (1, 6, 3, 8)[i]
        image.save(tmp_path / "images" / f"view {i}.png", exif=exif)
    caloric.refine_model(scene.model, tmp_path / "images", tmp_path / "out", adjust=False)
    assert np.median(scene.scatter(tmp_path / "out")) < 0.1 * np.median(scene.scatter(scene.model))


def test_a_model_that_would_get_worse_is_kept(scene, tmp_path):
    """Images of something else, in which no refinement is consistent."""
    (tmp_path / "images").mkdir()
    random = np.random.default_rng(0)
    for i in range(4):
        noise = random.integers(0, 256, (240, 320), np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"view {i}.png"), noise)
    result = caloric.refine_model(scene.model, tmp_path / "images", tmp_path / "out", adjust=False)
    assert result.after <= result.before
    np.testing.assert_array_less(
        scene.scatter(tmp_path / "out").mean(), 1.05 * scene.scatter(scene.model).mean()
    )


def test_a_worse_result_is_replaced_by_the_old_model(scene, tmp_path, monkeypatch):
    monkeypatch.setattr(scenes, "triangulate", lambda scene, xy, used: scene.points.xyz + 0.2)
    result = caloric.refine_model(scene.model, scene.images, tmp_path / "out", adjust=False)
    assert not result.improved
    assert "copied unchanged" in str(result)
    assert content(tmp_path / "out")["images.bin"] == content(scene.model)["images.bin"]


def test_invalid_input_is_an_error_before_the_work(scene, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    pointless = tmp_path / "pointless"
    pointless.mkdir()
    cameras, images = colmap_model.cameras(scene.model), list(colmap_model.registered(scene.model))
    none = np.zeros(0, np.int64)
    points = colmap_model.Points(
        none, np.zeros((0, 3)), np.zeros((0, 3), np.uint8), np.zeros(0), none
    )
    colmap_model.write(pointless, cameras, images, points)
    truncated = tmp_path / "truncated"
    shutil.copytree(scene.model, truncated)
    (truncated / "images.bin").write_bytes((truncated / "images.bin").read_bytes()[:1000])
    out = tmp_path / "out"
    for message, words in {
        "no points": (pointless, scene.images, out),
        "cannot be read": (tmp_path / "empty", scene.images, out),
        "not a COLMAP model": (truncated, scene.images, out),
        "none of the images": (scene.model, tmp_path / "empty", out),
        "no such directory": (scene.model, tmp_path / "none", out),
        "not empty": (scene.model, scene.images, tmp_path / "full"),
    }.items():
        with pytest.raises(caloric.InputError, match=message):
            caloric.refine_model(*words, adjust=False)
        assert not out.exists()
