"""Which images share a camera."""

import pytest

import caloric
from caloric.image.exif import Exif
from caloric.interop import cameras
from caloric.interop.cameras import Cameras, groups

PHONE, ZOOMED = Exif("A", "B", 4.3), Exif("A", "B", 8.6)
SIZES = {"x/1": (480, 640), "x/2": (480, 640), "y/3": (480, 640), "y/4": (640, 480)}


def test_images_with_the_same_exif_and_size_share_a_camera():
    exif = {"x/1": PHONE, "x/2": ZOOMED, "y/3": PHONE, "y/4": PHONE}
    assert groups(SIZES, exif) == {"x/1": "x/1", "x/2": "x/2", "y/3": "x/1", "y/4": "y/4"}


def test_without_exif_the_common_size_shares_a_camera():
    shared = {"x/1": "x/1", "x/2": "x/1", "y/3": "x/1", "y/4": "y/4"}
    assert groups(SIZES, {}) == shared
    many = {f"{i}": (480, 640 + i // 2) for i in range(8)}  # such as images from the internet
    assert groups(many, {}) == {name: name for name in many}
    mixed = groups({**SIZES, "z": (480, 640)}, {"z": PHONE})
    assert mixed == {**shared, "z": "z"}


def test_sharing_can_be_chosen():
    assert groups(SIZES, {}, "per-image") == {name: name for name in SIZES}
    assert groups(SIZES, {"x/1": PHONE, "x/2": ZOOMED}, "shared")["x/2"] == "x/1"
    folders = groups(SIZES, {}, "per-folder")
    assert folders == {"x/1": "x/1", "x/2": "x/1", "y/3": "y/3", "y/4": "y/4"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sharing": "one"}, "unknown camera"),
        ({"model": "OPENVC"}, "unknown camera model.*OPENCV"),
        ({"focal": 0}, "focal must be a positive number"),
    ],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(caloric.InputError, match=message):
        Cameras(**options)
    assert cameras.Cameras().model == "SIMPLE_RADIAL"
