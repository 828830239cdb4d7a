"""One test for each erratum: the printed formula is incorrect."""

import numpy as np
import pytest

import caloric
from caloric.paper import errata, printed
from caloric.theory import oracle
from caloric.theory.gaussians import periodic_gaussian


def random_points(count=50):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (count, 2))
    return x, x + 0.25 * rng.standard_normal((count, 2))


def ratios_to_quadrature(formula, reference):
    """Ratio of a printed formula, without angular factor, to the integral at σd = σs = .3."""
    x, y = random_points()
    p = {"sigma_d": 0.3, "sigma_r": 1.0, "sigma_s": 0.3}
    truth = np.array(
        [reference(oracle.Pair(0.0, a, 0.0, b), **p) for a, b in zip(x, y, strict=True)]
    )
    return formula(x, y, 0.3, 0.3) * periodic_gaussian(0.0, 1.0) / truth


def test_1_the_printed_gaussian_does_not_have_unit_mass():
    numbers = errata.erratum_1().numbers
    assert numbers["mass_1d"] == pytest.approx(0.508, abs=1e-3)
    assert numbers["mass_2d"] == pytest.approx(1.77, abs=5e-3)


def test_2_without_dy_the_value_depends_on_the_pixel_size():
    assert errata.erratum_2().numbers["ratio"] == pytest.approx(4, rel=0.01)


def test_3_intro_closed_form_2_is_not_its_integral():
    ratio = ratios_to_quadrature(printed.printed_both_intro, oracle.dsp_both)
    assert ratio.max() > 0.5 > 1e-3 > np.median(np.abs(ratio))
    assert errata.erratum_3().numbers["low"] < 0


def test_4_boxed_closed_form_2_is_not_its_integral():
    ratio = ratios_to_quadrature(printed.printed_both_box, oracle.dsp_both)
    assert ratio.max() / ratio.min() > 1.5


def test_5_closed_forms_approximate_the_log_scale_diffusion_not_eq_3():
    numbers = errata.erratum_5().numbers
    assert numbers["inner_vs_printed"] > 1.5 * numbers["sift_vs_printed"]
    assert numbers["inner_vs_log_scale"] < 0.3 * numbers["sift_vs_log_scale"]
    assert numbers["at_0.001"] > 4 * numbers["at_0.01"] > 6 * numbers["at_0.1"]


def test_6_lemma_1_has_the_opposite_sign_and_is_inaccurate():
    numbers = errata.erratum_6().numbers
    assert numbers["lemma"] > 0.2
    assert numbers["with_minus"] > 1.5


def test_7_the_mass_of_a_squared_comb_diverges():
    numbers = errata.erratum_7().numbers
    assert numbers["at_0.001"] > 90 * numbers["at_0.1"]


def test_8_boxed_closed_form_1_is_correct_but_not_finite_near_the_center():
    np.testing.assert_allclose(
        ratios_to_quadrature(printed.printed_inner_box, oracle.dsp_inner), 1, rtol=1e-6
    )
    numbers = errata.erratum_8().numbers
    assert numbers["bad"] > 0.9
    assert numbers["finite"] == 1


def test_9_a_matrix_is_not_periodic():
    numbers = errata.erratum_9().numbers
    assert numbers["wrapped"] > 1 > 1e-50 > numbers["plain"]


def test_10_boxed_heat_does_not_decay_along_the_level_line():
    numbers = errata.erratum_10().numbers
    assert numbers["box_5"] == pytest.approx(numbers["box_0"], rel=1e-9)
    assert numbers["true_5"] < 1e-50 * numbers["true_0"]
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(8):
        x = rng.uniform(-1, 1, 2)
        y = x + 0.6 * rng.standard_normal(2)
        beta, phi = np.array(0.2), np.array(0.4)
        truth = oracle.heat(oracle.Pair(0.2, x, 0.4, y), sigma_d=0.3, sigma_a=0.3)
        ratios.append(float(printed.printed_heat_box(beta, x, phi, y, 0.3, 0.3)) / truth)
    assert max(ratios) / min(ratios) > 1.5


def test_11_the_rotation_is_a_reflection():
    numbers = errata.erratum_11().numbers
    assert numbers["orthogonality"] < 1e-12
    assert numbers["determinant"] == pytest.approx(-1)


def test_12_the_delta_selects_perpendicular_directions():
    assert errata.erratum_12().numbers == {"solutions": 2, "first_degrees": pytest.approx(90)}


def test_13_the_gradient_changes_length():
    assert errata.erratum_13().numbers["mean"] == pytest.approx(1.046, abs=5e-3)


def test_14_the_cost_is_the_limit_at_zero_and_the_shift_is_to_the_right():
    numbers = errata.erratum_14().numbers
    assert numbers["near"] < 1e-5 < 1 < numbers["far"]
    assert numbers["right"] < 1e-12 < 0.1 < numbers["left"]


def test_15_the_printed_betas_cover_half_the_circle():
    numbers = errata.erratum_15().numbers
    assert numbers["half"] < 0.2 < 0.98 < numbers["full"]


def test_16_the_data_term_is_affine_in_c():
    assert errata.erratum_16().numbers["change"] < 1e-12


def test_all_errata_are_listed_with_numbers():
    entries = errata.all_errata()
    assert [entry.number for entry in entries] == list(range(1, 17))
    for entry in entries:
        assert entry.numbers
        assert any(character.isdigit() for character in entry.evidence)


def test_eq_6_is_correct_up_to_its_constant():
    """Eq. 6 has the factor that Lemma 2 lacks: their product is the kernel."""
    x, y = random_points()
    beta, phi = np.full(50, 0.3), np.linspace(0, 6, 50)
    across = np.cos(phi) * (x - y)[:, 1] - np.sin(phi) * (x - y)[:, 0]
    width = np.sqrt(0.3**2 + 0.25**2 * (x**2).sum(-1))
    factor = np.exp(-(across**2) / (2 * width**2)) / (np.sqrt(2 * np.pi) * width)
    box = printed.printed_heat_box(beta, x, phi, y, 0.3, 0.25) * factor
    exact = caloric.kernel("heat", sigma_d=0.3, sigma_a=0.25)(beta, x, phi, y)
    np.testing.assert_allclose(box, exact, rtol=1e-8)
