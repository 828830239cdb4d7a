"""Camera and position of a photograph from its EXIF data."""

import io
from dataclasses import dataclass
from math import isfinite
from typing import Any

from caloric.image.reading import quiet

_CAMERA, _GPS = 0x8769, 0x8825  # directories
_MAKE, _MODEL, _FOCAL, _FOCAL_35MM = 271, 272, 37386, 41989
_LATITUDE, _LONGITUDE, _BELOW_SEA, _ALTITUDE = 2, 4, 5, 6  # 1 and 3 are the hemispheres
_SIGNS = {"N": 1, "E": 1, "S": -1, "W": -1}


@dataclass(frozen=True)
class Exif:
    """What the EXIF data of an image says; unknown values are "" and 0.

    ``focal`` is the focal length in millimeters and ``focal_35mm`` its equivalent for 35 mm film.
    ``position`` is () or latitude and longitude in degrees, and altitude in meters (0 if unknown).
    """

    make: str = ""
    model: str = ""
    focal: float = 0.0
    focal_35mm: float = 0.0
    position: tuple[float, ...] = ()

    @property
    def has_camera(self) -> bool:
        """Return whether anything is known about the camera."""
        return bool(self.make or self.model or self.focal or self.focal_35mm)


def _number(value: Any) -> float:
    """Return a value as a finite float; 0 for invalid values, such as a fraction with divisor 0."""
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return number if isfinite(number) else 0.0


def _text(value: Any) -> str:
    """Return a text without padding, such as the zero bytes of some drones."""
    return str(value or "").split("\0")[0].strip()


def _degrees(values: Any, hemisphere: Any) -> float | None:
    """Return an angle in degrees from degrees, minutes and seconds; None if it is invalid."""
    sign = _SIGNS.get(_text(hemisphere).upper()[:1])
    if sign is None or not isinstance(values, tuple | list) or len(values) != 3:
        return None
    try:
        degrees, minutes, seconds = (float(value) for value in values)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    angle = degrees + minutes / 60 + seconds / 3600
    return sign * angle if isfinite(angle) and 0 <= angle <= 180 else None


def _position(gps: Any) -> tuple[float, ...]:
    latitude = _degrees(gps.get(_LATITUDE), gps.get(_LATITUDE - 1))
    longitude = _degrees(gps.get(_LONGITUDE), gps.get(_LONGITUDE - 1))
    # Cameras without reception write 0, 0, which is in the ocean.
    if latitude is None or longitude is None or (latitude, longitude) == (0, 0):
        return ()
    below = gps.get(_BELOW_SEA) in (1, b"\1")
    return latitude, longitude, (-1 if below else 1) * _number(gps.get(_ALTITUDE))


def read(data: bytes) -> Exif:
    """Return the EXIF data of an image file given as bytes; empty if there are none."""
    from PIL import Image

    try:
        with quiet(), Image.open(io.BytesIO(data)) as image:
            tags = image.getexif()
            camera, gps = tags.get_ifd(_CAMERA), tags.get_ifd(_GPS)
    except Exception:  # depends on the decoder; reported when the pixels are read
        return Exif()
    return Exif(
        _text(tags.get(_MAKE)), _text(tags.get(_MODEL)), _number(camera.get(_FOCAL)),
        _number(camera.get(_FOCAL_35MM)), _position(gps),
    )  # fmt: skip
