"""Weighted bundle adjustment by pycolmap and pyceres."""

from dataclasses import replace

import numpy as np
import pytest

from caloric.collection import adjusting, aligning, scenes
from caloric.interop import weighted_adjustment
from colmap_models import write_model

FIXED = {"refine_focal_length": False, "refine_extra_params": False}
NAMES = ("a", "b", "c", "d", "e")


def aligned_scene(directory):
    """Return a scene whose second half of observations is ten times as noisy as the first."""
    write_model(directory, names=NAMES, points=100)
    scene = scenes.read(directory)
    random = np.random.default_rng(0)
    deviations = np.where(random.random(len(scene.xy)) < 0.5, 0.05, 1.0)
    xy = scene.xy + random.normal(size=scene.xy.shape) * deviations[:, None]
    covariances = deviations[:, None, None] ** 2 * np.eye(2)
    refined = np.ones(len(xy), bool)
    return replace(scene, xy=xy), aligning.Aligned(xy, covariances, covariances, refined)


def test_it_is_not_available_without_pyceres(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyceres", None)
    weighted_adjustment.available.cache_clear()
    try:
        assert not weighted_adjustment.available()
    finally:
        weighted_adjustment.available.cache_clear()


def test_weights_make_poses_more_accurate(tmp_path):
    pytest.importorskip("pycolmap")
    pytest.importorskip("pyceres")
    scene, aligned = aligned_scene(tmp_path)
    truth = scene.points.xyz.copy()
    errors = []
    for covariances in (aligned.covariances, np.tile(np.eye(2), (len(scene.xy), 1, 1))):
        part = replace(aligned, covariances=covariances)
        result = adjusting.adjust(scene, part, FIXED, weighted=True)
        assert 0 < len(result.poses) < len(NAMES)
        assert all(np.linalg.eigvalsh(c).min() > 0 for c in result.poses.values())
        a, b = (v - v.mean(0) for v in (result.scene.points.xyz, truth))
        scale = np.sqrt((b**2).sum() / (a**2).sum())
        u, _, v = np.linalg.svd(b.T @ a)
        errors.append(np.linalg.norm(scale * a @ (u @ v).T - b, axis=1).mean())
    assert errors[0] < 0.5 * errors[1]
