"""Each kernel file is registered and tested, and has default parameters."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import caloric
from caloric import kernels
from caloric.kernels import KERNELS

MODULES = {
    path.stem
    for path in Path(kernels.__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "base")
}


def test_each_kernel_file_is_registered():
    registered = {name.replace("-", "_") for name in KERNELS}
    missing = MODULES - registered
    assert not missing, f"add to _NAMES of {kernels.__file__}: {', '.join(sorted(missing))}"


def test_the_order_of_descriptors():
    order = (
        "caloric", "sift", "dsp", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity",
        "distribution-field", "distribution-field-heat",
    )  # fmt: skip
    assert tuple(name for name in caloric.descriptors() if name in order) == order


@pytest.mark.parametrize("name", KERNELS)
def test_defaults_are_complete(name):
    cls = KERNELS[name]
    required = {field.name for field in fields(cls) if field.default is MISSING}
    assert required <= set(cls.defaults)
    assert cls(**cls.defaults).name == name


@pytest.mark.parametrize("name", KERNELS)
def test_each_kernel_has_a_test_file(name):
    path = Path(__file__).parent / f"test_{name.replace('-', '_')}.py"
    assert path.exists(), f"compare {name} with its integral in tests/kernels/{path.name}"
