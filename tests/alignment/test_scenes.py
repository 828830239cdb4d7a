"""Scenes: levels of templates, warped images, and samples outside the image."""

import numpy as np
import pytest

import photographs
from caloric.alignment import scenes, transforms
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from template_problems import problem, unit

ORIENTATION = fields.feature("orientation")


def test_the_energy_is_lowest_at_the_truth_at_every_sigma():
    template, image, truth = problem(degrees=10, shift=(4, -3))
    scene = scenes.scene(unit(template), unit(image), ORIENTATION)
    shifted = truth + np.array([[0, 0, 6], [0, 0, 5]])
    for sigma, fine in ((12.0, False), (6.0, False), (1.4, True), (0.0, True)):
        level = scene.level(sigma, "affine", fine=fine)
        assert level is scene.level(sigma, "affine", fine=fine)
        assert scene.evaluate(level, truth).energy < 0.8 * scene.evaluate(level, shifted).energy


def test_fine_scenes_have_the_energy_of_full_scenes():
    template, image, truth = problem(degrees=10)
    full = scenes.scene(unit(template), unit(image), ORIENTATION)
    fine = scenes.fine_scene(unit(template), unit(image), ORIENTATION)
    assert full.shapes == fine.shapes
    results = [
        scene.evaluate(scene.level(1.4, "affine", fine=True), truth) for scene in (full, fine)
    ]
    assert results[0].energy == results[1].energy
    np.testing.assert_array_equal(results[0].weights, results[1].weights)


def test_large_templates_are_subsampled():
    pixels = unit(photographs.gray("camera", (700, 800)))
    scene = scenes.fine_scene(pixels, pixels, ORIENTATION)
    level = scene.level(0.0, "translation", fine=True)
    assert level.grid.stride > 1
    assert level.values.shape[1] <= SCHEDULE.max_samples
    assert level.power == pytest.approx(float((level.values**2).sum(0).mean()), rel=1e-5)
    identity = np.eye(2, 3)
    evaluation = scene.evaluate(level, identity)
    assert evaluation.energy == pytest.approx(0, abs=1e-5)
    assert scene.cosines(evaluation, 3.0) == pytest.approx(1, abs=1e-3)
    assert scene.noise(evaluation) == pytest.approx(0, abs=1e-6)


def test_the_warped_image_resembles_the_template():
    template, image, truth = problem(degrees=20, scale=1.5)
    warped = scenes.warped(unit(image), truth, template.shape)
    assert np.corrcoef(warped.ravel(), unit(template).ravel())[0, 1] > 0.97
    assert scenes.antialiasing(1.0) == 0
    assert scenes.antialiasing(2.0) == pytest.approx(0.5 * np.sqrt(3))


def test_samples_outside_the_image_have_no_weight():
    template, image, truth = problem()
    cut = unit(image)[:, : int(truth[0, 2]) + 40]
    scene = scenes.fine_scene(unit(template), cut, ORIENTATION)
    evaluation = scene.evaluate(scene.level(0.0, "translation", fine=True), truth)
    inside = transforms.inside(truth, template.shape, cut.shape)
    assert evaluation.inside.mean() == pytest.approx(inside, abs=0.02)
    assert not evaluation.values[:, ~evaluation.inside].any()
    far = scene.evaluate(evaluation.level, truth + np.array([[0, 0, 1e4], [0, 0, 0]]))
    assert not far.inside.any()
    assert scene.cosines(far, 3.0) == 0


def test_templates_of_similar_size_share_the_illumination_width():
    widths = {scenes.illumination_width((n, n)) for n in range(90, 102)}
    assert len(widths) == 1
    assert widths.pop() == pytest.approx(96 / 8, rel=0.2)
    assert scenes.illumination_width((8, 8)) == 2
