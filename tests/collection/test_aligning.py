"""Observations of a model, aligned with references that are chosen and replaced."""

import cv2
import numpy as np
import pytest

import rendered_models
from caloric.collection import aligning, model_refining, scenes
from caloric.collection.aligning import Aligned, Aligner, Alignments
from caloric.collection.image_cache import Views
from caloric.collection.steps import no_progress
from colmap_models import write_model


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    return rendered_models.render(tmp_path_factory.mktemp("scene"))


def aligner_of(rendered, images=None):
    scene = scenes.read(rendered.model)
    read = model_refining._reader(scene, images or rendered.images, {})
    return Aligner(scene, Views(read), set())


def test_covariances_are_shared_by_both_positions(tmp_path):
    write_model(tmp_path, points=2)
    scene = scenes.read(tmp_path)
    first, second = np.array([0]), np.array([2])
    part = Alignments(
        first, second, np.array([[7.0, 8.0]]), 4 * np.eye(2)[None], 2 * np.eye(2)[None],
        2 * np.eye(2)[None],
    )  # fmt: skip
    result = aligning.updated(aligning.unrefined(scene.xy), [part])
    assert result.refined.tolist() == [True, False, True, False, False, False]
    np.testing.assert_allclose(result.xy[2], [7, 8])
    np.testing.assert_allclose(result.covariances[2], 2 * np.eye(2))
    np.testing.assert_allclose(result.noise[2], np.eye(2))
    # The map to the second doubles lengths.
    np.testing.assert_allclose(result.covariances[0], 0.5 * np.eye(2))
    again = aligning.updated(result, [part])
    np.testing.assert_allclose(again.covariances[0], 0.5 * np.eye(2))


def test_the_nearest_view_is_that_of_the_nearest_camera(tmp_path):
    write_model(tmp_path, names=("a", "b", "c", "d"), points=3)
    scene = scenes.read(tmp_path)
    rows = np.arange(3)  # of image a
    candidates = scene.image >= 2
    candidates[scene.rows(2)][0] = False
    candidates[scene.point == 2] = False
    expected = [scene.rows(3).start, scene.rows(2).start + 1, -1]
    np.testing.assert_array_equal(aligning.nearest_views(scene, rows, candidates), expected)
    assert aligning.by_images(scene, rows[:0], rows[:0]) == {}


def test_points_are_tried_with_several_references(rendered, tmp_path):
    """The references of the first attempt are in an image of noise."""
    aligner = aligner_of(rendered)
    none = np.zeros(len(aligner.scene.xy), bool)
    pairs = aligning._references(aligner.scene, aligner.shapes, aligner.usable, none)
    counts = np.bincount([a for (a, _), rows in pairs.items() for _ in rows], minlength=4)
    worst = int(counts.argmax())
    for i in range(4):
        image = cv2.imread(str(rendered.images / f"view {i}.png"))
        if i == worst:
            image = np.random.default_rng(0).integers(0, 256, image.shape, np.uint8)
        cv2.imwrite(str(tmp_path / f"view {i}.png"), image)
    aligned, _ = aligning.align_all(aligner_of(rendered, tmp_path), no_progress)
    by_image = [aligned.refined[aligner.scene.rows(i)].mean() for i in range(4)]
    assert by_image.pop(worst) < 0.5
    assert min(by_image) > 0.9


def test_references_outside_the_image_do_not_fail(rendered):
    aligner = aligner_of(rendered)
    aligner.scene.points.xyz[0] = 1e6
    aligned, points = aligning.align_all(Aligner(aligner.scene, aligner.views, set()), no_progress)
    assert np.isfinite(points).all()
    assert aligned.refined.mean() > 0.9


def test_undone_refinement_leaves_no_single_reference(tmp_path):
    write_model(tmp_path, points=2)
    scene = scenes.read(tmp_path)
    covariances = np.tile(np.eye(2), (6, 1, 1))
    everything = Aligned(scene.xy + 1, covariances, covariances, np.ones(6, bool))
    kept = aligning.kept(scene, everything, np.array([True, True, False, True, False, False]))
    assert kept.refined.tolist() == [False, True, False, True, False, False]
    np.testing.assert_array_equal(kept.xy[~kept.refined], scene.xy[~kept.refined])
    assert np.isinf(kept.covariances[~kept.refined][:, 0, 0]).all()
