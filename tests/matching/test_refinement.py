"""Refined matches: accuracy, unchanged matches, and covariances, with and without the core."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
import photographs
from caloric.bench.speed import setting
from caloric.matching import refinement
from caloric.runtime import native
from matched_views import MOVED, frames_of, matched_views


def unit(image):
    return image.astype(np.float32) / 255


@pytest.fixture(scope="module")
def pair():
    return matched_views()


def errors(maps_a, maps_b):
    return np.linalg.norm(maps_b[:, :, 2] - photographs.apply(MOVED, maps_a[:, :, 2]), axis=1)


def test_refined_matches_are_more_accurate_and_stay_close(pair):
    first, second, a, b, plain = pair
    refined = caloric.match(a, b, refine=True, images=(first, second))
    np.testing.assert_array_equal(plain.indices, refined.indices)
    assert plain.refined is None
    maps_a, maps_b = frames_of(pair)
    before, after = errors(maps_a, maps_b), errors(maps_a, refined.refined)
    correct = before < 2
    assert np.median(after[correct]) < 0.5 * np.median(before[correct])
    sigma = b.frames.sigma[plain.indices[:, 1]]
    shift = np.linalg.norm(refined.refined[:, :, 2] - maps_b[:, :, 2], axis=1)
    assert (shift <= sigma + 1e-9).all()
    # The frames' shapes follow the affine map: A_b = M A_a.
    expected = MOVED[:, :2] @ maps_a[correct, :, :2]
    shape_errors = [
        np.median(np.linalg.norm(m[correct, :, :2] - expected, axis=(1, 2)) / sigma[correct])
        for m in (maps_b, refined.refined)
    ]
    assert shape_errors[1] < 0.5 * shape_errors[0]
    assert (refined[:10].covariances == refined.covariances[:10]).all()


@pytest.mark.skipif(native.core() is None, reason="no compiled core")
def test_the_core_and_numpy_agree(pair):
    pixels, maps = [unit(image) for image in pair[:2]], frames_of(pair)
    rng = np.random.default_rng(0)
    # Frames outside the image, large frames and sheared frames.
    difficult = [m.copy() for m in maps]
    difficult[1][::7, :, 2] += rng.normal(0, 200, difficult[1][::7, :, 2].shape)
    difficult[0][::5, :, :2] *= 6
    difficult[1][::5, :, :2] *= 6
    difficult[1][::4, :, :2] = difficult[1][::4, :, :2] @ np.array([[1.2, 0.3], [0, 0.9]])
    for a, b in (maps, difficult):
        fast = refinement.refine(*pixels, a, b)
        with setting(CALORIC_NATIVE="0"):
            plain = refinement.refine(*pixels, a, b)
        assert (fast.moved == plain.moved).mean() > 0.99
        both = fast.moved & plain.moved
        distances = np.linalg.norm(fast.xy - plain.xy, axis=1)[both]
        # If the costs are nearly equal, only one of the two may accept a step.
        assert np.quantile(distances, 0.99) < 1e-3
        for name in ("covariances", "total_covariances"):
            variances = [getattr(result, name)[both][:, 0, 0] for result in (fast, plain)]
            assert np.abs(np.log(np.quantile(np.divide(*variances), [0.01, 0.99]))).max() < 0.01


@pytest.mark.skipif(native.core() is None, reason="no compiled core")
def test_the_core_and_numpy_accept_the_same_matches(pair):
    maps_a, maps_b = frames_of(pair)
    before = np.concatenate([maps_b, maps_b[:8]])
    end = refinement.descend(*map(unit, pair[:2]), np.concatenate([maps_a, maps_a[:8]]), before)
    maps, statistics = end.maps[-8:], end.statistics[-8:]
    maps[0, 0, 2] += 100
    maps[1, :, :2] *= 2
    maps[2, :, :2] = 0
    maps[3] = np.nan
    statistics[4, 1] = statistics[4, 0]
    statistics[5, 1:] = 0.6, 1
    statistics[6, 2] = 0
    end.total_shifts[-1, 0, 0] = np.inf
    core, numpy = (
        accept(before, end) for accept in (refinement._accepted_by_core, refinement._accepted)
    )
    assert 0.5 * len(before) < core.moved.sum() < len(before)
    assert not core.moved[-8:].any()
    for name in ("maps", "moved", "covariances", "total_covariances"):
        np.testing.assert_array_equal(getattr(core, name), getattr(numpy, name))


@pytest.mark.parametrize("kind", ["", "0"])
def test_frames_with_a_high_cost_are_given_up_before_the_first_step(pair, kind):
    pixels, (a, b) = [unit(image) for image in pair[:2]], frames_of(pair)
    b = b.copy()
    b[::2, :, 2] += 40  # unrelated patches
    with setting(CALORIC_NATIVE=kind):
        unlimited = refinement.descend(*pixels, a, b).statistics
        limited = refinement.descend(*pixels, a, b, max_start_cost=1.0).statistics
    given_up = (limited == 0).all(1)
    np.testing.assert_array_equal(limited[~given_up], unlimited[~given_up])
    assert given_up[::2].mean() > 0.9
    assert given_up[1::2].mean() < 0.1


def scatter(first, second, a, b, noise, copies):
    """Return the sample covariances over noisy copies, and the mean predicted covariances."""
    rng = np.random.default_rng(0)

    def noisy(image):
        return image + rng.normal(0, noise, image.shape).astype(np.float32)

    results = [refinement.refine(noisy(first), noisy(second), a, b) for _ in range(copies)]
    always = np.all([one.moved for one in results], axis=0)
    xy = np.array([one.xy[always] for one in results])
    deviations = xy - xy.mean(0)
    measured = np.einsum("kmi,kmj->mij", deviations, deviations) / (copies - 1)
    return measured, np.mean([one.covariances[always] for one in results], axis=0)


@pytest.mark.parametrize(("noise", "copies"), [(0.01, 200), (0.03, 60)])
def test_covariances_predict_the_scatter_of_noisy_copies(pair, noise, copies):
    if native.core() is None:
        copies = min(copies, 60)  # with fewer, some frames that are lost in many are counted
    first, second = (unit(image) for image in pair[:2])
    measured, predicted = scatter(first, second, *(m[:150] for m in frames_of(pair)), noise, copies)
    assert len(measured) > 80
    ratio = np.sqrt(np.trace(predicted, axis1=1, axis2=2) / np.trace(measured, axis1=1, axis2=2))
    assert 0.8 < np.median(ratio) < 1.25
    assert (np.abs(ratio - 1) < 0.5).mean() > 0.85
    # On edges, the uncertain direction is predicted too.
    (values, axes), (_, predicted_axes) = (np.linalg.eigh(c) for c in (measured, predicted))
    stretched = values[:, 1] > 4 * values[:, 0]
    along = np.abs(np.einsum("mi,mi->m", axes[:, :, 1], predicted_axes[:, :, 1]))
    assert np.median(along[stretched]) > 0.95


@pytest.mark.parametrize("name", ["coffee", "camera"])
def test_total_covariances_predict_errors_beyond_noise(name):
    """A view that is not affine, with noise and JPEG compression; errors are known exactly."""
    first = photographs.gray(name, (400, 400))

    def source(x, y):
        """Return the position in the first view of a position in the second."""
        return x + 0.2 * np.sin(y / 17) + 0.02 * x, y + 0.2 * np.sin(x / 13) - 0.03 * y

    y, x = np.mgrid[:400, :400]
    second = cv2.remap(first, *np.float32(source(x, y)), cv2.INTER_CUBIC)
    rng = np.random.default_rng(0)
    images = []
    for image in (first, second):
        noisy = np.clip(image + rng.normal(0, 3, image.shape), 0, 255).astype(np.uint8)
        jpeg = cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        images.append(cv2.imdecode(jpeg, cv2.IMREAD_GRAYSCALE))
    a = caloric.detect(first, max_features=500).maps.astype(float)
    a = a[(np.abs(a[:, :, 2] - 200) < 170).all(1)]
    truth = a[:, :, 2].copy()
    for _ in range(30):  # fixed-point iterations for the inverse
        truth += a[:, :, 2] - np.stack(source(*truth.T), 1)
    b = a.copy()
    b[:, :, 2] = truth + rng.normal(0, 0.3, truth.shape)
    result = caloric.refine(*images, a, b)
    moved = result.moved
    assert moved.mean() > 0.8
    errors = np.abs(result.xy - truth)[moved]
    measured = 1.4826 * np.median(errors / np.sqrt(
        np.diagonal(result.total_covariances[moved], axis1=1, axis2=2)), axis=0)  # fmt: skip
    assert (np.abs(np.log(measured)) < 0.4).all()
    by_noise = np.diagonal(result.covariances[moved], axis1=1, axis2=2)
    assert 1.4826 * np.median(errors / np.sqrt(by_noise)) > 2
    excess = result.total_covariances[moved] - result.covariances[moved]
    assert (np.linalg.eigvalsh(excess) > -1e-12).all()


def test_matches_in_flat_regions_are_unchanged():
    frames = caloric.Frames.from_xysa([40.0, 20.0], [40.0, 30.0], [4.0, 2.0])
    black = np.zeros((80, 80), np.float32)
    textured = unit(photographs.gray("camera", (80, 80)))
    for images in ((black, black), (black, textured), (textured, black)):
        assert not refinement.refine(*images, frames.maps, frames.maps).moved.any()
    flat = np.full((80, 80), 0.5, np.float32)
    result = refinement.refine(flat, flat, frames.maps, frames.maps + 0.3)
    assert not result.moved.any()
    np.testing.assert_array_equal(result.maps, frames.maps + 0.3)
    assert np.isinf(result.covariances[:, [0, 1], [0, 1]]).all()
    assert len(refinement.refine(flat, flat, frames.maps[:0], frames.maps[:0]).maps) == 0


def test_matches_in_repeated_structure_do_not_jump():
    """Stripes repeat every eight pixels, but no match moves to the next one."""
    x = np.arange(200)
    stripes = np.tile(0.5 + 0.2 * np.sin(2 * np.pi * x / 8), (200, 1)).astype(np.float32)
    stripes += np.random.default_rng(0).normal(0, 0.01, stripes.shape).astype(np.float32)
    maps = caloric.Frames.from_xysa(np.full(20, 100.0), np.linspace(60, 140, 20), 3.0).maps
    for shift in (1.0, 3.5, 5.0):
        start = maps.copy()
        start[:, 0, 2] += shift
        result = refinement.refine(stripes, stripes, maps, start)
        moved = np.abs(result.xy - start[:, :, 2])
        assert (moved <= 3.0 + 1e-9).all()
        # The position along the stripes is not determined: the match is uncertain or unchanged.
        along = result.covariances[:, 1, 1]
        assert (along > 20 * result.covariances[:, 0, 0])[result.moved].all()


def test_occluded_matches_are_unchanged(pair):
    first, second = (unit(image) for image in pair[:2])
    maps_a, maps_b = frames_of(pair)
    covered = second.copy()
    noise = np.random.default_rng(0).random((120, 120)).astype(np.float32)
    covered[120:240, 120:240] = cv2.GaussianBlur(noise, (0, 0), 1.5)
    xy, reach = maps_b[:, :, 2], 5 * np.sqrt(np.abs(np.linalg.det(maps_b[:, :, :2])))
    inside = (np.abs(xy - 180).max(1) + reach) < 60
    assert inside.sum() > 10
    result = refinement.refine(first, covered, maps_a, maps_b)
    assert result.moved[inside].mean() < 0.05
    outside = (np.abs(xy - 180).max(1) - reach) > 60
    assert result.moved[outside].mean() > 0.9


@settings(max_examples=20, deadline=None)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-15, 15), st.floats(0.85, 1.2))
def test_a_known_displacement_is_corrected(dx, dy, degrees, scale):
    image = unit(photographs.gray("camera", (200, 200)))
    detected = caloric.detect(image, max_features=150)
    inner = np.abs(detected.xy - 100).max(1) + 5 * detected.sigma < 95
    maps = detected.maps[inner & (detected.sigma > 2)]
    c, s = scale * np.cos(np.radians(degrees)), scale * np.sin(np.radians(degrees))
    start = maps.copy()
    start[:, :, :2] = start[:, :, :2] @ np.array([[c, -s], [s, c]])
    start[:, :, 2] += [dx, dy]
    result = refinement.refine(image, image, maps, start)
    distances = np.linalg.norm(result.xy - maps[:, :, 2], axis=1)
    assert len(distances) > 20
    assert np.median(distances) < 0.05  # even if nothing had to move
    if np.hypot(dx, dy) > 0.1:
        assert result.moved.mean() > 0.5
        assert np.median(distances[result.moved]) < 0.02


# Matches of other methods.


def test_points_frames_and_keypoints_of_other_methods(pair):
    first, second, a, b, matches = pair
    maps_a, maps_b = frames_of(pair)
    points = caloric.refine(first, first, maps_a[:, :, 2], maps_a[:, :, 2] + 0.4)
    assert points.moved.mean() > 0.8
    assert np.median(np.linalg.norm(points.xy - maps_a[:, :, 2], axis=1)) < 0.02
    assert "Refined(" in repr(points)
    sift = cv2.SIFT_create(500)
    (kp_a, da), (kp_b, db) = (sift.detectAndCompute(image, None) for image in (first, second))
    sift_matches = cv2.BFMatcher(crossCheck=True).match(da, db)
    chosen_a = [kp_a[m.queryIdx] for m in sift_matches]
    chosen_b = [kp_b[m.trainIdx] for m in sift_matches]
    refined = caloric.refine(first, second, chosen_a, chosen_b)
    p, q = (np.array([k.pt for k in chosen]) for chosen in (chosen_a, chosen_b))
    before = np.linalg.norm(q - photographs.apply(MOVED, p), axis=1)
    after = np.linalg.norm(refined.xy - photographs.apply(MOVED, p), axis=1)
    correct = before < 2
    assert correct.sum() > 100
    assert np.median(after[correct]) < 0.6 * np.median(before[correct])
    same = caloric.refine(
        first, second, a.frames[matches.indices[:, 0]], b.frames[matches.indices[:, 1]]
    )
    np.testing.assert_array_equal(same.maps, caloric.refine(first, second, maps_a, maps_b).maps)


@pytest.mark.parametrize("use_core", ["0", "1"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 2), (7, 90), (90, 4000)])
def test_tiny_images_and_points_outside_them(use_core, shape):
    image = np.random.default_rng(0).random(shape).astype(np.float32)
    points = [[0.0, 0.0], [-1e5, 3.0], [2e9, -2e9], [10.0, 9e5], [shape[1] / 2, shape[0] / 2]]
    with setting(CALORIC_NATIVE=use_core):
        result = caloric.refine(image, image, points, points)
        large = caloric.refine(image, image, points, points, sigma=1e7)
    assert np.isfinite(result.maps).all()
    assert not result.moved[1:4].any()
    assert not large.moved.any()
