"""Models as arrays of observations."""

import numpy as np
import pytest

import caloric
from caloric.collection import scenes
from caloric.interop import colmap_model
from colmap_models import write_model


def test_points_are_triangulated_from_their_observations(tmp_path):
    xyz = write_model(tmp_path)
    scene = scenes.read(tmp_path)
    np.testing.assert_allclose(scenes.project(scene, xyz).xy, scene.xy)
    everything = np.ones(len(scene.xy), bool)
    random = np.random.default_rng(0)
    scene.points.xyz[:] += random.normal(0, 0.05, xyz.shape)
    np.testing.assert_allclose(scenes.triangulate(scene, scene.xy, everything), xyz, atol=1e-7)
    one = scene.image == 0
    np.testing.assert_array_equal(scenes.triangulate(scene, scene.xy, one), scene.points.xyz)
    assert scenes.residuals(scene, scene.xy, xyz).max() < 1e-9
    assert np.isinf(scenes.residuals(scene, scene.xy, xyz - [0, 0, 9])).all()


def test_means_are_taken_over_the_observations_of_a_point(tmp_path):
    write_model(tmp_path, points=5)
    scene = scenes.read(tmp_path)
    np.testing.assert_allclose(scenes.means(scene, scene.point.astype(float)), np.arange(5))
    used = scene.point > 0
    np.testing.assert_allclose(scenes.means(scene, np.ones(15), used), [0, 1, 1, 1, 1])


def test_shapes_predict_the_map_between_views(tmp_path):
    """A small step on the plane, projected in both views."""
    xyz = write_model(tmp_path)
    scene = scenes.read(tmp_path)
    at = scenes.project(scene, xyz)
    shapes = scenes.shapes(scene, at)
    centers = np.stack([image.center for image in scene.images])
    towards = centers[:, None] - xyz
    normal = (towards / np.linalg.norm(towards, axis=2, keepdims=True)).sum(0)
    step = 1e-4 * np.cross(normal, [0.3, 0.5, 0.1])
    moved = (scenes.project(scene, xyz + step).xy - at.xy).reshape(3, -1, 2)
    a, b = (shapes[scene.rows(i)] for i in (0, 2))
    predicted = b @ np.linalg.inv(a) @ moved[0][:, :, None]
    np.testing.assert_allclose(predicted[:, :, 0], moved[2], rtol=2e-3, atol=1e-6)


def test_inconsistent_models_are_errors(tmp_path):
    write_model(tmp_path)
    scene = scenes.read(tmp_path)
    for message, change in {
        "does not exist": lambda image: image.points.__setitem__(0, 999),
        "no image observes": lambda image: image.points.fill(-1),
    }.items():
        images = [colmap_model.RegisteredImage(**vars(v) | {"points": v.points.copy()})
                  for v in scene.images]  # fmt: skip
        for image in images:
            change(image)
        colmap_model.write(tmp_path, scene.cameras, images, scene.points)
        with pytest.raises(caloric.InputError, match=message):
            scenes.read(tmp_path)
    colmap_model.write(tmp_path, {7: scene.cameras[1]}, scene.images, scene.points)
    with pytest.raises(caloric.InputError, match="no camera 1"):
        scenes.read(tmp_path)
