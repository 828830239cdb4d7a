"""Bundle adjustment with refined observations, weighted or not."""

from dataclasses import replace

import numpy as np
import pytest

from caloric.collection import adjusting, aligning, scenes
from caloric.interop import colmap_command, colmap_model, weighted_adjustment
from colmap_models import write_model

FIXED = {"refine_focal_length": False, "refine_extra_params": False}


def noisy(directory, names=("a", "b", "c", "d")):
    """Return a scene, whose points are disturbed, and observations without weights."""
    write_model(directory, names=names, points=80, noise=0.3)
    scene = scenes.read(directory)
    random = np.random.default_rng(0)
    xyz = scene.points.xyz + random.normal(0, 0.02, scene.points.xyz.shape)
    scene = replace(scene, points=replace(scene.points, xyz=xyz))
    covariances = np.tile(0.09 * np.eye(2), (len(scene.xy), 1, 1))
    aligned = aligning.Aligned(scene.xy, covariances, covariances, np.ones(len(scene.xy), bool))
    return scene, aligned


def test_the_executable_adjusts_without_weights(tmp_path):
    if colmap_command.executable() is None:
        pytest.skip("no colmap executable on the PATH")
    scene, aligned = noisy(tmp_path)
    before = scenes.residuals(scene, scene.xy, scene.points.xyz).mean()
    result = adjusting.adjust(scene, aligned, FIXED, weighted=False)
    assert scenes.residuals(result.scene, scene.xy, result.scene.points.xyz).mean() < before / 3
    assert result.poses == {}


def test_covariances_have_a_common_part(tmp_path):
    _, aligned = noisy(tmp_path)
    covariances = aligned.covariances * np.linspace(0.1, 3, len(aligned.xy))[:, None, None]
    expected = adjusting.expected_covariances(replace(aligned, covariances=covariances))
    np.testing.assert_allclose(np.ptp((expected - covariances)[:, 0, 0]), 0, atol=1e-12)
    assert expected[0, 0, 0] > 5 * covariances[0, 0, 0]
    assert expected[-1, 0, 0] < 4 * covariances[-1, 0, 0]
    unrefined = replace(aligned, refined=np.zeros(len(aligned.xy), bool))
    np.testing.assert_array_equal(adjusting.expected_covariances(unrefined)[:, 0, 0], 1)


def test_weights_are_the_covariances(tmp_path, monkeypatch):
    scene, aligned = noisy(tmp_path)
    refined = aligned.refined.copy()
    refined[:50] = False  # of the first image, which keeps all, because few are left
    aligned = replace(aligned, refined=refined)
    calls = []

    def adjust(skeleton, observations, xyz, options):
        calls.append((observations, colmap_model.summary(skeleton)))
        poses = {image.number: (image.rotation, (9.0, 9.0, 9.0)) for image in scene.images}
        return weighted_adjustment.Result({}, poses, xyz + 1, {2: np.eye(6)})

    monkeypatch.setattr(weighted_adjustment, "adjust", adjust)
    monkeypatch.setattr(adjusting, "_ADJUSTMENTS", 1)
    result = adjusting.adjust(scene, aligned, FIXED, weighted=True)
    observations, skeleton = calls[0]
    assert len(observations.xy) == len(scene.xy)
    assert set(observations.image) == {1, 2, 3, 4}
    np.testing.assert_allclose(observations.covariances[:50, 0, 0], 1)
    np.testing.assert_allclose(observations.covariances[50:, 0, 0], 0.09 + 5 * 0.09)
    assert len(skeleton.images) == 4
    assert skeleton.points == 3
    assert result.scene.images[0].translation == (9, 9, 9)
    np.testing.assert_allclose(result.scene.points.xyz, scene.points.xyz + 1)
    assert list(result.poses) == [2]


def test_covariances_of_poses_have_the_scale_of_the_residuals(tmp_path, monkeypatch):
    write_model(tmp_path, names=("a", "b", "c", "d"), points=250, noise=0.3)
    scene = scenes.read(tmp_path)
    covariances = np.tile(0.01 * np.eye(2), (len(scene.xy), 1, 1))  # too small by a factor of 9
    aligned = aligning.Aligned(scene.xy, covariances, covariances, np.ones(len(scene.xy), bool))
    poses = {image.number: (image.rotation, image.translation) for image in scene.images}

    def adjust(skeleton, observations, xyz, options):
        return weighted_adjustment.Result({}, poses, xyz, {2: np.eye(6)})

    monkeypatch.setattr(weighted_adjustment, "adjust", adjust)
    result = adjusting.adjust(scene, aligned, FIXED, weighted=True)
    # The weights assume six times the covariances.
    np.testing.assert_allclose(result.poses[2], 9 / 6 * np.eye(6), rtol=0.15)


def test_points_without_observations_in_the_adjustment_are_triangulated(tmp_path):
    scene, aligned = noisy(tmp_path)
    used = scene.point > 0
    result = adjusting._triangulated(scene, aligned, used)
    moved = np.linalg.norm(result.points.xyz - scene.points.xyz, axis=1)
    assert moved[0] > 0
    assert (moved[1:] == 0).all()


def test_a_few_points_cover_all_images(tmp_path):
    scene, aligned = noisy(tmp_path)
    few = scenes.covering(scene, aligned.refined, per_image=2)
    assert np.bincount(scene.image[few]).tolist() == [2, 2, 2, 2]
