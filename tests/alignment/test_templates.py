"""Which of several templates is in an image."""

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
    rng = np.random.default_rng(seed)
    other = photograph("coffee")
    found = []
    for _ in range(count):
        y, x = rng.integers(0, SIZE - 56, 2)
        one = template.copy()
        one[y : y + 56, x : x + 56] = other[100 : 100 + 56, y + x : y + x + 56]
        found.append(one)
    return found


@pytest.mark.parametrize(
    "kernel", ["heat", "sift", caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4)]
)
def test_find_template_picks_the_right_one_of_similar_ones(kernel):
    template, image, truth = problem(degrees=30, scale=1.2)
    others = [photograph("coffee")[y : y + SIZE, 60 : 60 + SIZE] for y in (40, 140)]
    candidates = [*others, *similar(template, 3), template, *similar(template, 2, 1)]
    found = caloric.find_template(image, candidates, kernel=kernel)
    assert found.template == 5
    assert found.found
    assert error(found.alignment.transform, truth) < 0.3
    assert found.scores.shape == (8,)
    assert found.scores.max() <= 1 + 1e-4
    assert found.scores[5] > max(found.scores[:2])
    assert "template 5, found" in repr(found)


def test_find_template_takes_templates_of_several_sizes_and_flat_ones():
    template, image, truth = problem(degrees=15)
    flat = np.full((40, 40), 100, np.uint8)
    small = photograph("coffee")[100:150, 60:130]
    found = caloric.find_template(image, [flat, small, template])
    assert found.template == 2
    assert found.scores[0] == 0
    assert error(found.alignment.transform, truth) < 0.3
    nothing = caloric.find_template(image, [flat, flat])
    assert not nothing.found
    assert not caloric.find_template(image, [small]).found


def test_find_template_finds_all_that_are_there():
    image = photograph()
    inside = [image[y : y + 70, x : x + 90] for y, x in ((20, 30), (150, 120), (90, 200))]
    unrelated = photograph("coffee")[100:170, 60:150]
    too_large = np.zeros((3000, 3000), np.uint8)
    found = caloric.find_template(image, [too_large, inside[0], unrelated, *inside[1:]])
    assert set(found.all_found) == {1, 3, 4}
    assert next(iter(found.all_found)) == found.template
    assert list(found.unusable) == [0]
    assert found.scores.shape == (5,)
    assert found.scores[0] == 0
    for index, (y, x) in {1: (20, 30), 3: (150, 120), 4: (90, 200)}.items():
        place = found.all_found[index].transform[:, 2]
        np.testing.assert_allclose(place, (x, y), atol=0.3)


def test_scores_are_the_boxed_sum_over_pairs_of_pixels():
    """⟨h_K(f), h(p)⟩ with the kernel at every pair of pixels, and 1 for a patch with itself."""
    from caloric.descriptor import density

    pixels = unit(photograph("camera", (48, 48))).reshape(4, 12, 4, 12).swapaxes(1, 2)
    patches = np.ascontiguousarray(pixels.reshape(16, 12, 12)[[5, 6, 9]])
    kernel = caloric.kernel("sift", sigma_d=0.25, sigma_r=0.6)
    found = templates.scores(kernel, patches, patches)
    np.testing.assert_allclose(found.diagonal(), 1, atol=1e-5)
    seen = density.measure(patches, kernel)
    from caloric.descriptor.sampling import SquarePatch

    places = SquarePatch(12).points()
    raw = [
        OrientationDensity(places, np.asarray(a, float), np.asarray(w, float))
        for a, w in zip(seen.angles, seen.weights, strict=True)
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
    np.testing.assert_allclose(found, table / norm[:, None] / norm, atol=0.01)


def test_find_template_says_what_is_wrong():
    template, image, _ = problem()
    for candidates, options, match in (
        ([], {}, "the list is empty"),
        (template, {}, "a single image"),
        ([np.zeros((4, 4))], {}, "template 0: .*at least 8"),
        ([template], {"kernel": "distribution-field"}, "not of gradient"),
        ([template], {"kernel": "magic"}, "unknown"),
        ([template], {"model": "magic"}, "unknown model"),
    ):
        with pytest.raises(caloric.InputError, match=match):
            caloric.find_template(image, candidates, **options)


def test_a_template_that_was_found_at_the_wrong_place_is_tried_from_other_starts():
    scene = data.rocket()
    part = cv2.resize(scene[60:260, 270:370], (80, 160), interpolation=cv2.INTER_AREA)
    found = caloric.find_template(scene, [data.chelsea()[60:180, 120:260], part])
    assert found.template == 1
    truth = np.array([[1.25, 0, 270.125], [0, 1.25, 60.125]])
    assert np.abs(found.alignment.transform - truth).max() < 0.5
