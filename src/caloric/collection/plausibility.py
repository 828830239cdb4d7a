"""Warnings about the cameras of a model."""

from collections.abc import Iterator, Mapping, Sequence

from caloric.image.exif import Exif
from caloric.interop import colmap_model
from caloric.interop.colmap_model import Camera, Reconstruction

# Plausible focal lengths, relative to the longer side of the image: horizontal fields of view of
# 110° and 8°.
_SHORTEST, _LONGEST = 0.35, 7.0
_FILM = 36.0  # millimeters: longer side of 35 mm film
_MAX_RATIO = 1.5  # of the focal length and that of the EXIF data


def _problems(camera: Camera, exif: Exif) -> Iterator[str]:
    side = max(camera.width, camera.height)
    ratio, expected = camera.focal / side, exif.focal_35mm / _FILM
    if "FISHEYE" not in camera.model and not _SHORTEST <= ratio <= _LONGEST:
        yield f"{ratio:.2f} times the longer side of the images"
    if expected and not 1 / _MAX_RATIO <= ratio / expected <= _MAX_RATIO:
        yield f"{ratio / expected:.2f} times that of the EXIF data"


def warnings(models: Sequence[Reconstruction], exif: Mapping[str, Exif]) -> tuple[str, ...]:
    """Return a sentence for each camera with an implausible focal length."""
    result = []
    for number, model in enumerate(models):
        cameras = colmap_model.cameras(model.directory)
        first: dict[int, str] = {}
        for image in colmap_model.registered(model.directory):
            first.setdefault(image.camera, image.name)
        for camera, name in sorted(first.items()):
            for problem in _problems(cameras[camera], exif.get(name, Exif())):
                result.append(
                    f"model {number}, camera {camera}: the focal length of "
                    f"{cameras[camera].focal:,.0f} px is {problem}; the model may be distorted: "
                    "set --focal, or add images from other directions"
                )
    return tuple(result)
