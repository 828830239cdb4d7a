"""EXIF data: the camera and the position of a photograph."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from caloric.image import exif
from caloric.image.exif import Exif


def encoded(base=(), camera=(), gps=()):
    tags = Image.Exif()
    for number, values in ((None, base), (0x8769, camera), (0x8825, gps)):
        if number is None:
            tags.update(dict(values))
        elif values:
            tags[number] = dict(values)
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, "JPEG", exif=tags)
    return file.getvalue()


def test_camera_and_position_are_read():
    data = encoded(
        [(271, "DJI\0\0"), (272, "FC300S ")], [(37386, IFDRational(361, 100)), (41989, 20)],
        [(1, "S"), (2, (50.0, 30.0, 36.0)), (3, "W"), (4, (0.0, 15.0, 0.0)), (5, b"\1"), (6, 7.5)],
    )  # fmt: skip
    result = exif.read(data)
    assert (result.make, result.model, result.focal, result.focal_35mm) == (
        "DJI",
        "FC300S",
        3.61,
        20,
    )
    assert result.position == pytest.approx((-50.51, -0.25, -7.5))
    assert result.has_camera


@pytest.mark.parametrize(
    "gps",
    [
        [(1, "N"), (2, (50.0, 30.0, 36.0))],  # no longitude
        [(1, "?"), (2, (50.0, 0.0, 0.0)), (3, "E"), (4, (1.0, 0.0, 0.0))],
        [(1, "N"), (2, (0.0, 0.0, 0.0)), (3, "E"), (4, (0.0, 0.0, 0.0))],  # no reception
        [(1, "N"), (2, (999.0, 0.0, 0.0)), (3, "E"), (4, (1.0, 0.0, 0.0))],
    ],
)
def test_invalid_positions_are_ignored(gps):
    assert exif.read(encoded(gps=gps)).position == ()


def test_an_invalid_focal_length_is_unknown():
    assert exif.read(encoded(camera=[(37386, IFDRational(1, 0))])).focal == 0


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_accepted(data):
    assert exif.read(data) == Exif()
