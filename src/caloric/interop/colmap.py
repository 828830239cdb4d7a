"""COLMAP databases by pycolmap: write features, matches and geometries; read keypoints."""

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.interop import colmap_command
from caloric.interop.colmap_tables import TwoViews
from caloric.interop.conversion import sift_bytes

R = TypeVar("R")
_NO_WHEEL = "pip install pycolmap (which has no wheel for Linux on ARM)"


@cache
def available() -> bool:
    """Return whether pycolmap is installed and can be loaded."""
    try:
        import pycolmap  # noqa: F401
    except ImportError:
        return False
    return True


def require() -> None:
    """Raise an error, before long work, if neither pycolmap nor a colmap executable exists."""
    if not available() and colmap_command.executable() is None:
        raise InputError(
            "databases and models need COLMAP, and neither pycolmap nor a colmap executable is "
            f"installed: {_NO_WHEEL}, or apt-get install colmap; without it, use "
            "`collection extract`, `match`, `verify`, and `export --to text` or `--to hloc`"
        )


def pycolmap() -> Any:
    """Return the pycolmap module, which then logs errors only."""
    try:
        import pycolmap
    except ImportError:
        raise InputError(f"this needs pycolmap: {_NO_WHEEL}") from None
    pycolmap.logging.minloglevel = 2
    return pycolmap


def call(function: Callable[[], R], path: Path) -> R:
    """Return the result of a call of COLMAP; turn its exception into an InputError of one line."""
    try:
        return function()
    except (RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: COLMAP: {lines[-1]}") from None


def write_database(
    path: Path,
    names: list[str],
    images: Iterable[tuple[str, Features]],
    folder: Path | None,
    pairs: Iterable[TwoViews],
) -> None:
    """Write a new database of images, numbered in the order of ``names``, and of pairs.

    Cameras are guessed from the files in ``folder``. Keypoints keep their affine shape and get
    COLMAP's offset of half a pixel; descriptors are stored as bytes.
    """
    library = pycolmap()
    path.unlink(missing_ok=True)
    database = call(lambda: library.Database.open(str(path)), path)
    try:
        numbers = {name: i for i, name in enumerate(names, 1)}
        with library.DatabaseTransaction(database):
            for name, features in images:
                _write_image(library, database, numbers[name], name, features, folder)
            for pair in pairs:
                first, second = numbers[pair.name_a], numbers[pair.name_b]
                database.write_matches(first, second, np.ascontiguousarray(pair.matches, np.uint32))
                if pair.matrix is not None:
                    database.write_two_view_geometry(first, second, _geometry(library, pair))
    finally:
        database.close()


def require_image(folder: Path, name: str) -> None:
    """Raise an error if the image whose camera is to be read does not exist."""
    if not (folder / name).is_file():
        raise InputError(f"{folder / name}: does not exist; name the folder of the images")


def _camera(library: Any, name: str, features: Features, folder: Path | None) -> Any:
    h, w = features.image_size
    if folder is not None:
        require_image(folder, name)
        try:
            camera = library.infer_camera_from_image(str(folder / name))
        except (RuntimeError, ValueError):  # such as WebP, which COLMAP does not read
            camera = None
        if camera is not None and (camera.width, camera.height) == (w, h):
            return camera
    # COLMAP's default without EXIF data: a focal length of 1.2 times the longer side.
    return library.Camera.create_from_model_id(
        0, library.CameraModelId.SIMPLE_RADIAL, 1.2 * max(w, h), w, h
    )


def _write_image(
    library: Any, database: Any, number: int, name: str, features: Features, folder: Path | None
) -> None:
    camera = _camera(library, name, features, folder)
    camera.camera_id = number
    database.write_camera(camera, use_camera_id=True)
    database.write_image(
        library.Image(name=name, camera_id=number, image_id=number), use_image_id=True
    )
    database.write_keypoints(number, features.frames.to_colmap())
    database.write_descriptors(number, _descriptors(library, features))


def _descriptors(library: Any, features: Features) -> Any:
    data = np.ascontiguousarray(sift_bytes(features))
    return library.FeatureDescriptors(data=data, type=library.FeatureExtractorType.SIFT)


def _geometry(library: Any, pair: TwoViews) -> Any:
    geometry = library.TwoViewGeometry()
    kinds = library.TwoViewGeometryConfiguration
    geometry.config = (
        kinds.UNCALIBRATED if pair.model == "fundamental" else kinds.PLANAR_OR_PANORAMIC
    )
    if pair.model == "fundamental":
        geometry.F = pair.matrix
    else:
        geometry.H = pair.matrix
    geometry.inlier_matches = np.ascontiguousarray(pair.matches[pair.inliers], np.uint32)
    return geometry


def replace_descriptors(path: Path, values: Iterable[tuple[str, NDArray[np.uint8]]]) -> None:
    """Replace the descriptors of images by name with bytes (n, 128); remove the old matches.

    All descriptors are computed before the first is written, and written in one transaction.
    """
    library = pycolmap()
    descriptors = dict(values)
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written")
    database = call(lambda: library.Database.open(str(path)), path)
    try:
        kind = library.FeatureExtractorType.SIFT
        with library.DatabaseTransaction(database):
            database.clear_matches()
            database.clear_two_view_geometries()
            database.clear_descriptors()
            for image in database.read_all_images():
                if image.name not in descriptors:
                    continue
                data = np.ascontiguousarray(descriptors[image.name])
                database.write_descriptors(
                    image.image_id, library.FeatureDescriptors(data=data, type=kind)
                )
    finally:
        database.close()


def read_frames(path: Path) -> dict[str, Frames]:
    """Return the keypoints of all images of a database, by name."""
    library = pycolmap()
    if not path.is_file():
        raise InputError(f"{path}: no such database")
    database = call(lambda: library.Database.open(str(path)), path)
    try:
        return {
            image.name: Frames.from_colmap(np.asarray(database.read_keypoints(image.image_id)))
            for image in database.read_all_images()
        }
    finally:
        database.close()
