"""Features: encodings of descriptors, and files of this and earlier versions."""

import json
from dataclasses import replace

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor import recipes
from caloric.features import check_comparable, encoding_of
from caloric.frames import Frames
from caloric.interop import conversion

IMAGE = photographs.gray("brick", (160, 160))


def bytes_of(descriptor):
    return caloric.extract(IMAGE, descriptor, max_features=40, dtype="uint8")


@pytest.mark.parametrize(
    ("descriptor", "dtype", "encoding"),
    [
        ("caloric", "float32", "unit"),
        ("caloric", "float64", "unit"),
        ("caloric", "uint8", "uint8+128"),
        ("heat", "float32", "unit"),
        ("heat", "uint8", "uint8"),
    ],
)
def test_extract_sets_the_encoding(descriptor, dtype, encoding):
    features = caloric.extract(IMAGE, descriptor, max_features=20, dtype=dtype)
    assert features.encoding == features[:3].encoding == encoding
    empty = caloric.extract(np.zeros((0, 0), np.uint8), descriptor, dtype=dtype)
    assert empty.encoding == encoding


def test_a_custom_whitened_recipe_has_a_signed_encoding():
    """A recipe that is passed as an object has the name of its kernel."""
    recipe = replace(recipes.descriptor("caloric"), power=0.9)
    features = caloric.extract(IMAGE, recipe, max_features=20, dtype="uint8")
    assert features.descriptor != "caloric"
    assert features.encoding == "uint8+128"


def test_the_encoding_does_not_depend_on_the_values():
    frames = Frames.from_xysa(*np.ones((3, 5)), 0.0)
    values = np.full((5, 128), 20, np.uint8)
    signed, plain = (
        caloric.Features(frames, values, (9, 9), "mine", "", encoding=encoding)
        for encoding in ("uint8+128", "uint8")
    )
    assert (conversion.unit_descriptors(signed) < 0).all()
    assert (conversion.unit_descriptors(plain) > 0).all()


def test_the_default_encoding_depends_on_dtype_and_name():
    frames = Frames.from_xysa(*np.ones((3, 5)), 0.0)

    def encoding(dtype, name):
        return caloric.Features(frames, np.zeros((5, 8), dtype), (9, 9), name, "").encoding

    assert encoding(np.float32, "caloric") == encoding(np.float64, "mine") == "unit"
    assert encoding(np.uint8, "caloric") == encoding_of("uint8", signed=True) == "uint8+128"
    assert encoding(np.uint8, "heat") == encoding(np.uint8, "mine") == "uint8"
    with pytest.raises(caloric.InputError, match="unknown encoding"):
        caloric.Features(frames, np.zeros((5, 8)), (9, 9), "heat", "", encoding="bytes")


@pytest.mark.parametrize("descriptor", ["caloric", "heat"])
def test_files_store_the_encoding(descriptor, tmp_path):
    features = replace(bytes_of(descriptor), descriptor="renamed")
    features.save(tmp_path / "f.npz")
    loaded = caloric.Features.load(tmp_path / "f.npz")
    assert loaded.encoding == features.encoding
    np.testing.assert_array_equal(loaded.descriptors, features.descriptors)


@pytest.mark.parametrize("descriptor", ["caloric", "heat"])
def test_files_of_earlier_versions_are_read(descriptor, tmp_path):
    features = bytes_of(descriptor)
    features.save(tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as stored:
        arrays = dict(stored)
    about = json.loads(bytes(arrays["about"]))
    del about["encoding"]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    assert caloric.Features.load(tmp_path / "old.npz").encoding == features.encoding


def test_different_encodings_cannot_be_compared():
    features = bytes_of("heat")
    check_comparable(features, features[:5])
    with pytest.raises(caloric.InputError, match="encoding 'uint8' and of 'uint8\\+128'"):
        check_comparable(features, replace(features, encoding="uint8+128"))


def test_features_are_saved_only_as_npz(tmp_path):
    with pytest.raises(caloric.InputError, match=r"f\.h5: features are saved as \.npz"):
        bytes_of("heat").save(tmp_path / "f.h5")
    assert not (tmp_path / "f.h5").exists()
