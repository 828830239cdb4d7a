import numpy as np
import pytest

import caloric
from caloric.descriptor import recipes
from caloric.kernels import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_growth_is_sigma_d_at_each_position(name):
    x = np.array([0.3, -0.4])
    args = (0.2, x, 0.5, np.array([0.4, -0.2]))
    p = dict(KERNELS[name].defaults)
    grown = KERNELS[name](**p | {"sigma_d": 0.1, "growth": 0.5})(*args)
    constant = KERNELS[name](**p | {"sigma_d": np.hypot(0.1, 0.25)})(*args)
    assert grown == pytest.approx(constant, rel=1e-12)


GOOD = {
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


def test_every_kernel_of_the_contract_is_there():
    assert set(GOOD) <= set(caloric.descriptors())
    for name, parameters in GOOD.items():
        assert caloric.kernel(name, **parameters).name == name


@pytest.mark.parametrize("value", [0, -0.1, np.nan, np.inf, "wide", None, True, [0.1]])
@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, ps in GOOD.items() for p in ps])
def test_parameters_are_checked_by_name(name, parameter, value):
    with pytest.raises(caloric.InputError, match=f"{name}: {parameter} must be a finite number"):
        caloric.kernel(name, **(GOOD[name] | {parameter: value}))


def test_optional_parameters_may_be_off_but_not_negative():
    assert caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4, sigma_s=0).sigma_s == 0
    for parameter in ("sigma_s", "growth"):
        with pytest.raises(caloric.InputError, match=parameter):
            caloric.kernel("similarity", sigma_d=0.2, sigma_r=0.4, **{parameter: -0.1})
    for nodes in (0, 2.5, True):
        with pytest.raises(caloric.InputError, match="nodes must be a positive integer"):
            caloric.kernel("dsp", **GOOD["dsp"], nodes=nodes)


def test_missing_and_unknown_parameters():
    with pytest.raises(caloric.InputError, match="heat: parameter 'sigma_a' is missing"):
        caloric.kernel("heat", sigma_d=0.2)
    with pytest.raises(caloric.InputError, match=r"heat: no parameter 'sigma_r'.*sigma_a"):
        caloric.kernel("heat", sigma_d=0.2, sigma_a=0.2, sigma_r=0.3)
    recipe = recipes.descriptor("heat")
    with pytest.raises(caloric.InputError, match=r"unknown option 'sigma_r'.*sigma_a"):
        caloric.describe_patches(np.zeros((1, 8, 8)), recipe, sigma_r=0.3)


@pytest.mark.parametrize("name", GOOD)
def test_places_have_two_coordinates(name):
    kernel = caloric.kernel(name, **GOOD[name])
    for bad in (0.5, [0.1, 0.2, 0.3], [[0.1]]):
        with pytest.raises(caloric.InputError, match="x must have a last axis of 2"):
            kernel(0.0, bad, 0.0, [0.0, 0.0])
        with pytest.raises(caloric.InputError, match="y must have a last axis of 2"):
            kernel(0.0, [0.0, 0.0], 0.0, bad)


def test_scale_cannot_spread_without_end():
    with pytest.raises(caloric.InputError, match="sigma_s is the spread of the logarithm"):
        caloric.kernel("dsp", sigma_d=0.2, sigma_r=0.4, sigma_s=40)
