"""Which images share a camera, and the model and focal length of the cameras."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, get_args

from caloric.errors import InputError, unknown
from caloric.image.exif import Exif
from caloric.interop.colmap_model import CAMERA_MODELS

Sharing = Literal["auto", "shared", "per-image", "per-folder"]
Size = tuple[int, int]
_MODELS = [name for name, *_ in CAMERA_MODELS.values()]


@dataclass(frozen=True)
class Cameras:
    """Options of the cameras of a model.

    Parameters
    ----------
    sharing : "auto", "shared", "per-image" or "per-folder"
        Which images share a camera. "auto": images with the same size, make, model and focal length
        in their EXIF data; images without EXIF data share a camera if more than half of them have
        the same size. "shared": all images of the same size. "per-folder": all images of the same
        size in a directory.
    model : str
        COLMAP's camera model, such as SIMPLE_RADIAL or OPENCV.
    focal : float, optional
        The focal length in pixels, from which COLMAP starts; by default it is taken from the EXIF
        data, or 1.2 times the longer side of the image.
    camera_of : mapping
        For each image, the first image that has the same camera; replaces ``sharing``.
    """

    sharing: Sharing = "auto"
    model: str = "SIMPLE_RADIAL"
    focal: float | None = None
    camera_of: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raise an error if an option is invalid."""
        if self.sharing not in get_args(Sharing):
            raise unknown("camera", self.sharing, get_args(Sharing))
        if self.model not in _MODELS:
            raise unknown("camera model", self.model, _MODELS)
        if self.focal is not None and not 0 < self.focal < float("inf"):
            raise InputError(f"focal must be a positive number of pixels, got {self.focal!r}")


def groups(
    sizes: Mapping[str, Size], exif: Mapping[str, Exif], sharing: Sharing = "auto"
) -> dict[str, str]:
    """Return for each image the first image, by name, that has the same camera.

    ``sizes`` has the sizes (h, w) of the stored images.
    """
    unknown_sizes = Counter(
        size for name, size in sizes.items() if not exif.get(name, Exif()).has_camera
    )
    common = [size for size, count in unknown_sizes.items() if 2 * count > unknown_sizes.total()]

    def key(name: str) -> tuple[object, ...]:
        size, data = sizes[name], exif.get(name, Exif())
        if sharing == "shared":
            return size
        if sharing == "per-folder":
            return (*size, PurePosixPath(name).parent)
        if sharing == "auto" and data.has_camera:
            return (*size, data.make, data.model, data.focal, data.focal_35mm)
        # Images of different origins rarely have the same size, unless they were resized.
        if sharing == "auto" and size in common:
            return size
        return (name,)

    first: dict[tuple[object, ...], str] = {}
    return {name: first.setdefault(key(name), name) for name in sorted(sizes)}
