"""Invalid input raises InputError with a helpful message."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor import normalize
from caloric.theory.energy import winner


@pytest.mark.parametrize("call", [caloric.kernel, lambda n: caloric.describe_patches([], n)])
def test_the_error_for_an_unknown_name_lists_the_known_names(call):
    with pytest.raises(caloric.InputError, match=r"unknown .* 'surf'.*sift.*heat"):
        call("surf")


def test_the_error_for_a_mistyped_option_suggests_one():
    image = np.zeros((32, 32))
    frames = caloric.Frames.empty()
    for call, suggestion in (
        (lambda: caloric.extract(image, max_feature=5), "max_features"),
        (lambda: caloric.detect(image, up_right=True), "upright"),
        (lambda: caloric.describe(image, frames, domain_size=3), "domain_sizes"),
        (lambda: caloric.describe(image, frames, sigma_ss=0.1), "sigma_s"),
        (lambda: caloric.match(np.zeros((2, 4)), np.zeros((2, 4)), mutal=False), "mutual"),
        (lambda: caloric.verify(frames, frames, None, treshold=1), "threshold"),
        (lambda: caloric.align(image, image, modell="affine"), "model"),
    ):
        with pytest.raises(caloric.InputError, match=f"did you mean '{suggestion}'"):
            call()


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (np.zeros((8, 8)), r"expected shape \(n, S, S\), got \(8, 8\)"),
        (np.zeros((1, 8, 8, 3)), r"expected shape \(n, S, S\)"),
        (np.zeros((2, 8, 9)), "expected squares, got 8 rows of 9 pixels"),
        (np.zeros((2, 3, 3)), "at least 4 x 4"),
        (np.zeros((1, 8, 8), np.int64), "type int64 are not supported; use uint8"),
        (np.zeros((1, 8, 8), complex), "type complex128"),
        (np.array([[["a"] * 8] * 8]), "type <U1"),
        (np.full((1, 8, 8), np.nan), "NaN or infinite pixels"),
        (np.full((1, 8, 8), np.inf, np.float32), "NaN or infinite pixels"),
    ],
)
def test_invalid_patches_are_errors(patches, message):
    with pytest.raises(caloric.InputError, match=message):
        caloric.describe_patches(patches, "sift")


def test_invalid_arguments_of_response_map_are_errors():
    with pytest.raises(caloric.InputError, match=r"expected shape \(S, S\)"):
        caloric.response_map(np.zeros((2, 8, 8)))
    with pytest.raises(caloric.InputError, match="expected squares"):
        caloric.response_map(np.zeros((8, 9)))
    for size in (0, 2.5):
        with pytest.raises(caloric.InputError, match="size must be a positive integer"):
            caloric.response_map(np.zeros((8, 8)), size=size)
    for beta in ([], [np.nan]):
        with pytest.raises(caloric.InputError, match="beta must be one or more finite"):
            caloric.response_map(np.zeros((8, 8)), beta=beta)


def test_invalid_options_are_errors():
    patches = np.zeros((1, 8, 8))
    with pytest.raises(caloric.InputError, match="unknown normalisation 'max'; choose from none"):
        caloric.describe_patches(patches, "sift", normalisation="max")
    with pytest.raises(caloric.InputError, match="dtype must be float32, float64 or uint8"):
        caloric.describe_patches(patches, "sift", dtype="int8")
    with pytest.raises(caloric.InputError, match="uint8 needs a normalized descriptor"):
        caloric.describe_patches(patches, "sift", dtype="uint8", normalisation="none")
    with pytest.raises(caloric.InputError, match="unknown normalisation"):
        caloric.describe_patches(patches, "sift", normalisation=["l2"])
    with pytest.raises(caloric.InputError, match="layout must be a Grid or Rings"):
        caloric.describe_patches(patches, "sift", layout="rings")
    with pytest.raises(caloric.InputError, match="unknown normalisation"):
        normalize.normalize(np.zeros((1, 2)), "l3")


@pytest.mark.parametrize("name", ["affine", "upright"])
def test_booleans_are_checked(name):
    for value in ("no", 1, None):
        with pytest.raises(caloric.InputError, match=f"{name} must be True or False, got"):
            caloric.ExtractOptions(**{name: value})
    assert caloric.ExtractOptions(**{name: np.True_}) is not None
    with pytest.raises(caloric.InputError, match="refine must be True or False"):
        caloric.match_images(np.zeros((32, 32)), np.zeros((32, 32)), refine="no")


def test_a_kernel_too_narrow_in_angle_is_an_error():
    with pytest.raises(caloric.InputError, match=r"varies too fast.*average=True"):
        caloric.describe_patches(
            np.zeros((1, 8, 8)), "heat", sigma_a=0.003, layout=caloric.Grid(average=False)
        )


def test_input_errors_are_value_errors():
    assert issubclass(caloric.InputError, ValueError)


def test_first_of_equal_scores_wins():
    assert winner([[0.5, 0.5], [0.5, 0.5]]) == (0, 0)


def test_a_kernel_too_narrow_in_space_is_an_error():
    with pytest.raises(caloric.InputError, match="zero at all sample points"):
        caloric.describe_patches(np.zeros((1, 8, 8)), "sift", sigma_d=1e-4)


def test_distribution_fields_need_intensities_in_the_unit_range():
    for patches in (np.full((1, 8, 8), 1.5), np.full((1, 8, 8), -0.2)):
        with pytest.raises(caloric.InputError, match=r"needs intensities in \[0, 1\]"):
            caloric.describe_patches(patches, "distribution-field")


def test_ragged_and_masked_patches_are_errors():
    with pytest.raises(caloric.InputError, match="all rows must have the same length"):
        caloric.describe_patches([[[1.0, 2.0], [3.0]]], "sift")
    masked = np.ma.masked_greater(np.random.default_rng(0).random((1, 8, 8)), 0.5)
    with pytest.raises(caloric.InputError, match="masked pixels"):
        caloric.describe_patches(masked, "sift")


def test_any_byte_order_and_form_of_dtype_is_accepted():
    patches = np.random.default_rng(0).random((2, 8, 8)).astype(np.float32)
    plain = caloric.describe_patches(patches, "sift", dtype=np.float32)
    np.testing.assert_array_equal(caloric.describe_patches(patches.astype(">f4"), "sift"), plain)
    assert caloric.describe_patches(patches, "sift", dtype=np.uint8).dtype == np.uint8


def test_foveated_descriptors_need_an_image():
    with pytest.raises(caloric.InputError, match=r"describe\(image, frames\)"):
        caloric.describe_patches(np.zeros((1, 8, 8)), "caloric")


def test_invalid_arguments_of_verify_and_match_are_errors():
    f = caloric.extract(photographs.gray("camera")[200:328, 150:278], max_features=30)
    matches = caloric.match(f, f)
    k = np.diag([500.0, 500.0, 1.0])
    for options, message in [
        ({"seed": "a"}, "seed must be"),
        ({"seed": -1}, "seed must be"),
        ({"threshold": 0}, "threshold must be"),
        ({"model": "essential", "intrinsics": (k,)}, "two 3 x 3 matrices"),
        ({"model": "essential", "intrinsics": (k, 0 * k)}, "positive focal lengths"),
    ]:
        with pytest.raises(caloric.InputError, match=message):
            caloric.verify(f, f, matches, **options)
    with pytest.raises(caloric.InputError, match=r"must be caloric\.Matches"):
        caloric.verify(f, f, matches.indices)
    with pytest.raises(caloric.InputError, match="do not exist; are they from another"):
        caloric.verify(f.frames[:3], f, matches)
    for options in ({"ratio": "0.8"}, {"radius": -1}, {"radius": float("nan")}):
        with pytest.raises(caloric.InputError, match=f"{next(iter(options))} must be"):
            caloric.match(f, f, **options)


def test_descriptors_on_an_empty_image_are_zero():
    frames = caloric.Frames.from_xysa([1.0, 2.0], 0, 2)
    descriptors = caloric.describe(np.zeros((0, 0)), frames, "sift")
    np.testing.assert_array_equal(descriptors, np.zeros((2, 128)))


@pytest.mark.parametrize("image", [[1, 2, 3], 5, None, np.zeros(3), np.zeros((2, 2, 2, 2))])
def test_other_objects_than_images_are_errors(image):
    frames = caloric.Frames.from_xysa(1, 1, 1)
    for call in (caloric.extract, caloric.detect, lambda i: caloric.describe(i, frames)):
        with pytest.raises(caloric.InputError, match=r"image: expected (shape \(h, w\)|pixels)"):
            call(image)
