"""Transforms: parameters, composition, and the part of a template inside an image."""

import numpy as np
import pytest

import photographs
from caloric.alignment import transforms

TEMPLATE, IMAGE = (60, 90), (200, 240)


def test_a_similarity_has_its_scale_and_angle():
    moved = photographs.similarity(1.3, 25, (5, -3), (40, 40))
    assert transforms.scale(moved) == pytest.approx(1.3)
    assert transforms.angle(moved) == pytest.approx(np.radians(25))
    assert transforms.plausible(moved)


@pytest.mark.parametrize(
    "linear", [[[1, 0], [0, -1]], [[11, 0], [0, 11]], [[0.09, 0], [0, 1]], [[np.nan, 0], [0, 1]]]
)
def test_mirrored_extreme_and_infinite_transforms_are_not_plausible(linear):
    assert not transforms.plausible(np.column_stack([np.array(linear, float), [0.0, 0.0]]))


@pytest.mark.parametrize("model", transforms.PARAMETERS)
def test_steps_are_undone_by_their_inverse(model):
    count = transforms.PARAMETERS[model]
    start = photographs.similarity(1.1, 10, (30, 20), (45, 30))
    step = np.linspace(-0.05, 0.04, count)
    moved = transforms.composed(TEMPLATE, model, start, step)
    assert np.abs(moved - start).max() > 0.5
    delta = transforms._update(model, step)
    back = np.linalg.inv(delta) - np.eye(3)
    inverse = {
        "translation": [back[0, 2], back[1, 2]],
        "similarity": [back[0, 0], back[1, 0], back[0, 2], back[1, 2]],
        "affine": [*back[0, :2], *back[1, :2], back[0, 2], back[1, 2]],
    }[model]
    again = transforms.composed(TEMPLATE, model, moved, np.array(inverse))
    np.testing.assert_allclose(again, start, atol=1e-9)


def test_shifts_are_in_units_of_the_radius():
    start = np.array([[1.0, 0, 20], [0, 1, 30]])
    moved = transforms.composed(TEMPLATE, "translation", start, np.array([0.5, 0.0]))
    assert start[0, 2] - moved[0, 2] == pytest.approx(0.5 * transforms.radius(TEMPLATE))


def test_restricted_transforms_keep_the_center():
    center = transforms.center(TEMPLATE)
    affine = np.array([[1.2, 0.3, 5], [-0.1, 0.9, 8.0]])
    for model in ("translation", "similarity", "affine"):
        A, b = np.split(transforms.restricted(affine, model, center), (2,), 1)
        np.testing.assert_allclose(A @ center + b[:, 0], affine[:, :2] @ center + affine[:, 2])
        if model == "similarity":
            assert A[0, 0] == pytest.approx(A[1, 1])
            assert A[0, 1] == pytest.approx(-A[1, 0])
        elif model == "translation":
            np.testing.assert_array_equal(A, np.eye(2))


def test_shares_and_masks_of_samples_outside_the_image():
    middle = transforms.centered(TEMPLATE, IMAGE)
    assert transforms.inside(middle, TEMPLATE, IMAGE) == 1
    assert transforms.outside(TEMPLATE, 2, IMAGE, middle) is None
    half = middle.copy()
    half[0, 2] = -TEMPLATE[1] / 2
    assert transforms.inside(half, TEMPLATE, IMAGE) == pytest.approx(0.5, abs=0.05)
    outside = transforms.outside(TEMPLATE, 2, IMAGE, half).reshape(30, 45)
    np.testing.assert_array_equal(outside, np.tile(2 * np.arange(45) + half[0, 2] < -0.5, (30, 1)))


def test_the_covered_part_has_the_same_pixels():
    image = np.random.default_rng(0).random(IMAGE)
    moved = photographs.similarity(1.2, 30, (50, 20), (45, 30))
    part, inner = transforms.covered(image, moved, TEMPLATE)
    assert part.size < image.size
    corner = moved[:, 2] - inner[:, 2]
    x, y = corner.astype(int)
    np.testing.assert_array_equal(part, image[y : y + part.shape[0], x : x + part.shape[1]])
    np.testing.assert_allclose(transforms.rescaled(inner, 2)[:, 2], 2 * inner[:, 2])
