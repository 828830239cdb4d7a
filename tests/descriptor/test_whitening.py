"""Whitening: the learned matrices and their properties."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor import recipes, whitening
from paths import ROOT
from tools import learn_whitening


def correlated(count, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((20, 20)) * np.geomspace(3, 0.05, 20)
    return (rng.standard_normal((count, 20)) @ mix).astype(np.float32)


def test_full_whitening_makes_all_directions_equal():
    x = correlated(5000)
    y = x.astype(np.float64) @ whitening.learn(x, 1.0, 20)
    moments = y.T @ y / len(y)
    np.testing.assert_allclose(moments / moments[0, 0], np.eye(20), atol=2e-3)


def test_whitening_without_attenuation_is_a_rotation():
    x = correlated(500)
    matrix = whitening.learn(x, 0.0, 20).astype(np.float64)
    gram = matrix.T @ matrix
    np.testing.assert_allclose(gram / gram[0, 0], np.eye(20), atol=1e-5)
    values = ((x @ matrix) ** 2).mean(0)
    assert (np.diff(values) <= 1e-6 * values[0]).all()


def test_supervised_whitening_suppresses_directions_that_differ_between_views():
    rng = np.random.default_rng(1)
    common = rng.standard_normal((4000, 6))
    noisy = np.zeros(6)
    noisy[2] = 5.0
    a, b = (common + noisy * rng.standard_normal((4000, 6)) for _ in range(2))
    matrix = whitening.learn_supervised(a, b, 0.0, 6, shrink=1e-3)
    assert np.linalg.norm(matrix[2]) < 0.1 * np.linalg.norm(np.delete(matrix, 2, 0), axis=1).min()


def test_shipped_matrices_are_small():
    default = recipes.descriptor("caloric")
    assert whitening.load("caloric").shape == (default.layout.dimension, 128)
    sizes = [f.stat().st_size for f in (ROOT / "src/caloric/data").iterdir()]
    assert sum(sizes) < 300_000


@pytest.mark.slow
def test_learning_again_gives_the_shipped_matrix():
    matrix = whitening.load("caloric")
    again = learn_whitening.learn(False)
    # Products are compared, because eigenvectors of similar eigenvalues differ between machines, as
    # do OpenCV's keypoints in the training data: on Arm products differ by .008 of the largest.
    new, shipped = again @ again.T, matrix.astype(np.float64) @ matrix.T
    assert np.abs(new - shipped).max() < 0.02 * np.abs(shipped).max()


def test_uint8_descriptors_preserve_distances():
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=200)
    values = caloric.describe(image, frames)
    stored = caloric.describe(image, frames, dtype="uint8").astype(np.float32)
    true = np.linalg.norm(values[:, None] - values, axis=2)
    kept = np.linalg.norm(stored[:, None] - stored, axis=2) / 256
    np.testing.assert_allclose(kept, true, atol=0.03)
    assert stored.min() > 0
    assert stored.max() < 255
