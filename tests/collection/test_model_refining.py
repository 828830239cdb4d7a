"""``caloric refine`` for COLMAP models: observations get closer to the truth, never worse."""

import re
import shutil
import tracemalloc
from dataclasses import replace

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
import rendered_models
from caloric import cli
from caloric.collection import model_refining, scenes
from caloric.interop import colmap_command, colmap_model, weighted_adjustment
from caloric.interop.colmap_model import Points


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
    numbers = re.findall(r"([\d.]+) px (?:before|after)", result.output)
    before, after = map(float, numbers[:2])
    assert after < before / 5
    assert colmap_model.summary(tmp_path / "new").error == pytest.approx(after, abs=0.01)
    with np.load(tmp_path / "new" / model_refining.COVARIANCES) as arrays:
        assert (arrays["components"] != [1, 0, 0]).any()
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
    np.testing.assert_array_equal(arrays["components"], [1, 0, 0])  # without adjustment
    assert refined.sum() == result.refined
    assert np.isinf(arrays["covariances"][~refined][:, [0, 2]]).all()
    xx, xy, yy = arrays["covariances"][refined].T
    assert (xx > 0).all()
    assert (xx * yy > xy**2).all()
    images = {image.number: image for image in colmap_model.registered(tmp_path / "out")}
    for number, keypoint in zip(arrays["image_ids"], arrays["keypoints"], strict=True):
        assert images[number].points[keypoint] >= 0


def test_covariances_are_written_to_hdf5_by_image(scene, tmp_path):
    h5py = pytest.importorskip("h5py")
    words = ["refine", scene.model, "--images", scene.images, "-o", tmp_path / "out", "--hdf5",
             "--no-adjust"]  # fmt: skip
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    assert result.exit_code == 0, result.exception
    images = {image.name: image for image in colmap_model.registered(tmp_path / "out")}
    with (
        np.load(tmp_path / "out" / model_refining.COVARIANCES) as arrays,
        h5py.File(tmp_path / "out" / model_refining.COVARIANCES_HDF5) as file,
    ):
        for name, image in images.items():
            rows = arrays["image_ids"] == image.number
            for key in ("keypoints", "refined", "covariances", "noise"):
                np.testing.assert_array_equal(file[name][key], arrays[key][rows])


def test_observations_of_a_missing_image_are_not_refined(scene, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(scene.images, images)
    (images / "view 2.png").unlink()
    cv2.imwrite(str(images / "view 3.png"), np.zeros((100, 100), np.uint8))
    result = caloric.refine_model(scene.model, images, tmp_path / "out", adjust=False)
    assert result.improved
    assert "no such file" in result.skipped["view 2.png"]
    assert "100 x 100 pixels" in result.skipped["view 3.png"]
    old, new = (
        {image.name: image for image in colmap_model.registered(path)}
        for path in (scene.model, tmp_path / "out")
    )
    for name in result.skipped:
        np.testing.assert_array_equal(old[name].xy, new[name].xy)


@pytest.mark.slow
def test_a_thousand_cameras_need_little_memory(tmp_path, monkeypatch):
    """Views of a plane that are shifted by whole pixels; each sees some of the points."""
    texture = photographs.gray("astronaut", (256, 64))
    camera = colmap_model.Camera("SIMPLE_PINHOLE", 64, 64, (64.0, 32.0, 32.0))
    random = np.random.default_rng(0)
    xyz = np.column_stack([random.uniform(30, 220, 400), random.uniform(20, 44, 400),
                           np.zeros(400)]) / 64  # fmt: skip
    (tmp_path / "images").mkdir()
    images, none = [], (1.0, 0.0, 0.0, 0.0)
    for i in range(1000):
        x = i * 192 // 1000
        cv2.imwrite(str(tmp_path / "images" / f"{i:03}.png"), texture[:, x : x + 64])
        xy = 64 * xyz[:, :2] - [x, 0]
        rows = np.flatnonzero((np.abs(xy[:, 0] - 32) < 12) & (random.random(400) < 0.02))
        translation = (-x - 32.0) / 64, -0.5, 1.0
        images.append(colmap_model.RegisteredImage(
            i + 1, f"{i:03}.png", 1, none, translation,
            xy[rows] + random.normal(0, 0.5, (len(rows), 2)), rows + 1))  # fmt: skip
    (tmp_path / "model").mkdir()
    content = colmap_model.Points(np.arange(1, 401), xyz, np.zeros((400, 3), np.uint8),
                                  np.zeros(400), np.zeros(400, np.int64))  # fmt: skip
    colmap_model.write(tmp_path / "model", {1: camera}, images, content)
    monkeypatch.setattr(model_refining, "_MEMORY", 2e6)
    tracemalloc.start()
    result = caloric.refine_model(
        tmp_path / "model", tmp_path / "images", tmp_path / "out", adjust=False, extend=False
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.images == 1000
    assert peak < 8e6  # 16e6 if all images are kept
    assert result.refined > 0.8 * result.observations  # some points have one
    assert result.after < result.before / 3


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
        "not a COLMAP model: cameras.bin or cameras.txt is missing$": (
            tmp_path / "empty",
            scene.images,
            out,
        ),
        f"use {scene.model}": (scene.model.parent, scene.images, out),
        "not a COLMAP model": (truncated, scene.images, out),
        "none of the images": (scene.model, tmp_path / "empty", out),
        "no such directory": (scene.model, tmp_path / "none", out),
        "not empty": (scene.model, scene.images, tmp_path / "full"),
    }.items():
        with pytest.raises(caloric.InputError, match=message):
            caloric.refine_model(*words, adjust=False)
        assert not out.exists()


def edited(source, target, change):
    """Write a copy of a model to a new directory, with changed images and points."""
    target.mkdir()
    images, points = change(list(colmap_model.registered(source)), colmap_model.points(source))
    colmap_model.write(target, colmap_model.cameras(source), images, points)
    return target


def refined(model, scene, out):
    return caloric.refine_model(model, scene.images, out, adjust=False, extend=False)


def test_a_point_behind_a_camera_does_not_prevent_refinement(scene, tmp_path):
    def change(images, points):
        center = images[0].center
        xyz = points.xyz.copy()
        xyz[0] = center - images[0].matrix[2]  # behind the first camera
        return images, replace(points, xyz=xyz)

    model = edited(scene.model, tmp_path / "model", change)
    expected = refined(scene.model, scene, tmp_path / "a")
    result = refined(model, scene, tmp_path / "b")
    assert result.improved
    assert result.after < result.before / 3
    assert np.isfinite((result.before, result.after)).all()
    assert result.before == pytest.approx(expected.before, rel=0.1)


def test_an_outlier_does_not_make_a_worse_result_count_as_improved(scene, tmp_path, monkeypatch):
    def change(images, points):
        xyz = points.xyz.copy()
        xyz[0] = xyz.mean(0) + 0.5 * (xyz[0] - xyz.mean(0))
        return images, replace(points, xyz=xyz)

    model = edited(scene.model, tmp_path / "model", change)
    means = scenes.means

    def worse(scene, values, used=None):  # the outlier gets better, all other points worse
        result = means(scene, values, used)
        return result if used is None else np.append(0, 1.05 * before[1:])

    read = scenes.read(model)
    before = means(read, scenes.residuals(read, read.xy, read.points.xyz))
    assert before[0] > 0.05 * before[1:].sum()  # the mean of all decreases
    monkeypatch.setattr(scenes, "means", worse)
    result = refined(model, scene, tmp_path / "out")
    assert not result.improved
    assert np.isnan(result.rejected) == (result.refined > 0)
    assert "refined: " in str(result)


def test_points_without_observations_are_kept(scene, tmp_path):
    def change(images, points):
        many = np.arange(3)
        return images, Points(
            np.append(points.ids, points.ids.max() + 1 + many),
            np.concatenate([points.xyz, points.xyz[:3] + 1]),
            np.concatenate([points.colors, points.colors[:3]]),
            np.append(points.errors, np.full(3, 0.5)), np.append(points.lengths, np.zeros(3, int)),
        )  # fmt: skip

    model = edited(scene.model, tmp_path / "model", change)
    plain = refined(scene.model, scene, tmp_path / "a")
    result = refined(model, scene, tmp_path / "b")
    assert (result.before, result.after) == (plain.before, plain.after)
    written = colmap_model.points(tmp_path / "b")
    assert len(written.ids) == result.points == plain.points + 3
    assert (written.errors[-3:] == 0.5).all()
    assert (written.lengths[-3:] == 0).all()


def test_a_call_that_was_killed_while_it_wrote_continues(scene, tmp_path):
    out = tmp_path / "out"
    expected = refined(scene.model, scene, tmp_path / "whole")
    (out / "unfinished").mkdir(parents=True)
    (out / model_refining.COVARIANCES).write_bytes(b"half")
    (out / ".images.bin.0123456789ab").write_bytes(b"half")
    assert refined(scene.model, scene, out).after == expected.after
    other = tmp_path / "other"
    (other / "unfinished").mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    with pytest.raises(caloric.InputError, match="not empty"):
        refined(scene.model, scene, other)


def test_quaternions_need_not_have_unit_length(scene, tmp_path):
    def change(images, points):
        return [replace(i, rotation=tuple(1.3 * np.array(i.rotation))) for i in images], points

    model = edited(scene.model, tmp_path / "model", change)
    a, b = (refined(m, scene, tmp_path / n) for m, n in ((scene.model, "a"), (model, "b")))
    assert b.before == pytest.approx(a.before, rel=1e-9)


def test_values_that_are_not_finite_are_errors(scene, tmp_path):
    def with_point(images, points):
        return images, replace(
            points, xyz=np.where(points.xyz == points.xyz[0], np.nan, points.xyz)
        )

    def with_pose(images, points):
        return [replace(i, translation=(np.nan, 0, 0)) for i in images], points

    def with_observation(images, points):
        return [replace(i, xy=np.full_like(i.xy, np.nan)) for i in images], points

    for number, (change, message) in enumerate((
        (with_point, "points that are not finite"), (with_pose, "the pose of .* is invalid"),
        (with_observation, "observations that are not finite"),
    )):  # fmt: skip
        model = edited(scene.model, tmp_path / str(number), change)
        with pytest.raises(caloric.InputError, match=message):
            refined(model, scene, tmp_path / "out")
    rendered_models.write_text(scene.model, tmp_path / "text")
    cameras = tmp_path / "text" / "cameras.txt"
    cameras.write_text(cameras.read_text().rstrip().rpartition(" ")[0] + "\n")
    with pytest.raises(caloric.InputError, match="parameters instead of"):
        refined(tmp_path / "text", scene, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_directories_in_a_model_are_ignored(scene, tmp_path):
    shutil.copytree(scene.model, tmp_path / "model")
    (tmp_path / "model" / ".ipynb_checkpoints").mkdir()
    assert refined(tmp_path / "model", scene, tmp_path / "model" / "refined.v1").improved
