"""Variances of observations: known components are estimated from simulated errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from caloric.collection import scenes, variances
from caloric.collection.aligning import Aligned
from caloric.collection.variances import Components
from caloric.interop.colmap_model import Camera, Points, RegisteredImage


@pytest.fixture(scope="module")
def scene():
    """Return the exact observations of 250 points by seven cameras on an arc of 90 degrees."""
    random = np.random.default_rng(0)
    xyz = random.uniform(-0.5, 0.5, (250, 3))
    images = []
    for i, angle in enumerate(np.linspace(-45, 45, 7)):
        rotation = Rotation.from_euler("yx", (angle, 10 * (-1) ** i), degrees=True)
        x, y, z, w = rotation.as_quat()
        local = rotation.apply(xyz) + np.array([0, 0, 3])
        xy = 500 * local[:, :2] / local[:, 2:] + 300
        numbers = np.arange(1, len(xyz) + 1)
        images.append(RegisteredImage(i, f"{i}.png", 1, (w, x, y, z), (0.0, 0.0, 3.0), xy, numbers))
    zeros = np.zeros(len(xyz))
    points = Points(numbers, xyz, np.zeros((len(xyz), 3), np.uint8), zeros, zeros.astype(np.int64))
    return scenes.build({1: Camera("SIMPLE_PINHOLE", 600, 600, (500, 300, 300))}, images, points)


def observed(scene, components, heavy=False):
    """Return the scene with simulated errors; predicted covariances differ by a factor of 100."""
    random = np.random.default_rng(1)
    count = len(scene.xy)
    axes = Rotation.random(count, random).as_matrix()[:, :2, :2] + 0.2 * np.eye(2)
    predicted = axes @ axes.transpose(0, 2, 1) + 0.05 * np.eye(2)
    predicted *= random.uniform(0.02, 0.2, count)[:, None, None] ** 2
    aligned = Aligned(scene.xy, predicted, predicted, np.ones(count, bool))
    total = variances.covariances(scene, aligned, components)
    errors = np.einsum("mij,mj->mi", np.linalg.cholesky(total), random.normal(size=(count, 2)))
    if heavy:
        errors[random.random(count) < 0.03] *= 20
    return replace(aligned, xy=scene.xy + errors)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(
    "components",
    [Components(1.0, 0.0, 0.0), Components(0.6, 0.02, 0.0), Components(2.0, 0.0, 0.01),
     Components(0.8, 0.05, 0.003)],
)  # fmt: skip
def test_components_are_estimated_from_residuals(scene, components, heavy):
    aligned = observed(scene, components, heavy)
    estimated = variances.estimate(scene, aligned)
    true, new = (variances.covariances(scene, aligned, c) for c in (components, estimated))
    ratios = np.sqrt(np.diagonal(new / true, axis1=1, axis2=2))
    assert np.quantile(ratios, [0.05, 0.95]) == pytest.approx([1, 1], abs=0.3)
    if not heavy:
        part = replace(scene, xy=aligned.xy)
        values = variances.deviations(*variances.residuals(part, new))
        assert variances.measured(values) == pytest.approx([1, 1], abs=0.06)


def test_unmodeled_errors_make_covariances_larger(scene):
    aligned = observed(scene, Components(1.0, 0.05, 0.01))
    part = replace(scene, xy=aligned.xy)
    values = variances.deviations(*variances.residuals(part, aligned.covariances))
    assert (variances.measured(values) > 1.3).all()


def test_observations_that_were_not_refined_have_no_influence(scene):
    aligned = observed(scene, Components(0.6, 0.02, 0.0))
    refined = np.arange(len(scene.xy)) % 3 > 0
    expected = variances.estimate(scene, replace(aligned, refined=refined))
    shifted = np.where(refined[:, None], aligned.xy, aligned.xy + 50)
    aligned = replace(aligned, xy=shifted, refined=refined)
    assert variances.estimate(scene, aligned) == expected
    covariances = variances.covariances(scene, aligned, expected)
    assert np.isinf(covariances[~refined][:, [0, 1], [0, 1]]).all()
    assert np.isfinite(covariances[refined]).all()


def test_covariances_of_few_or_short_tracks_are_not_changed(scene):
    aligned = observed(scene, Components(3.0, 0.0, 0.1))
    short = scene.image < 2
    few = scene.point < 10
    for refined in (short, few, np.zeros(len(short), bool)):
        some = replace(aligned, refined=refined)
        assert variances.estimate(scene, some) == Components()
        result = variances.covariances(scene, some, Components())
        np.testing.assert_array_equal(result[refined], aligned.covariances[refined])


def test_large_models_are_sampled(scene, monkeypatch):
    aligned = observed(scene, Components(0.6, 0.02, 0.0))
    monkeypatch.setattr(variances, "_MAX_OBSERVATIONS", 1000)
    estimated = variances.estimate(scene, aligned)
    assert estimated.alignment == pytest.approx(0.6, rel=0.4)
    assert estimated.relief == pytest.approx(0.02, rel=0.4)


def test_points_behind_a_camera_are_left_out(scene):
    aligned = observed(scene, Components(0.6, 0.02, 0.0))
    xyz = scene.points.xyz.copy()
    xyz[:20, 2] -= 50
    broken = replace(scene, points=replace(scene.points, xyz=xyz))
    assert variances.estimate(broken, aligned).alignment == pytest.approx(0.6, rel=0.3)
