"""Refinement on a device: the results of the CPU, also for many matches and small images."""

import numpy as np
import pytest

import caloric
from caloric.gpu import refinement
from caloric.matching import refinement as on_cpu
from matched_views import frames_of, matched_views
from torch_device import DEVICE, HERE, out_of_memory


@pytest.fixture(scope="module")
def pair():
    return matched_views()


def test_a_device_agrees_with_the_cpu(pair):
    device = HERE
    maps_a, maps_b = frames_of(pair)
    maps_a, maps_b = maps_a[:200], maps_b[:200].copy()
    maps_b[::9, :, 2] += 300  # beyond the image
    there = caloric.refine(*pair[:2], maps_a, maps_b, device=device)
    here = caloric.refine(*pair[:2], maps_a, maps_b)
    assert (there.moved == here.moved).mean() > 0.98
    both = there.moved & here.moved
    assert np.quantile(np.linalg.norm(there.xy - here.xy, axis=1)[both], 0.98) < 1e-3
    ratio = there.covariances[both][:, 0, 0] / here.covariances[both][:, 0, 0]
    assert np.abs(np.log(np.quantile(ratio, [0.02, 0.98]))).max() < 0.02
    assert len(caloric.refine(*pair[:2], [], [], device=device)) == 0


def test_large_batches_are_split(pair, monkeypatch):
    """In parts, and beyond the size of recorded graphs, the results are the same."""
    a, b = frames_of(pair)
    pixels = [image.astype(np.float32) / 255 for image in pair[:2]]
    whole = refinement.descend(*pixels, a, b, DEVICE)
    monkeypatch.setattr(refinement, "_BATCH", 100)
    monkeypatch.setattr(refinement, "_RECORDED", 64)
    parts = refinement.descend(*pixels, a, b, DEVICE)
    for one, other in zip(
        (whole.maps, whole.shifts, whole.figures), (parts.maps, parts.shifts, parts.figures),
        strict=True,
    ):  # fmt: skip
        assert one.shape == other.shape
        assert np.quantile(np.abs(one - other), 0.98) < 1e-4


def test_out_of_memory_falls_back_to_the_cpu(pair, monkeypatch, caplog):
    a, b = (maps[:20] for maps in frames_of(pair))
    pixels = [image.astype(np.float32) / 255 for image in pair[:2]]

    monkeypatch.setattr(refinement, "_packed", out_of_memory)
    monkeypatch.setattr(refinement.graphs, "recorded", out_of_memory)
    there = refinement.descend(*pixels, a, b, DEVICE)
    np.testing.assert_array_equal(there.maps, on_cpu.descend(*pixels, a, b).maps)
    assert "refining 20 matches" in caplog.text
