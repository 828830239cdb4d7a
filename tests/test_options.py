"""ExtractOptions."""

import inspect
import json
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest

import caloric
from caloric.cli import app
from caloric.descriptor.options import DescribeKeywords
from caloric.detector.options import DetectKeywords, DetectOptions
from caloric.kernels import KERNELS
from caloric.options import ExtractKeywords, ExtractOptions


def test_typed_keywords_equal_the_fields():
    named = {f.name for f in fields(ExtractOptions)} - {"descriptor", "parameters"}
    parameters = {f.name for kernel in KERNELS.values() for f in fields(kernel)}
    assert set(get_type_hints(DetectKeywords)) == {f.name for f in fields(DetectOptions)}
    assert set(get_type_hints(ExtractKeywords)) == named | parameters
    for name, kind in get_type_hints(DetectKeywords).items():
        assert kind == get_type_hints(DetectOptions)[name]
    assert parameters <= set(get_type_hints(DescribeKeywords))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"descriptor": "heat", "max_features": None},
        {"dtype": np.uint8, "domain_sizes": [0.5, 1, 2], "views": 4},
        {"parameters": (("sigma_d", 0.25),), "descriptor": "sift", "normalisation": "l2"},
        {"affine": True, "upright": True, "contrast": 0.01, "edge": 12.5, "detector": "opencv"},
    ],
)
def test_json_preserves_every_option(given):
    options = ExtractOptions(**given)
    again = ExtractOptions.from_json(json.loads(json.dumps(options.to_json())))
    assert again == options
    assert hash(again) == hash(options)
    assert again.fingerprint == options.fingerprint


def test_options_that_json_cannot_store_are_errors():
    with pytest.raises(caloric.InputError, match="custom kernel"):
        ExtractOptions(descriptor=caloric.kernel("heat", sigma_d=0.2, sigma_a=0.3)).to_json()
    with pytest.raises(caloric.InputError, match="'max_feature'; did you mean 'max_features'"):
        ExtractOptions.from_json({"max_feature": 3})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_features": -1}, "0 or more"),
        ({"max_features": 1.5}, "integer"),
        ({"detector": "doge"}, "did you mean 'dog'"),
        ({"contrast": np.nan}, "contrast"),
        ({"edge": 0.5}, "edge"),
        ({"descriptor": "siftt"}, "did you mean 'sift'"),
        ({"dtype": "int8"}, "dtype"),
        ({"dtype": "uint8", "normalisation": "none"}, "normalized"),
        ({"domain_sizes": 1}, "2 or more"),
        ({"domain_sizes": [0.0]}, "positive"),
        ({"views": 3}, "2, 4, 8"),
        ({"views": 2, "upright": True}, "cannot be combined"),
        ({"layout": 3}, "Grid or Rings"),
    ],
)
def test_invalid_options_are_errors(given, message):
    with pytest.raises(caloric.InputError, match=message):
        ExtractOptions(**given)


def test_equality_and_hash_of_options():
    a, b = (ExtractOptions(max_features=n) for n in (10, 20))
    assert a != b
    assert hash(a) == hash(ExtractOptions(max_features=10))
    assert ExtractOptions(descriptor="sift").fingerprint != a.fingerprint


def test_views_have_fewer_features_than_the_image():
    options = ExtractOptions(max_features=8000, views=4)
    assert options.tilts == (2, 4)
    assert options.for_tilt(1) == options
    assert options.for_tilt(4).max_features == 1500 // 4
    assert ExtractOptions(max_features=None).for_tilt(2).max_features is None


def test_functions_and_commands_accept_every_option():
    names = {f.name for f in fields(DetectOptions)}
    for function in (caloric.detect, caloric.extract, caloric.extract_many, caloric.match_images):
        assert names <= set(inspect.signature(function).parameters)
    commands = {c.callback.__name__: c.callback for c in app.registered_commands}
    for command in ("match", "extract", "view"):
        assert names <= set(inspect.signature(commands[command]).parameters)
