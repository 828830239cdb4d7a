"""Propagated matches of two images are correct, and nothing is made up."""

import cv2
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import caloric
from caloric.matching.neighbors import ORIGINS

PROPAGATED = ORIGINS.index("propagation")


def texture(seed=0, shape=(300, 400)):
    noise = np.random.default_rng(seed).random(shape)
    image = gaussian_filter(noise, 1.5) + 2 * gaussian_filter(noise, 5)
    return (255 * (image - image.min()) / np.ptp(image)).astype(np.uint8)


@pytest.fixture(scope="module")
def pair():
    """A texture and its image under a homography, matched with few features."""
    image = texture()
    matrix = np.array([[0.95, 0.12, 8], [-0.1, 1.02, 12], [1e-4, 5e-5, 1]])
    second = cv2.warpPerspective(image, matrix, (400, 300), flags=cv2.INTER_CUBIC)
    options = {"model": "homography", "views": None, "max_features": 300}
    return matrix, caloric.match_images(image, second, **options), (image, second), options


def test_propagation_adds_correct_matches(pair):
    matrix, result, (image, second), options = pair
    before = caloric.match_images(image, second, propagate=False, **options)
    assert len(result) > 1.2 * len(before)
    new = result.matches.origin == PROPAGATED
    assert new.sum() == sum(result.propagated_features) > 20
    p, q = result.all_points()
    z = np.concatenate([p, np.ones((len(p), 1))], 1) @ matrix.T
    errors = np.linalg.norm(z[:, :2] / z[:, 2:] - q, axis=1)
    assert (errors[new] < 1).mean() > 0.97
    assert result.geometry.confidence == before.geometry.confidence


def test_features_and_matches_stay_consistent(pair):
    result = pair[1]
    matches, (a, b) = result.matches, (result.features_a, result.features_b)
    assert matches.indices[:, 0].max() < len(a)
    assert matches.indices[:, 1].max() < len(b)
    assert len(matches.refined) == len(matches.covariances) == len(matches.origin) == len(matches)
    new = matches[matches.origin == PROPAGATED]
    products = (a.descriptors[new.indices[:, 0]] * b.descriptors[new.indices[:, 1]]).sum(1)
    assert products.min() > 0.5
    np.testing.assert_allclose(new.distances, np.sqrt(2 - 2 * products), atol=1e-3)
    assert f"{len(new)} of them propagated" in result.summary
    assert matches[:5].origin.shape == (5,)


def test_nothing_is_propagated_to_flat_or_hidden_regions(pair):
    """A part of the second image is covered: by a flat region, and by another texture."""
    _, _, (image, second), options = pair
    for cover in (np.full((120, 150), 128, np.uint8), texture(5, (120, 150))):
        covered = second.copy()
        covered[90:210, 130:280] = cover
        result = caloric.match_images(image, covered, **options)
        q = result.points_b[result.matches.origin[result.geometry.inliers] == PROPAGATED]
        inside = ((q > [140, 100]) & (q < [270, 200])).all(1)
        assert inside.sum() <= 0.01 * len(q)


@pytest.mark.parametrize("shift", [7, 20, 43])
def test_a_repeated_texture_gives_no_shifted_matches(shift):
    """A facade of equal windows with a period of 50 pixels, and one part that differs."""
    image = np.tile(texture(3, (50, 50)), (6, 9))
    image[100:200, 150:300] = texture(4, (100, 150))
    options = {"model": "homography", "views": None, "max_features": 500}
    result = caloric.match_images(image[:, :400], image[:, shift : 400 + shift], **options)
    assert result
    errors = np.linalg.norm(result.points_a - (shift, 0) - result.points_b, axis=1)
    assert (errors < 1).mean() > 0.99


@pytest.mark.parametrize("shift", [(3, 5), (7, 13)])
def test_nothing_is_propagated_on_a_regular_pattern(shift):
    """A checkerboard has matches that are off by a period, so nothing may be added to them."""
    board = np.kron(np.indices((20, 20)).sum(0) % 2, np.ones((20, 20))) * 200 + 20
    rng, (x, y) = np.random.default_rng(0), shift
    crops = board[:300, :300], board[y : 300 + y, x : 300 + x]
    images = [(gaussian_filter(v, 1.0) + rng.normal(0, 2, v.shape)).astype(np.uint8) for v in crops]
    result = caloric.match_images(*images, views=None, max_features=1500)
    assert sum(result.propagated_features) == 0


@pytest.mark.parametrize("model", ["fundamental", "essential", "affine"])
def test_other_models_are_propagated(pair, model):
    """The images show a plane, so that the homography is the truth for all models."""
    matrix, _, (image, second), options = pair
    calibration = np.array([[400.0, 0, 200], [0, 400, 150], [0, 0, 1]])
    extra = {"intrinsics": (calibration, calibration)} if model == "essential" else {}
    threshold = 12.0 if model == "affine" else 2.0
    kwargs = options | {"model": model, "threshold": threshold} | extra
    before = caloric.match_images(image, second, propagate=False, **kwargs)
    result = caloric.match_images(image, second, **kwargs)
    assert len(result) >= len(before)
    new = result.matches.origin == PROPAGATED
    p, q = (points[new] for points in result.all_points())
    z = np.concatenate([p, np.ones((len(p), 1))], 1) @ matrix.T
    errors = np.linalg.norm(z[:, :2] / z[:, 2:] - q, axis=1)
    assert new.sum() > 20
    assert (errors < 2).mean() > 0.97


def test_masks_limit_propagation(pair):
    _, _, (image, second), options = pair
    mask = np.ones(second.shape, np.uint8)
    mask[:, 200:] = 0
    result = caloric.match_images(image, second, masks=(None, mask), **options)
    new = result.matches.origin == PROPAGATED
    assert new.sum() > 10
    assert result.all_points()[1][new, 0].max() < 200.5


def test_unrelated_images_have_no_propagated_matches():
    result = caloric.match_images(texture(1), texture(2), views=None, max_features=300)
    assert not result
    assert sum(result.propagated_features) == 0


def test_agreement_keeps_more_correct_matches(pair):
    image, second = pair[2]
    noisy = second + np.random.default_rng(0).normal(0, 25, second.shape)
    noisy = np.clip(noisy, 0, 255).astype(np.uint8)
    a, b = (caloric.extract(i, max_features=300) for i in (image, noisy))
    plain, more = (caloric.match(a, b, ratio=0.8, agreement=v) for v in (False, True))
    assert len(more) > len(plain)
    assert set(map(tuple, plain.indices)) <= set(map(tuple, more.indices))
    np.testing.assert_array_equal((more.origin == 0).sum(), len(plain))
    (of_list,) = caloric.match([(a, b)], ratio=0.8, agreement=True)
    np.testing.assert_array_equal(of_list.indices, more.indices)
    with pytest.raises(caloric.InputError, match=r"needs caloric\.Features"):
        caloric.match(a.descriptors, b.descriptors, agreement=True)
