"""Synthetic views agree with their stated homography."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import demo, synthetic
from caloric.bench import metrics


def measured_offset(view):
    """Return the median offset (2,) in pixels between the stated map and an ECC estimate."""
    original, changed = (
        cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.ndim == 3 else image
        for image in (view.original, view.changed)
    )
    stated = np.linalg.inv(view.homography)
    h, w = changed.shape
    # The view averages the original over the area of its pixels; blur the original accordingly.
    center = np.array([[[w / 2, h / 2], [w / 2 + 1, h / 2], [w / 2, h / 2 + 1]]])
    p, q, r = cv2.perspectiveTransform(center, stated)[0]
    sigmas = [max(0.3, 0.3 * np.linalg.norm(v - p)) for v in (q, r)]
    blurred = cv2.GaussianBlur(original, (0, 0), sigmaX=sigmas[0], sigmaY=sigmas[1])
    mask = np.zeros(original.shape, np.uint8)
    mask[40:-40, 40:-40] = 255
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 200, 1e-8)
    start = (stated / stated[2, 2]).astype(np.float32)
    estimate = cv2.findTransformECC(
        changed, blurred, start, cv2.MOTION_HOMOGRAPHY, criteria, mask, 5
    )[1]
    x, y = np.meshgrid(np.linspace(0.2, 0.8, 9) * w, np.linspace(0.2, 0.8, 9) * h)
    points = np.stack([x, y], -1).reshape(1, -1, 2)
    mapped = cv2.perspectiveTransform(points, estimate.astype(np.float64))
    return np.median(cv2.perspectiveTransform(mapped, view.homography)[0] - points[0], 0)


def rendered(image, homography):
    homography, size = synthetic.fitted(homography, image.shape, margin=5)
    return synthetic.View(image, synthetic.render(image, homography, size), homography)


def test_the_oblique_view_of_the_demo_has_no_offset():
    view = demo.oblique_view()
    assert np.abs(measured_offset(view)).max() < 0.05
    # An offset of the size that supersampling once added is detected.
    moved = replace(view, homography=synthetic.translation([0.417, 0.417]) @ view.homography)
    assert np.abs(measured_offset(moved)).min() > 0.3


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.7])
def test_rendered_and_warped_views_have_no_offset(scale):
    image = photographs.gray("camera")
    affine = synthetic.similarity(scale, 20, (3.3, -4.7), (255.5, 255.5))
    homography = np.vstack([affine, [0, 0, 1]])
    assert np.abs(measured_offset(rendered(image, homography))).max() < 0.05
    view = synthetic.View(image, synthetic.warp(image, affine), homography)
    assert np.abs(measured_offset(view)).max() < 0.05


@pytest.mark.parametrize("axis", [0.0, 1.0, -2.0])
def test_views_of_an_inclined_plane_have_no_offset(axis):
    image = photographs.gray("coffee")
    homography = synthetic.oblique(image.shape, 3.0, axis=axis, roll=0.4)
    assert np.abs(measured_offset(rendered(image, homography))).max() < 0.05


def test_the_center_of_an_inclined_plane_keeps_its_scale_along_the_axis():
    homography = synthetic.oblique((101, 201), 4.0)
    center, along, across = (
        cv2.perspectiveTransform(np.array([[[x, y]]], float), homography)[0, 0]
        for x, y in ((100, 50), (100, 50.01), (100.01, 50))
    )
    np.testing.assert_allclose(center, 0, atol=1e-9)
    assert (along - center)[1] / 0.01 == pytest.approx(1, rel=1e-4)
    assert (across - center)[0] / 0.01 == pytest.approx(0.25, rel=1e-3)
    # The right side is farther away: the vertical edge there is shorter.
    edges = [
        np.ptp(cv2.perspectiveTransform(np.array([[[x, 0], [x, 100]]], float), homography)[0, :, 1])
        for x in (0, 200)
    ]
    assert edges[0] > 1.2 * edges[1]


def test_a_fitted_view_contains_the_whole_image():
    homography, (w, h) = synthetic.fitted(np.eye(3), (30, 50))
    assert (w, h) == (50, 30)
    np.testing.assert_allclose(homography, np.eye(3), atol=1e-12)
    homography, (w, h) = synthetic.fitted(np.diag([2.0, 1, 1]), (30, 50), margin=4)
    assert (w, h) == (108, 38)
    corner = cv2.perspectiveTransform(np.array([[[-0.5, -0.5]]]), homography)
    np.testing.assert_allclose(corner, 3.5)


def test_a_reduced_view_averages_pixels():
    """At half the size, each pixel is the mean of four."""
    image = np.random.default_rng(0).integers(0, 256, (40, 60)).astype(np.float32)
    homography, size = synthetic.fitted(np.diag([0.5, 0.5, 1]), image.shape)
    view = synthetic.render(image, homography, size)
    means = image.reshape(20, 2, 30, 2).mean((1, 3))
    # Bilinear samples include some of the neighboring pixels.
    assert np.corrcoef(view[2:-2, 2:-2].ravel(), means[2:-2, 2:-2].ravel())[0, 1] > 0.95


def test_errors_are_distances_from_the_ground_truth():
    view = synthetic.View(*np.zeros((2, 4, 4), np.uint8), synthetic.translation([3, 4]))
    points = np.array([[0.0, 0], [5, 5]])
    np.testing.assert_allclose(view.errors(points, points), 5)
    assert view.errors(points[:0], points[:0]).shape == (0,)


def test_random_changes_follow_their_homography():
    image = photographs.gray("camera")
    rng = np.random.default_rng(3)
    change = replace(synthetic.draw(rng, image.shape), blur=0, noise=0, gamma=1, gain=1, quality=95)
    moved = synthetic.apply(image, change, rng)
    a, b = (caloric.extract(i, max_features=800) for i in (image, moved))
    geometry = caloric.verify(a, b, caloric.match(a, b))
    assert metrics.corner_error(geometry.matrix, change.homography, image.shape) < 3
    strong = [synthetic.affine_map(rng, 0.4) for _ in range(50)]
    assert min(np.linalg.svd(m, compute_uv=False)[1] for m in strong) > 0.35
