"""Alignment and templates, on photographs of scikit-image."""

import json

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.alignment import align, registration, templates
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.theory import energy
from caloric.theory.energy import OrientationDensity
from tools.__main__ import app as tools_app
from tools.alignment import benchmark
from tools.alignment import cases as align_cases
from tools.pages import alignment as align_page

SIZE = 96


def photograph(name="astronaut", size=(360, 360)):
    return photographs.grey(name, size)


def problem(
    scale=1.0, degrees=0.0, shift=(0.0, 0.0), shear=0.0, corner=(120, 60), name="astronaut"
):
    """A template, an image, and the 2 x 3 map from the one to the other."""
    whole = photograph(name)
    y, x = corner
    template = whole[y : y + SIZE, x : x + SIZE]
    centre = np.array([x, y]) + (SIZE - 1) / 2
    moved = photographs.similarity(scale, degrees, shift, centre)
    moved[:, :2] = moved[:, :2] @ np.array([[1, shear], [0, 1]])
    moved[:, 2] = centre + shift - moved[:, :2] @ centre
    image = photographs.warp(whole, moved)
    truth = moved.copy()
    truth[:, 2] += moved[:, :2] @ (x, y)
    return template, image, truth


def error(found, truth, size=SIZE):
    corners = np.array([[0, 0], [size, 0], [0, size], [size, size]], float)
    return np.linalg.norm(
        photographs.apply(found, corners) - photographs.apply(truth, corners), axis=1
    ).max()


MOVES = {
    "translation": {"shift": (13.3, -8.6)},
    "similarity": {"scale": 1.2, "degrees": 25.0, "shift": (6.0, 9.5)},
    "affine": {"scale": 0.9, "degrees": -15.0, "shift": (-5.0, 4.0), "shear": 0.15},
}


@pytest.mark.parametrize("model", MOVES)
def test_align_finds_the_transform(model):
    template, image, truth = problem(**MOVES[model])
    found = caloric.align(template, image, model=model)
    assert found.converged
    assert found.reason == "converged"
    assert error(found.transform, truth) < 0.15
    assert found.confidence > 0.8
    assert found.inside == pytest.approx(1, abs=0.1)
    sigmas = [step.sigma for step in found.path]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[-1] == 0
    assert found.energy == found.path[-1].cost
    np.testing.assert_array_equal(found.transform, found.path[-1].point)
    assert "confidence" in repr(found)


def test_align_from_a_given_start_and_with_other_light():
    template, image, truth = problem(degrees=15, scale=1.1, shift=(9, -7))
    darker = 255 * (image / 255) ** 2 * np.linspace(1, 0.5, image.shape[1])
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    found = caloric.align(template, darker.astype(np.uint8), initial=start)
    assert found.converged
    assert error(found.transform, truth) < 0.2
    found = caloric.align(template, darker.astype(np.uint8), initial=[*start, [0, 0, 1]])
    assert error(found.transform, truth) < 0.2


def test_align_with_inverted_contrast():
    template, image, truth = problem(degrees=10, shift=(5, 5))
    assert not caloric.align(template, 255 - image, initial=truth).converged
    found = caloric.align(template, 255 - image, inverted=True)
    assert found.converged
    assert error(found.transform, truth) < 0.15


def test_align_with_a_third_covered():
    template, image, truth = problem(degrees=20, shift=(5, 5))
    covered = image.copy()
    x, y = photographs.apply(truth, np.array([[30.0, 25.0]]))[0].astype(int)
    covered[y : y + 55, x : x + 50] = photograph("coffee")[100:155, 200:250]
    found = caloric.align(template, covered)
    assert found.converged
    assert error(found.transform, truth) < 0.5


def test_align_large_templates_by_octaves():
    whole = photographs.grey("astronaut")
    moved = photographs.similarity(1.1, 12, (8, -5), (256, 256))
    image = photographs.warp(whole, moved)
    template = whole[60:440, 100:420]
    truth = moved.copy()
    truth[:, 2] += moved[:, :2] @ (100, 60)
    found = caloric.align(template, image)
    assert found.converged
    assert error(found.transform, truth, 320) < 0.15
    assert len({step.sigma for step in found.path}) < len(found.path)  # σ = 0 at two sizes


def test_covariance_is_one_of_six_numbers_and_small_where_it_fits():
    template, image, _ = problem(degrees=5)
    for model, rank in (("translation", 2), ("similarity", 4), ("affine", 6)):
        found = caloric.align(template, image, model=model)
        C = found.covariance
        np.testing.assert_allclose(C, C.T, atol=1e-9 * np.abs(C).max())
        values = np.linalg.eigvalsh(C)
        assert values.min() > -1e-9 * values.max()
        assert np.sqrt(np.trace(C[[2, 5]][:, [2, 5]])) < 1
        assert (values > 1e-12 * values.max()).sum() <= rank


@pytest.mark.parametrize("matrix", [
    [[2000.0, 0, 10], [0, 2000, 10]], [[1, 0, 0], [0, -1, 90]], [[1, 50, 0], [0, 1, 0]],
    [[np.nan, 0, 0], [0, 1, 0]],
])  # fmt: skip
def test_absurd_matches_of_features_are_no_start(matrix, monkeypatch):
    """They came up, and blurring for a scale of thousands took minutes."""
    found = align.geometry.Geometry("affine", np.array(matrix), np.ones(0, bool), np.ones(0))
    monkeypatch.setattr(align.geometry, "estimate", lambda *a, **k: found)
    template, image, _ = problem()
    scene = registration.scene(unit(template), unit(image), fields.feature("orientation"))
    assert align._matched(scene, "affine") is None


def test_what_is_not_determined_is_not_known():
    """A straight edge fixes no place along itself."""
    edge = np.where(np.arange(160) < 80, 60, 180).astype(np.uint8) * np.ones((160, 1), np.uint8)
    found = caloric.align(
        edge[40:104, 48:112], edge, model="translation", initial=[[1, 0, 48], [0, 1, 40]]
    )
    assert np.sqrt(found.covariance[5, 5]) > 10 * np.sqrt(found.covariance[2, 2])


def test_the_model_is_kept_from_a_sheared_start():
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
    found = caloric.align(template, plain)
    assert found.converged
    np.testing.assert_allclose(found.transform, [[1, 0, 200], [0, 1, 300]], atol=0.05)


def test_what_is_not_there_is_not_found():
    found = caloric.align(photograph("coffee")[80:176, 150:246], photograph())
    assert not found.converged
    assert found.confidence < SCHEDULE.believed
    assert "no agreement" in found.reason


def test_flat_images_are_not_aligned():
    template, image, _ = problem()
    flat = np.full_like(template, 90)
    for pair, which in (
        ((flat, image), "template"),
        ((template, np.full_like(image, 90)), "image"),
    ):
        found = caloric.align(*pair)
        assert not found.converged
        assert found.reason == f"the {which} is flat"
        assert found.path == ()


def test_leaving_the_image_is_told():
    template, image, truth = problem()
    cut = image[:, : int(truth[0, 2]) + 40]  # 40 of the template's 96 columns are left
    found = caloric.align(template, cut, initial=truth)
    assert found.inside == pytest.approx(40 / 96, abs=0.1)
    assert not found.converged
    assert "left the image" in found.reason


@pytest.mark.parametrize(
    ("template", "image"), [((8, 8), (8, 8)), ((8, 200), (20, 210)), ((8, 9), (70, 90))]
)
@pytest.mark.parametrize("model", ["translation", "similarity", "affine"])
def test_small_and_thin_templates_are_not_an_error(template, image, model):
    rng = np.random.default_rng(0)
    pixels = cv2.GaussianBlur(rng.random(image).astype(np.float32), (0, 0), 1.0)
    part = pixels[: template[0], : template[1]]
    found = caloric.align(part, pixels, model=model)
    assert np.isfinite(found.transform).all()
    assert 0 <= found.confidence <= 1
    still = caloric.align(part, pixels, model=model, initial=[[1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(still.transform, [[1, 0, 0], [0, 1, 0]], atol=0.3)


@pytest.mark.parametrize("shape", [(16, 256), (256, 20), (32, 128)])
def test_thin_templates_are_found(shape):
    image = photograph()
    (h, w), (y, x) = shape, (90, 60)
    found = caloric.align(image[y : y + h, x : x + w], image)
    assert found.converged
    np.testing.assert_allclose(found.transform, [[1, 0, x], [0, 1, y]], atol=0.3)


def test_what_hangs_over_the_edge_is_aligned_by_what_is_in_it():
    template, image, truth = problem(degrees=10)
    cut = int(truth[0, 2]) + 20
    truth[0, 2] -= cut
    found = caloric.align(template, image[:, cut:])
    assert found.converged
    assert 0.5 < found.inside < 0.95
    assert error(found.transform, truth) < 0.3


def test_small_and_smooth_templates_are_not_found_elsewhere():
    """They agree with some place in any image; what they do not do is fix it."""
    rng = np.random.default_rng(0)
    elsewhere, image = photograph("coffee"), photograph()
    believed = []
    for size in (24, 32, 48, 64):
        for _ in range(6):
            y, x = rng.integers(0, 360 - size, 2)
            believed.append(caloric.align(elsewhere[y : y + size, x : x + size], image).converged)
    assert sum(believed) <= 1


def test_covariance_is_that_of_repeated_noise():
    template, image, truth = problem(shift=(0.3, -0.4))
    rng = np.random.default_rng(0)
    places, told = [], []
    for _ in range(30):
        noisy = np.clip(image + 6 * rng.standard_normal(image.shape), 0, 255).astype(np.uint8)
        found = caloric.align(template, noisy, model="translation", initial=truth)
        places.append(found.transform[:, 2])
        told.append(found.covariance[[2, 5], [2, 5]])
    scatter = np.std(places, 0)
    predicted = np.sqrt(np.mean(told, 0))
    assert (predicted / scatter > 0.5).all()
    assert (predicted / scatter < 2.5).all()


def test_a_part_of_a_large_image_is_found():
    rng = np.random.default_rng(1)
    noise = rng.random((700, 900)).astype(np.float32)
    large = cv2.GaussianBlur(noise, (0, 0), 2.0) * 3 - 1
    found = caloric.align(large[500:560, 700:764], np.clip(large, 0, 1), model="similarity")
    assert found.converged
    np.testing.assert_allclose(found.transform, [[1, 0, 700], [0, 1, 500]], atol=0.05)


BAD = [
    ({"template": np.zeros((7, 40))}, "at least 8 x 8"),
    ({"template": np.zeros((400, 20))}, "do not fit"),
    ({"template": np.full((20, 20), np.nan)}, "template: NaN"),
    ({"initial": "there"}, "numbers"),
    ({"initial": [[1, 0, 60], [0, 1, 120]], "method": "single"}, "detector"),
    ({"image": np.full((90, 90), np.inf)}, "NaN"),
    ({"image": "photo.jpg"}, "read_image"),
    ({"initial": np.eye(2)}, "2 x 3"),
    ({"initial": np.full((2, 3), np.nan)}, "2 x 3"),
    ({"initial": [[1, 0, 900], [0, 1, 0]]}, "0% of the template"),
    ({"initial": [[-1, 0, 50], [0, 1, 0]]}, "mirrors"),
    ({"initial": [[40, 0, 0], [0, 40, 0]]}, "more than 10"),
    ({"model": "homography"}, "unknown model"),
    ({"method": "luck"}, "unknown method"),
    ({"diffusion": "none"}, "unknown diffusion"),
    ({"feature": "colour"}, "unknown feature"),
    ({"feature": 3, "inverted": True}, "unknown feature"),
    ({"feature": "distribution-field", "inverted": True}, "inverted"),
]


@pytest.mark.parametrize(("changed", "match"), BAD)
def test_align_says_what_is_wrong(changed, match):
    template, image, _ = problem()
    arguments = {"template": template, "image": image} | changed
    with pytest.raises(caloric.InputError, match=match):
        caloric.align(arguments.pop("template"), arguments.pop("image"), **arguments)


@pytest.mark.parametrize("feature", ["distribution-field", "distribution-field-heat"])
def test_distribution_fields_align_where_the_light_is_the_same(feature):
    template, image, truth = problem(degrees=12, shift=(6, -4))
    found = caloric.align(template, image, feature=feature)
    assert found.converged
    assert error(found.transform, truth) < 0.3


@pytest.mark.parametrize("method", ["single", "descriptor"])
def test_the_papers_other_columns_take_a_detectors_candidate(method):
    template, image, truth = problem(degrees=20, scale=1.15)
    found = caloric.align(template, image, method=method)
    assert len(found.path) == 1
    candidates = align.detector_candidates(*align.checked(template, image))
    # A detector's frames are not exact; of all pairs of them it is one of the best.
    errors = [error(c, truth) for _, _, c in candidates]
    assert error(found.transform, truth) <= np.quantile(errors, 0.02)


def test_all_parameters_diffused_align_too():
    template, image, truth = problem(degrees=12, shift=(6, -4))
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    found = caloric.align(template, image, diffusion="all", initial=start)
    assert found.converged
    assert error(found.transform, truth) < 0.15


def test_the_same_bytes_for_any_number_of_threads(monkeypatch):
    template, image, _ = problem(degrees=20)
    results = []
    for count in ("1", "3"):
        monkeypatch.setenv("CALORIC_THREADS", count)
        results.append(caloric.align(template, image))
    np.testing.assert_array_equal(results[0].transform, results[1].transform)
    np.testing.assert_array_equal(results[0].covariance, results[1].covariance)


# Fields and the energy.


def unit(image):
    return np.asarray(image, np.float32) / 255


@pytest.mark.parametrize("name", ["orientation", "unsigned-orientation", "distribution-field"])
def test_fields_turn_with_the_image(name):
    feature = fields.feature(name)
    pixels = unit(photograph("camera", (96, 96)))
    turned = feature.measure(np.ascontiguousarray(np.rot90(pixels)), 16.0)
    # np.rot90 turns +x to −y, so that a gradient's angle φ becomes φ − π/2.
    expected = np.rot90(feature.measure(pixels, 16.0), axes=(1, 2)).copy()
    fields.turned(expected, feature.harmonics, np.pi / 2)
    inner = np.s_[:, 12:-12, 12:-12]
    np.testing.assert_allclose(turned[inner], expected[inner], atol=2e-3)


def test_unsigned_fields_do_not_know_bright_from_dark():
    feature = fields.feature("unsigned-orientation")
    pixels = unit(photograph("camera", (96, 96)))
    np.testing.assert_allclose(
        feature.measure(pixels, 16.0), feature.measure(1 - pixels, 16.0), atol=1e-3
    )


def test_fields_hardly_know_gain_and_offset():
    feature = fields.feature("orientation")
    pixels = unit(photograph("camera", (96, 96)))
    dark = feature.measure(0.1 + 0.5 * pixels, 16.0)
    assert np.abs(dark - feature.measure(pixels, 16.0)).mean() < 0.01


def _diffused(feature, values, sigma, model="similarity", diffusion="all"):
    radius = max(values.shape[1:]) / 2
    return registration.diffused(values, feature, sigma, 0.0, 1, radius, model, diffusion)


def test_partial_diffusion_is_a_blur_and_a_factor():
    feature = fields.feature("orientation")
    values = feature.measure(unit(photograph("camera", (64, 64))), 16.0)
    found = _diffused(feature, values, 6.0, diffusion="partial")
    for channel, order in enumerate((0, 1, 1, 2, 2)):
        factor = np.exp(-((order * SCHEDULE.rotation_diffusion * 6 / 32) ** 2) / 4)
        blurred = cv2.GaussianBlur(values[channel], (0, 0), 6.0, borderType=cv2.BORDER_CONSTANT)
        np.testing.assert_allclose(found[channel], factor * blurred, atol=0.01)
    still = _diffused(feature, values, 6.0, model="translation")
    np.testing.assert_allclose(still, fields.blurred(values, 6.0), atol=1e-6)


def test_all_diffused_fields_are_the_mean_of_random_similarities():
    """Monte-Carlo of the definition, E over α and s of e^{−imα} u_m(e^s R_α x), of blurred u."""
    feature = fields.feature("orientation")
    values = fields.blurred(feature.measure(unit(photograph("camera", (64, 64))), 16.0), 4.0)
    sigma, centre = 5.0, np.full(2, 31.5)
    found = _diffused(feature, values, 0.0001, diffusion="partial")  # nothing: only to be sure
    np.testing.assert_allclose(found, values, atol=1e-4)
    blurred = fields.blurred(values, sigma)
    found = _diffused(feature, values, sigma)
    rng = np.random.default_rng(0)
    spread = sigma / 32 / np.sqrt(2)
    total = np.zeros_like(values)
    for turn, grow in spread * rng.standard_normal((4000, 2)):
        A = np.exp(grow) * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        moved = fields.sampled(blurred, np.column_stack([A, centre - A @ centre]), (64, 64))
        total += fields.turned(moved, feature.harmonics, turn)
    expected = total / 4000
    inner = np.s_[:, 8:-8, 8:-8]
    worst = np.abs(found[inner] - expected[inner]).max()
    assert worst < 0.04 * np.abs(expected[inner]).max()
    # And it is not what the partial diffusion is.
    assert np.abs(blurred[inner] - expected[inner]).max() > 3 * worst


def test_affine_diffused_distribution_fields_widen_with_distance():
    feature = fields.feature("distribution-field-heat")
    values = feature.measure(unit(photograph("camera", (64, 64))), 16.0)
    found = _diffused(feature, values, 4.0)
    y, x = np.mgrid[:64, :64]
    for row, column in ((32, 32), (20, 44), (40, 12)):
        distance = ((row - 31.5) ** 2 + (column - 31.5) ** 2) / 32**2
        variance = 16 * (1 + distance)
        window = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * variance))
        expected = (window * values).sum((1, 2)) / (2 * np.pi * variance)
        np.testing.assert_allclose(found[:, row, column], expected, atol=0.01)


@pytest.mark.parametrize("fine", [False, True])
def test_the_energys_gradient_is_that_of_differences(fine):
    """The template's slopes stand for the warped image's: exact but for sampling and the gain."""
    template, image, truth = problem(degrees=3)
    scene = registration.scene(unit(template), unit(image), fields.feature("orientation"))
    at = scene.level(1.4 if fine else 8.0, "similarity", fine=fine)
    for start in ((0.03, 0.02, 0.01, -0.02), (-0.02, 0.03, -0.02, 0.02)):
        transform = registration.composed(scene, "similarity", truth, np.array(start))
        here = registration.evaluate(scene, at, transform)
        _, gradient = registration.normal_equations(at, here)
        found = 2 * gradient / (at.values.shape[1] * SCHEDULE.robust * at.power)
        h = 2e-3

        def moved(step, start=transform):
            to = registration.composed(scene, "similarity", start, step)
            return registration.evaluate(scene, at, to).energy

        slopes = [(moved(-h * e) - moved(h * e)) / (2 * h) for e in np.eye(4)]
        cosine = found @ slopes / np.linalg.norm(found) / np.linalg.norm(slopes)
        assert cosine > 0.95
        assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(slopes), rel=0.3)


@settings(max_examples=10, deadline=None)
@given(
    a=st.floats(-0.1, 0.1), b=st.floats(-0.1, 0.1), x=st.floats(-0.1, 0.1), y=st.floats(-0.1, 0.1)
)
def test_descent_never_raises_the_energy(a, b, x, y):
    template, image, truth = problem()
    scene = registration.scene(unit(template), unit(image), fields.feature("orientation"))
    at = scene.level(8.0, "similarity")
    start = registration.composed(scene, "similarity", truth, np.array([a, b, x, y]))
    before = registration.evaluate(scene, at, start).energy
    after = registration.minimise(scene, at, start)
    assert after.cost <= before


# Templates.


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
        [[-energy.dissimilarity(energy.diffused_density(kernel, f), p) for p in raw] for f in raw]
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


# The command line and the benchmark.


@pytest.fixture
def files(tmp_path):
    template, image, truth = problem(degrees=20, shift=(6, 3))
    for name, pixels in (
        ("t", template),
        ("i", image),
        ("o", photograph("coffee")[80:176, 150:246]),
    ):
        cv2.imwrite(str(tmp_path / f"{name}.png"), pixels)
    return tmp_path, truth


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_align_command(files):
    folder, truth = files
    result = run("align", folder / "t.png", folder / "i.png", "-o", folder / "a.png", "--json", "-")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert error(np.array(found["transform"]), truth) < 0.15
    assert found["converged"]
    assert found["path"][-1]["sigma"] == 0
    assert np.shape(found["covariance"]) == (6, 6)
    assert min(cv2.imread(str(folder / "a.png")).shape[:2]) > 400
    numbers = ",".join(f"{v:.2f}" for v in truth.ravel())
    result = run("align", folder / "t.png", folder / "i.png", "--initial", numbers)
    assert result.exit_code == 0
    assert "converged" in result.stdout
    result = run("align", folder / "o.png", folder / "i.png", "--json", folder / "a.json")
    assert result.exit_code == 1
    assert not json.loads((folder / "a.json").read_text())["converged"]
    result = run("align", folder / "t.png", folder / "i.png", "--initial", "1,2")
    assert result.exit_code != 0


def test_align_command_on_a_flat_template(files):
    folder, _ = files
    cv2.imwrite(str(folder / "flat.png"), np.full((40, 40), 7, np.uint8))
    result = run(
        "align", folder / "flat.png", folder / "i.png", "--json", "-", "-o", folder / "p.png"
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["energy"] is None
    assert (folder / "p.png").exists()


def test_find_command(files):
    folder, truth = files
    names = [folder / "o.png", folder / "t.png"]
    result = run("find", folder / "i.png", *names, "-o", folder / "f.png", "--json", "-")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["template"] == str(folder / "t.png")
    assert found["index"] == 1
    assert [one["template"] for one in found["scores"]] == [str(n) for n in names]
    assert found["scores"][1]["score"] > found["scores"][0]["score"]
    assert error(np.array(found["transform"]), truth) < 0.3
    listed = run("find", folder / "i.png", *names, folder / "missing.png", folder / "i.png")
    assert listed.exit_code == 0
    rows = [line for line in listed.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert ["yes" in row for row in rows] == [True, True, False, False]
    assert "no such file" in listed.stdout
    assert run("find", folder / "i.png", folder / "o.png").exit_code == 1
    cv2.imwrite(str(folder / "n.png"), 255 - cv2.imread(str(folder / "i.png")))
    assert run("find", folder / "n.png", *names, "--inverted").exit_code == 0
    cv2.imwrite(str(folder / "tiny.png"), np.zeros((5, 5), np.uint8))
    result = run("find", folder / "i.png", folder / "tiny.png")
    assert result.exit_code != 0
    assert "tiny.png" in str(result.exception)


def test_match_command_refines(files):
    folder, _ = files
    cv2.imwrite(str(folder / "j.png"), photograph())
    moved = photographs.similarity(1, 20, (6, 3), (60 + (SIZE - 1) / 2, 120 + (SIZE - 1) / 2))
    apart = []
    for refine in (["--no-refine"], []):
        result = run("match", folder / "j.png", folder / "i.png", *refine, "--json", "-")
        assert result.exit_code == 0
        told = json.loads(result.stdout)
        matrix = np.array(told["matrix"])
        # One estimate from random samples is as good as chance has it; all matches are better.
        assert error(matrix[:2] / matrix[2, 2], moved, 300) < 0.5
        rows = np.array([row for row in told["matches"] if row[5]], float)
        places = photographs.apply(moved, rows[:, :2])
        apart.append(np.median(np.hypot(*(places - rows[:, 2:4]).T)))
    assert apart[1] < 0.7 * apart[0]


def test_made_cases_are_what_they_say():
    photos = [unit(photograph(name, (400, 400))) for name in ("astronaut", "coffee", "camera")]
    for kind in align_cases.KINDS:
        case = align_cases.make(photos, kind, 0.5, 1)
        again = align_cases.make(photos, kind, 0.5, 1)
        np.testing.assert_array_equal(case.image, again.image)
        assert case.error(case.truth) == 0
        # Warped back by the truth the image is the template, but for light, blur and noise.
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        seen = cv2.warpAffine(case.image, case.truth, (128, 128), flags=flags)
        assert np.corrcoef(seen.ravel(), case.template.ravel())[0, 1] > 0.8
    with pytest.raises(caloric.InputError, match="textured"):
        align_cases.make([np.full((400, 400), 0.5, np.float32)] * 2, "all", 0.5, 0)


def run_tools(*arguments):
    return CliRunner().invoke(tools_app, [str(a) for a in arguments])


@pytest.mark.slow
def test_small_benchmark_and_its_page(tmp_path):
    for name in ("astronaut", "coffee", "camera", "rocket"):
        cv2.imwrite(str(tmp_path / f"{name}.png"), photograph(name, (420, 420)))
    json_path = tmp_path / "a.json"
    options = ["--data", tmp_path, "--cases", 1, "--json", json_path]
    result = run_tools("align", *options, "--only", "cells,hard")
    assert result.exit_code == 0, result.output
    result = run_tools("align", *options, "--only", "settings")
    assert result.exit_code == 0, result.output
    report = json.loads(json_path.read_text())
    assert set(report) == {"cells", "hard", "settings"}
    assert report["cells"]["share"]["caloric"]["translation"]["0.25"] >= 0.5
    page = align_page.page(report)
    assert "## Occlusion" in page
    assert "## Refined matches" not in page
    assert run_tools("align", *options, "--only", "speed").exit_code != 0
    assert run_tools("align", "--data", tmp_path / "none").exit_code != 0


def test_template_benchmark_hides_one_among_fifty():
    names = ("astronaut", "coffee", "camera", "rocket")
    photos = align_cases.Photographs(
        [unit(photograph(name, (420, 420))) for name in names], [*names]
    )
    case, candidates, place = benchmark.template_problem(photos, 0)
    assert len(candidates) == 50
    np.testing.assert_array_equal(candidates[place], case.template)
    same = [np.mean(one == case.template) for one in candidates]
    assert sum(0.4 < s < 0.95 for s in same) == 20
    # At the same turn and scale, which the coarse search has, cross-correlation is right.
    still = case.image.copy()
    still[100:228, 90:218] = case.template
    which, at = benchmark.correlation(still, [candidates[place - 1], candidates[place]])
    assert which == 1
    np.testing.assert_allclose(at, [90 + 63.5, 100 + 63.5], atol=0.6)


def test_a_template_that_was_found_at_the_wrong_place_is_tried_from_other_starts():
    scene = data.rocket()
    part = cv2.resize(scene[60:260, 270:370], (80, 160), interpolation=cv2.INTER_AREA)
    found = caloric.find_template(scene, [data.chelsea()[60:180, 120:260], part])
    assert found.template == 1
    truth = np.array([[1.25, 0, 270.125], [0, 1.25, 60.125]])
    assert np.abs(found.alignment.transform - truth).max() < 0.5


def test_json_has_no_infinities(tmp_path):
    """Nothing can be detected in a ramp: the detector has no candidates."""
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (64, 1))
    cv2.imwrite(str(tmp_path / "ramp.png"), ramp)
    cv2.imwrite(str(tmp_path / "image.png"), photographs.grey("camera", (160, 160)))
    names = [str(tmp_path / name) for name in ("ramp.png", "image.png", "out.json", "out.png")]
    arguments = ["align", *names[:2], "--method", "single", "--json", names[2], "-o", names[3]]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 1
    told = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert told["path"][0]["energy"] is None
    assert (tmp_path / "out.png").exists()
