"""Tracks that are extended to images that see their points."""

from dataclasses import replace

import numpy as np
import pytest

import caloric
import rendered_models
from caloric.collection import extending, scenes
from caloric.interop import colmap_model
from colmap_models import write_model


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """A rendered scene, and its model without the observations of 60 points in an image."""
    directory = tmp_path_factory.mktemp("scene")
    rendered = rendered_models.render(directory, noise=0.5)
    images = list(colmap_model.registered(rendered.model))
    points = images[1].points.copy()
    points[:60] = -1
    images[1] = replace(images[1], points=points, xy=np.where(points[:, None] < 0, 0, images[1].xy))
    content = colmap_model.points(rendered.model)
    (directory / "short").mkdir()
    colmap_model.write(directory / "short", colmap_model.cameras(rendered.model), images, content)
    return rendered, directory / "short"


def test_missing_observations_are_added_at_the_correct_positions(shortened, tmp_path):
    rendered, model = shortened
    result = caloric.refine_model(model, rendered.images, tmp_path / "new", adjust=False)
    assert result.added > 25
    images = list(colmap_model.registered(tmp_path / "new"))
    old = list(colmap_model.registered(model))
    new = images[1]
    np.testing.assert_array_equal(new.points[: len(old[1].points)], old[1].points)
    assert len(new.points) == len(old[1].points) + result.added
    # Ids are 1 to 120 in the order of the keypoints of the other images.
    rows = new.points[len(old[1].points) :] - 1
    spots = [rendered_models.on_plane(rendered.camera, v, v.xy) for v in images]
    distance = spots[1][len(old[1].points) :] - spots[0][rows]
    pixels = np.linalg.norm(distance, axis=1) * rendered.camera.focal / 2.2
    assert np.median(pixels) < 0.15
    with np.load(tmp_path / "new" / "covariances.npz") as arrays:
        assert len(arrays["covariances"]) == result.observations + result.added
    short = caloric.refine_model(
        model, rendered.images, tmp_path / "same", adjust=False, extend=False
    )
    assert short.added == 0
    assert colmap_model.points(tmp_path / "new").ids.tolist() == list(range(1, 121))


def test_occluded_and_distant_points_are_no_candidates(tmp_path):
    xyz = write_model(tmp_path, points=60)
    scene = scenes.read(tmp_path)
    towards = np.stack([image.center for image in scene.images]).mean(0) - xyz
    distance = np.linalg.norm(towards, axis=1, keepdims=True)
    views = np.concatenate([towards / distance, distance], 1)
    # The first image no longer observes the first three points.
    points = scene.images[0].points.copy()
    points[:3] = -1
    images = [replace(scene.images[0], points=points), *scene.images[1:]]
    scene = scenes.build(scene.cameras, images, scene.points)
    good = np.arange(60)
    visible, xy = extending._candidates(scene, 0, xyz, good, views)
    assert set(visible) <= {0, 1, 2}
    assert len(visible) == len(xy) > 0
    first = int(visible[0])
    behind, center = xyz.copy(), scene.images[0].center
    behind[first] = center + 1.8 * (xyz[first] - center)  # the same position, but farther away
    assert first not in extending._candidates(scene, 0, behind, good, views)[0]
    oblique = views.copy()
    oblique[first, :3] = [1, 0, 0]
    assert first not in extending._candidates(scene, 0, xyz, good, oblique)[0]
