"""Warnings about focal lengths."""

from dataclasses import replace

import pytest

from caloric.collection import plausibility
from caloric.image.exif import Exif
from caloric.interop import colmap_model
from colmap_models import write_model


@pytest.mark.parametrize(
    ("focal", "exif", "expected"),
    [
        (500, Exif(), ""),
        (100, Exif(), "100 px is 0.16 times the longer side"),
        (9000, Exif(), "9,000 px is 14.06 times the longer side"),
        (500, Exif(focal_35mm=28.0), ""),
        (900, Exif(focal_35mm=28.0), "900 px is 1.81 times that of the EXIF data"),
    ],
)
def test_implausible_focal_lengths_are_reported(tmp_path, focal, exif, expected):
    write_model(tmp_path / "0")
    cameras = {
        number: replace(camera, parameters=(focal, *camera.parameters[1:]))
        for number, camera in colmap_model.cameras(tmp_path / "0").items()
    }
    images = list(colmap_model.registered(tmp_path / "0"))
    colmap_model.write(tmp_path / "0", cameras, images, colmap_model.points(tmp_path / "0"))
    model = colmap_model.summary(tmp_path / "0")
    warnings = plausibility.warnings([model], {"a.jpg": exif})
    assert len(warnings) == bool(expected)
    assert all(expected in warning and "model 0, camera 1" in warning for warning in warnings)
