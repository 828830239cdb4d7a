"""Starting points: features, detectors, parts, and the search of large images."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.alignment import align, scenes, starts
from caloric.descriptor import fields
from template_problems import error, photograph, problem, unit


@pytest.mark.parametrize("matrix", [
    [[2000.0, 0, 10], [0, 2000, 10]], [[1, 0, 0], [0, -1, 90]], [[1, 50, 0], [0, 1, 0]],
    [[np.nan, 0, 0], [0, 1, 0]],
])  # fmt: skip
def test_implausible_transforms_of_features_are_ignored(matrix, monkeypatch):
    """They occurred, and blurring for a scale of thousands took minutes."""
    estimate = starts.geometry.Geometry("affine", np.array(matrix), np.ones(0, bool), np.ones(0))
    monkeypatch.setattr(starts.geometry, "estimate", lambda *a, **k: estimate)
    template, image, _ = problem()
    scene = scenes.scene(unit(template), unit(image), fields.feature("orientation"))
    assert starts.from_features(scene, "affine") is None


@pytest.mark.parametrize("shape", [(16, 256), (256, 20), (32, 128)])
def test_thin_templates_are_found(shape):
    image = photograph()
    (h, w), (y, x) = shape, (90, 60)
    result = caloric.align(image[y : y + h, x : x + w], image)
    assert result.converged
    np.testing.assert_allclose(result.transform, [[1, 0, x], [0, 1, y]], atol=0.3)


@pytest.mark.parametrize("method", ["single", "descriptor"])
def test_single_and_descriptor_choose_a_candidate_of_the_detector(method):
    template, image, truth = problem(degrees=20, scale=1.15)
    result = caloric.align(template, image, method=method)
    assert len(result.path) == 1
    candidates = starts.detector_candidates(*align.checked(template, image))
    # The detector's frames are not exact, but the result is among the best pairs of them.
    errors = [error(c, truth) for _, _, c in candidates]
    assert error(result.transform, truth) <= np.quantile(errors, 0.02)


def test_a_part_of_a_large_image_is_found():
    rng = np.random.default_rng(1)
    noise = rng.random((700, 900)).astype(np.float32)
    large = cv2.GaussianBlur(noise, (0, 0), 2.0) * 3 - 1
    result = caloric.align(large[500:560, 700:764], np.clip(large, 0, 1), model="similarity")
    assert result.converged
    np.testing.assert_allclose(result.transform, [[1, 0, 700], [0, 1, 500]], atol=0.05)


def test_align_with_a_third_of_the_template_covered():
    template, image, truth = problem(degrees=20, shift=(5, 5))
    covered = image.copy()
    x, y = photographs.apply(truth, np.array([[30.0, 25.0]]))[0].astype(int)
    covered[y : y + 55, x : x + 50] = photograph("coffee")[100:155, 200:250]
    result = caloric.align(template, covered)
    assert result.converged
    assert error(result.transform, truth) < 0.5
