"""Golden vectors: what every path must give, from the plain one to a GPU.

Made by tests/golden/make.py. A change here is a change of every user's results: it needs a line in
the CHANGELOG.
"""

import runpy

import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import paths
from caloric.bench.speed import setting
from caloric.runtime import native
from tools import builds

MAKE = runpy.run_path(str(paths.GOLDEN / "make.py"))
GOLDEN = np.load(paths.GOLDEN / "pipeline.npz")


def kinds():
    try:
        import caloric_native
    except ImportError:
        return []
    return caloric_native.kinds()


def devices():
    """PyTorch's, where it is installed: its own CPU path, and a GPU with the Triton kernels."""
    try:
        import torch
    except ImportError:
        return []
    return ["torch:cpu", *(["cuda"] if torch.cuda.is_available() else [])]


PATHS = [("0", "cpu"), *((kind, "cpu") for kind in kinds()), *(("", name) for name in devices())]


@pytest.fixture(params=PATHS, ids=lambda path: path[0] or path[1])
def device(request):
    """One path after the other: the plain one, each build of the core, each device."""
    kind, device = request.param
    with setting(**{native.SETTING: kind}):
        yield device
    if kinds():
        native.core().use(kinds()[0])


def share(found, expected, near):
    """How many of the expected rows are among those found."""
    return np.mean(cKDTree(found).query(expected, p=np.inf)[0] <= near)


@pytest.mark.parametrize("name", MAKE["DEFAULTS"])
def test_descriptors(device, name):
    found = caloric.describe(MAKE["images"]()[0], MAKE["frames"](), name, device=device)
    expected = GOLDEN[f"descriptors {name}"]
    there = np.linalg.norm(expected, axis=1) > 0
    assert there.sum() > 70
    np.testing.assert_array_equal(np.linalg.norm(found, axis=1) > 0, there)
    cosines = (found.astype(np.float64) * expected).sum(1)[there]
    assert cosines.min() > 0.9999


def test_frames(device):
    found = caloric.extract(MAKE["images"]()[0], max_features=MAKE["FEATURES"], device=device)
    assert builds.share(found.frames.maps, GOLDEN["found_maps"]) >= 0.99
    np.testing.assert_allclose(found.scores, GOLDEN["found_scores"], rtol=2e-3)


def test_affine_frames(device):
    options = {"max_features": MAKE["FEATURES"], "affine": True, "device": device}
    found = caloric.extract(MAKE["images"]()[0], **options)
    assert builds.share(found.frames.maps, GOLDEN["affine_maps"], 0.05) >= 0.98


def test_matches_and_geometry(device):
    features = [
        caloric.extract(image, max_features=MAKE["FEATURES"], device=device)
        for image in (MAKE["images"]()[0], GOLDEN["image_b"])
    ]
    matches = caloric.match(*features, device=device)
    sides = zip(features, matches.indices.T, strict=True)
    points = [one.frames.xy[rows] for one, rows in sides]
    # With the distance: a place may have two directions, and so two matches.
    found = np.concatenate([*points, matches.distances[:, None]], 1)
    expected = np.concatenate(
        [GOLDEN["points_a"], GOLDEN["points_b"], GOLDEN["distances"][:, None]], 1
    )
    assert share(found, expected, 0.01) >= 0.98
    assert share(expected, found, 0.01) >= 0.98
    corners = np.array([[0, 0, 1], [511, 0, 1], [511, 511, 1], [0, 511, 1.0]])
    moved = [
        corners @ m.T for m in (caloric.verify(*features, matches).matrix, GOLDEN["homography"])
    ]
    np.testing.assert_allclose(*(m[:, :2] / m[:, 2:] for m in moved), atol=0.1)


def test_alignment(device):
    found = caloric.align(MAKE["template"](), GOLDEN["image_b"], device=device)
    assert found.converged
    np.testing.assert_allclose(found.transform, GOLDEN["alignment"], atol=5e-3)
    truth = MAKE["MOVED"].copy()
    truth[:, 2] += truth[:, :2] @ MAKE["CORNER"]
    np.testing.assert_allclose(found.transform, truth, atol=0.1)
