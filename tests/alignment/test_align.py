"""Alignment: models, contrast, small and flat templates, invalid arguments."""

import cv2
import numpy as np
import pytest

import caloric
from template_problems import SIZE, error, problem

MOVES = {
    "translation": {"shift": (13.3, -8.6)},
    "similarity": {"scale": 1.2, "degrees": 25.0, "shift": (6.0, 9.5)},
    "affine": {"scale": 0.9, "degrees": -15.0, "shift": (-5.0, 4.0), "shear": 0.15},
}


@pytest.mark.parametrize("model", MOVES)
def test_align_finds_the_transform(model):
    template, image, truth = problem(**MOVES[model])
    result = caloric.align(template, image, model=model)
    assert result.converged
    assert result.reason == "converged"
    assert error(result.transform, truth) < 0.15
    assert result.confidence > 0.8
    assert result.inside == pytest.approx(1, abs=0.1)
    sigmas = [step.sigma for step in result.path]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[-1] == 0
    assert result.energy == result.path[-1].cost
    np.testing.assert_array_equal(result.transform, result.path[-1].point)
    assert "confidence" in repr(result)


def test_align_with_inverted_contrast():
    template, image, truth = problem(degrees=10, shift=(5, 5))
    assert not caloric.align(template, 255 - image, initial=truth).converged
    result = caloric.align(template, 255 - image, inverted=True)
    assert result.converged
    assert error(result.transform, truth) < 0.15


def test_the_result_obeys_the_model_despite_a_sheared_start():
    template, image, truth = problem(degrees=10)
    start = truth.copy()
    start[0, 1] += 0.1
    for model in ("translation", "similarity"):
        A = caloric.align(template, image, model=model, initial=start).transform[:, :2]
        assert A[0, 0] == pytest.approx(A[1, 1])
        assert A[0, 1] == pytest.approx(-A[1, 0])


def test_a_textured_patch_in_a_plain_image_is_not_flat():
    template, _, _ = problem()
    plain = np.full((600, 600), 120, np.uint8)
    plain[300 : 300 + SIZE, 200 : 200 + SIZE] = template
    result = caloric.align(template, plain)
    assert result.converged
    np.testing.assert_allclose(result.transform, [[1, 0, 200], [0, 1, 300]], atol=0.05)


def test_flat_images_are_not_aligned():
    template, image, _ = problem()
    flat = np.full_like(template, 90)
    for images, name in (
        ((flat, image), "template"),
        ((template, np.full_like(image, 90)), "image"),
    ):
        result = caloric.align(*images)
        assert not result.converged
        assert result.reason == f"the {name} is flat"
        assert result.path == ()


@pytest.mark.parametrize(
    ("template", "image"), [((8, 8), (8, 8)), ((8, 200), (20, 210)), ((8, 9), (70, 90))]
)
@pytest.mark.parametrize("model", ["translation", "similarity", "affine"])
def test_small_and_thin_templates_are_not_an_error(template, image, model):
    rng = np.random.default_rng(0)
    pixels = cv2.GaussianBlur(rng.random(image).astype(np.float32), (0, 0), 1.0)
    part = pixels[: template[0], : template[1]]
    result = caloric.align(part, pixels, model=model)
    assert np.isfinite(result.transform).all()
    assert 0 <= result.confidence <= 1
    still = caloric.align(part, pixels, model=model, initial=[[1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(still.transform, [[1, 0, 0], [0, 1, 0]], atol=0.3)


BAD = [
    ({"template": np.zeros((7, 40))}, "at least 8 x 8"),
    ({"template": np.zeros((400, 20))}, "do not fit"),
    ({"template": np.full((20, 20), np.nan)}, "template: NaN"),
    ({"initial": "center"}, "numbers"),
    ({"initial": [[1, 0, 60], [0, 1, 120]], "method": "single"}, "detector"),
    ({"image": np.full((90, 90), np.inf)}, "NaN"),
    ({"image": "photo.jpg"}, "photo.jpg: no such file"),
    ({"initial": np.eye(2)}, "2 x 3"),
    ({"initial": np.full((2, 3), np.nan)}, "2 x 3"),
    ({"initial": [[1, 0, 900], [0, 1, 0]]}, "0% of the template"),
    ({"initial": [[-1, 0, 50], [0, 1, 0]]}, "mirror"),
    ({"initial": [[40, 0, 0], [0, 40, 0]]}, "more than 10"),
    ({"model": "homography"}, "unknown model"),
    ({"method": "luck"}, "unknown method"),
    ({"diffusion": "none"}, "unknown diffusion"),
    ({"feature": "color"}, "unknown feature"),
    ({"feature": 3, "inverted": True}, "unknown feature"),
    ({"feature": "distribution-field", "inverted": True}, "inverted"),
]


@pytest.mark.parametrize(("changed", "match"), BAD)
def test_invalid_arguments_are_reported(changed, match):
    template, image, _ = problem()
    arguments = {"template": template, "image": image} | changed
    with pytest.raises(caloric.InputError, match=match):
        caloric.align(arguments.pop("template"), arguments.pop("image"), **arguments)


@pytest.mark.parametrize("feature", ["distribution-field", "distribution-field-heat"])
def test_distribution_fields_align_under_constant_illumination(feature):
    template, image, truth = problem(degrees=12, shift=(6, -4))
    result = caloric.align(template, image, feature=feature)
    assert result.converged
    assert error(result.transform, truth) < 0.3


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    template, image, _ = problem(degrees=20)
    results = []
    for count in ("1", "3"):
        monkeypatch.setenv("CALORIC_THREADS", count)
        results.append(caloric.align(template, image))
    np.testing.assert_array_equal(results[0].transform, results[1].transform)
    np.testing.assert_array_equal(results[0].covariance, results[1].covariance)
