"""Finding which of several templates is in an image."""

import cv2
import numpy as np
import pytest
from skimage import data

import caloric
from caloric.alignment import templates
from caloric.theory import energy as theory_energy
from caloric.theory.energy import OrientationDensity
from template_problems import SIZE, error, photograph, problem, unit


def similar(template, count, seed=0):
    """Return copies of a template in which a square is replaced."""
    rng = np.random.default_rng(seed)
    other = photograph("coffee")
    copies = []
    for _ in range(count):
        y, x = rng.integers(0, SIZE - 56, 2)
        copy = template.copy()
        copy[y : y + 56, x : x + 56] = other[100 : 100 + 56, y + x : y + x + 56]
        copies.append(copy)
    return copies


@pytest.mark.parametrize(
    "kernel", ["heat", "sift", caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4)]
)
def test_the_correct_one_of_similar_templates_is_found(kernel):
    template, image, truth = problem(degrees=30, scale=1.2)
    others = [photograph("coffee")[y : y + SIZE, 60 : 60 + SIZE] for y in (40, 140)]
    candidates = [*others, *similar(template, 3), template, *similar(template, 2, 1)]
    match = caloric.find_template(image, candidates, kernel=kernel)
    assert match.template == 5
    assert match.found
    assert error(match.alignment.transform, truth) < 0.3
    assert match.scores.shape == (8,)
    assert match.scores.max() <= 1 + 1e-4
    assert match.scores[5] > max(match.scores[:2])
    assert "template 5, found" in repr(match)


def test_templates_may_be_flat_and_of_different_sizes():
    template, image, truth = problem(degrees=15)
    flat = np.full((40, 40), 100, np.uint8)
    small = photograph("coffee")[100:150, 60:130]
    match = caloric.find_template(image, [flat, small, template])
    assert match.template == 2
    assert match.scores[0] == 0
    assert error(match.alignment.transform, truth) < 0.3
    nothing = caloric.find_template(image, [flat, flat])
    assert not nothing.found
    assert not caloric.find_template(image, [small]).found


def test_all_templates_in_the_image_are_found():
    image = photograph()
    inside = [image[y : y + 70, x : x + 90] for y, x in ((20, 30), (150, 120), (90, 200))]
    unrelated = photograph("coffee")[100:170, 60:150]
    too_large = np.zeros((3000, 3000), np.uint8)
    match = caloric.find_template(image, [too_large, inside[0], unrelated, *inside[1:]])
    assert set(match.all_found) == {1, 3, 4}
    assert next(iter(match.all_found)) == match.template
    assert list(match.unusable) == [0]
    assert match.scores.shape == (5,)
    assert match.scores[0] == 0
    for index, (y, x) in {1: (20, 30), 3: (150, 120), 4: (90, 200)}.items():
        position = match.all_found[index].transform[:, 2]
        np.testing.assert_allclose(position, (x, y), atol=0.3)


def test_scores_are_the_sum_of_the_kernel_over_pairs_of_pixels():
    """⟨h_K(f), h(p)⟩ of the boxed solution, and 1 for a patch with itself."""
    from caloric.descriptor import density

    pixels = unit(photograph("camera", (48, 48))).reshape(4, 12, 4, 12).swapaxes(1, 2)
    patches = np.ascontiguousarray(pixels.reshape(16, 12, 12)[[5, 6, 9]])
    kernel = caloric.kernel("sift", sigma_d=0.25, sigma_r=0.6)
    scores = templates.scores(kernel, patches, patches)
    np.testing.assert_allclose(scores.diagonal(), 1, atol=1e-5)
    measure = density.measure(patches, kernel)
    from caloric.descriptor.sampling import SquarePatch

    points = SquarePatch(12).points()
    raw = [
        OrientationDensity(points, np.asarray(a, float), np.asarray(w, float))
        for a, w in zip(measure.angles, measure.weights, strict=True)
    ]
    table = np.array(
        [
            [
                -theory_energy.dissimilarity(theory_energy.diffused_density(kernel, f), p)
                for p in raw
            ]
            for f in raw
        ]
    )
    norm = np.sqrt(table.diagonal())
    np.testing.assert_allclose(scores, table / norm[:, None] / norm, atol=0.01)


def test_invalid_arguments_are_reported():
    template, image, _ = problem()
    for candidates, options, match in (
        ([], {}, "the list is empty"),
        (template, {}, "a single image"),
        ([np.zeros((4, 4))], {}, "template 0: .*at least 8"),
        ([template], {"kernel": "distribution-field"}, "not a kernel of gradient"),
        ([template], {"kernel": "magic"}, "unknown"),
        ([template], {"model": "magic"}, "unknown model"),
    ):
        with pytest.raises(caloric.InputError, match=match):
            caloric.find_template(image, candidates, **options)


def test_a_template_at_an_incorrect_position_is_tried_from_other_starts():
    scene = data.rocket()
    part = cv2.resize(scene[60:260, 270:370], (80, 160), interpolation=cv2.INTER_AREA)
    match = caloric.find_template(scene, [data.chelsea()[60:180, 120:260], part])
    assert match.template == 1
    truth = np.array([[1.25, 0, 270.125], [0, 1.25, 60.125]])
    assert np.abs(match.alignment.transform - truth).max() < 0.5
