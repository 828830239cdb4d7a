import numpy as np
import pytest

import caloric
from caloric.descriptor import recipes
from caloric.kernels import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_growth_increases_sigma_d_with_eccentricity(name):
    x = np.array([0.3, -0.4])
    args = (0.2, x, 0.5, np.array([0.4, -0.2]))
    p = dict(KERNELS[name].defaults)
    increased = KERNELS[name](**p | {"sigma_d": 0.1, "growth": 0.5})(*args)
    constant = KERNELS[name](**p | {"sigma_d": np.hypot(0.1, 0.25)})(*args)
    assert increased == pytest.approx(constant, rel=1e-12)


VALID = {
    "sift": {"sigma_d": 0.2, "sigma_r": 0.4},
    "dsp": {"sigma_d": 0.2, "sigma_r": 0.4, "sigma_s": 0.3},
    "dsp-inner": {"sigma_d": 0.2, "sigma_r": 0.4, "sigma_s": 0.3},
    "dsp-both": {"sigma_d": 0.2, "sigma_r": 0.4, "sigma_s": 0.3},
    "dsp-domain": {"sigma_d": 0.2, "sigma_r": 0.4, "sigma_s": 0.3},
    "heat": {"sigma_d": 0.2, "sigma_a": 0.4},
    "similarity": {"sigma_d": 0.2, "sigma_r": 0.4},
    "distribution-field": {"sigma_d": 0.2, "sigma_l": 0.1},
    "distribution-field-heat": {"sigma_d": 0.2, "sigma_a": 0.4, "sigma_l": 0.1},
}


def test_every_kernel_is_available():
    assert set(VALID) <= set(caloric.descriptors())
    for name, parameters in VALID.items():
        assert caloric.kernel(name, **parameters).name == name


@pytest.mark.parametrize("value", [0, -0.1, np.nan, np.inf, "wide", None, True, [0.1]])
@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, ps in VALID.items() for p in ps])
def test_invalid_parameters_are_named_in_the_error(name, parameter, value):
    with pytest.raises(caloric.InputError, match=f"{name}: {parameter} must be a finite number"):
        caloric.kernel(name, **(VALID[name] | {parameter: value}))


def test_optional_parameters_may_be_zero_but_not_negative():
    assert caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4, sigma_s=0).sigma_s == 0
    for parameter in ("sigma_s", "growth"):
        with pytest.raises(caloric.InputError, match=parameter):
            caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4, **{parameter: -0.1})
    for nodes in (0, 2.5, True):
        with pytest.raises(caloric.InputError, match="nodes must be a positive integer"):
            caloric.kernel("dsp", **VALID["dsp"], nodes=nodes)


def test_missing_and_unknown_parameters_are_errors():
    with pytest.raises(caloric.InputError, match="heat: parameter 'sigma_a' is missing"):
        caloric.kernel("heat", sigma_d=0.2)
    with pytest.raises(caloric.InputError, match=r"heat: no parameter 'sigma_r'.*sigma_a"):
        caloric.kernel("heat", sigma_d=0.2, sigma_a=0.2, sigma_r=0.3)
    recipe = recipes.descriptor("heat")
    with pytest.raises(caloric.InputError, match=r"unknown option 'sigma_r'.*sigma_a"):
        caloric.describe_patches(np.zeros((1, 8, 8)), recipe, sigma_r=0.3)


@pytest.mark.parametrize("name", VALID)
def test_positions_must_have_two_coordinates(name):
    kernel = caloric.kernel(name, **VALID[name])
    for bad in (0.5, [0.1, 0.2, 0.3], [[0.1]]):
        with pytest.raises(caloric.InputError, match="x must have a last axis of 2"):
            kernel(0.0, bad, 0.0, [0.0, 0.0])
        with pytest.raises(caloric.InputError, match="y must have a last axis of 2"):
            kernel(0.0, [0.0, 0.0], 0.0, bad)


def test_sigma_s_is_bounded():
    with pytest.raises(caloric.InputError, match="sigma_s, the spread of log-scale"):
        caloric.kernel("dsp", sigma_d=0.2, sigma_r=0.4, sigma_s=40)
