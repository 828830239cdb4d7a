"""Golden vectors: the results that every implementation must reproduce, from NumPy to a GPU.

tests/golden/make.py writes them. A changed vector changes the results of every user and needs a
line in the CHANGELOG.
"""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import two_view_scenes
from caloric.bench.speed import setting
from caloric.descriptor import recipes
from caloric.kernels import KERNELS
from caloric.runtime import native
from golden import make
from marks import exact_sampling
from tools import builds

GOLDEN = np.load(make.path("pipeline"))


def kinds():
    try:
        import caloric_native
    except ImportError:
        return []
    return builds.distinct(caloric_native.kinds())


def devices():
    """Return the devices of PyTorch, if installed: its CPU, and a GPU with the Triton kernels."""
    try:
        import torch
    except ImportError:
        return []
    return ["torch:cpu", *(["cuda"] if torch.cuda.is_available() else [])]


PATHS = [("0", "cpu"), *((kind, "cpu") for kind in kinds()), *(("", name) for name in devices())]


@pytest.fixture(params=PATHS, ids=lambda path: path[0] or path[1])
def device(request):
    """Return the device of each implementation: NumPy, each build of the core, each device."""
    kind, device = request.param
    with setting(**{native.SETTING: kind}):
        yield device
    if kinds():
        native.core().use(native.core().kinds()[0])


def share(rows, expected, near):
    """Return the fraction of expected rows that are within ``near`` of one of the rows."""
    return np.mean(cKDTree(rows).query(expected, p=np.inf)[0] <= near)


def load(name):
    file = make.path(name)
    assert file.exists(), f"no golden vectors of {name!r}; write them: make golden KERNEL={name}"
    return np.load(file)


def test_each_file_is_listed():
    files = {path.stem for path in make.GOLDEN.rglob("*.npz")}
    assert files <= set(make.NAMES)
    assert set(caloric.descriptors()) <= set(make.NAMES)


@pytest.mark.parametrize("kind", ["0", *kinds()])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(kind, name):
    stored = load(name)
    with setting(**{native.SETTING: kind}):
        descriptors = caloric.describe_patches(stored["patches"], name)
    # Compare squares: the root amplifies rounding of entries near 0 a thousand times.
    np.testing.assert_allclose(descriptors**2, stored["descriptors"] ** 2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", make.DEFAULTS)
@exact_sampling
def test_descriptors(device, name):
    descriptors = caloric.describe(make.image(), make.frames(), name, device=device)
    expected = load(name)["descriptors"]
    nonzero = np.linalg.norm(expected, axis=1) > 0
    assert nonzero.sum() > 70
    np.testing.assert_array_equal(np.linalg.norm(descriptors, axis=1) > 0, nonzero)
    cosines = (descriptors.astype(np.float64) * expected).sum(1)[nonzero]
    assert cosines.min() > 0.9999


@exact_sampling
def test_frames(device):
    features = caloric.extract(make.image(), max_features=make.FEATURES, device=device)
    assert builds.share(features.frames.maps, GOLDEN["found_maps"]) >= 0.99
    np.testing.assert_allclose(features.scores, GOLDEN["found_scores"], rtol=2e-3)


def test_affine_frames(device):
    options = {"max_features": make.FEATURES, "affine": True, "device": device}
    features = caloric.extract(make.image(), **options)
    assert builds.share(features.frames.maps, GOLDEN["affine_maps"], 0.05) >= 0.98


def test_matches_and_geometry(device):
    features = [
        caloric.extract(image, max_features=make.FEATURES, device=device)
        for image in (make.image(), GOLDEN["image_b"])
    ]
    matches = caloric.match(*features, device=device)
    sides = zip(features, matches.indices.T, strict=True)
    points = [one.frames.xy[rows] for one, rows in sides]
    # Include the distance, because a position with two orientations can have two matches.
    rows = np.concatenate([*points, matches.distances[:, None]], 1)
    expected = np.concatenate(
        [GOLDEN["points_a"], GOLDEN["points_b"], GOLDEN["distances"][:, None]], 1
    )
    assert share(rows, expected, 0.01) >= 0.98
    assert share(expected, rows, 0.01) >= 0.98
    corners = np.array([[0, 0, 1], [511, 0, 1], [511, 511, 1], [0, 511, 1.0]])
    moved = [
        corners @ m.T for m in (caloric.verify(*features, matches).matrix, GOLDEN["homography"])
    ]
    np.testing.assert_allclose(*(m[:, :2] / m[:, 2:] for m in moved), atol=0.1)


def test_alignment(device):
    alignment = caloric.align(make.template(), GOLDEN["image_b"], device=device)
    assert alignment.converged
    np.testing.assert_allclose(alignment.transform, GOLDEN["alignment"], atol=5e-3)
    truth = make.MOVED.copy()
    truth[:, 2] += truth[:, :2] @ make.CORNER
    np.testing.assert_allclose(alignment.transform, truth, atol=0.1)


def test_refine(device):
    stored = load("refine")
    assert 120 < stored["moved"].sum() < 150
    refined = caloric.refine(
        make.image(), GOLDEN["image_b"], stored["maps_a"], stored["maps_b"], device=device
    )
    # Measured: 3e-5 px between NumPy, the builds of the core and torch on the CPU.
    near = 1e-3 if device == "cuda" else 2e-4
    same = refined.moved == stored["moved"]
    assert same.mean() >= (0.98 if device == "cuda" else 1)
    np.testing.assert_allclose(refined.maps[same], stored["maps"][same], atol=near)
    moved = refined.moved & stored["moved"]
    for name in ("covariances", "total_covariances"):
        covariances = getattr(refined, name)
        np.testing.assert_allclose(
            covariances[moved], stored[name][moved], rtol=10 * near, atol=near**2
        )
    assert np.isinf(refined.covariances[~refined.moved][:, 0, 0]).all()


@pytest.mark.parametrize("enabled", ["0", "1"])
@pytest.mark.parametrize("model", two_view_scenes.MODELS)
def test_geometry(model, enabled):
    stored = load("geometry")
    with setting(**{native.SETTING: enabled}):
        estimated_model = make.estimated(model, stored[f"{model}_a"], stored[f"{model}_b"])
    # Measured: 2e-6 px between NumPy and the core, for essential matrices.
    np.testing.assert_allclose(
        estimated_model["residuals"], stored[f"{model}_residuals"], atol=1e-4
    )
    np.testing.assert_allclose(estimated_model["noise"], stored[f"{model}_noise"], rtol=1e-4)
    np.testing.assert_allclose(estimated_model["errors"], stored[f"{model}_errors"], rtol=1e-3)


def shapes(maps):
    """Return rows (n, 7) that are close for similar frames: position, scale, shape."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    linear = maps[:, :, :2] / sigma[:, None, None]
    return np.concatenate([maps[:, :, 2], np.log(sigma)[:, None], linear.reshape(-1, 4)], 1)


@exact_sampling
def test_views(device):
    stored = load("views")
    features = caloric.extract(make.image(), **make.VIEWS, device=device)
    rows, expected = shapes(features.frames.maps), shapes(stored["maps"])
    distances, nearest = cKDTree(rows).query(expected, p=np.inf)
    common = distances <= builds.NEAR
    assert common.mean() >= 0.98
    assert share(expected, rows, builds.NEAR) >= 0.98
    if device != "cpu":
        # Devices render all views of a tilt in one size, so their pixels outside the image differ:
        # compare only features whose samples are inside.
        xy, sigma = stored["maps"][:, :, 2], np.linalg.svd(stored["maps"][:, :, :2])[1][:, 0]
        reach = recipes.descriptor("caloric").sampling.reach
        common &= np.minimum(xy, 511 - xy).min(1) > reach * sigma
        assert common.sum() > 60
    descriptors = features.descriptors[nearest[common]].astype(np.float64)
    cosines = (descriptors * stored["descriptors"][common]).sum(1)
    assert cosines.min() > 0.9999
