"""COLMAP databases of features, matches and geometries, and COLMAP's mapper."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.interop import colmap_command, colmap_model, colmap_tables
from caloric.interop.colmap_command import CommandWriter, Thresholds
from caloric.interop.colmap_model import DEFAULT_FOCAL, Reconstruction
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Exporter
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import replacing_path
from caloric.types import FloatArray

R = TypeVar("R")
# Paths of the database and of the models of a collection, relative to its store.
DATABASE = "colmap/database.db"
MODELS = "colmap/sparse"
_BYTES_PER_FEATURE = 128 + 24 + 40  # descriptor, keypoint, average for the matches
STRICT: Thresholds = colmap_command.MIN_MODEL  # otherwise COLMAP's defaults
RELAXED: Thresholds = STRICT | {
    "init_min_num_inliers": 40, "init_min_tri_angle": 8, "abs_pose_min_num_inliers": 20,
}  # fmt: skip
# The first images determine distortion poorly, which may keep further ones from being registered.
FIXED_DISTORTION: Thresholds = STRICT | {"ba_refine_extra_params": 0}
INSTALL = "pip install 'caloric[collection]' (pycolmap has no wheel for Linux on ARM)"


@cache
def available() -> bool:
    """Return whether pycolmap is installed and can be loaded."""
    try:
        import pycolmap  # noqa: F401
    except ImportError:
        return False
    return True


def require() -> None:
    """Raise an error if neither pycolmap nor a colmap executable is installed."""
    if not available() and colmap_command.executable() is None:
        raise InputError(
            "databases and models need COLMAP, but neither pycolmap nor a colmap executable is "
            f"installed: {INSTALL}, or apt-get install colmap; without COLMAP, use "
            "`collection extract`, `match`, `verify`, and `export --to text` or `--to hloc`"
        )


def version() -> str:
    """Return the version of COLMAP that :func:`map_images` runs; "" if there is none."""
    if available():
        return str(pycolmap().__version__)
    return colmap_command.version()


def pycolmap() -> Any:
    """Return the pycolmap module, without its log: errors are exceptions, or missing models."""
    try:
        import pycolmap
    except ImportError:
        raise InputError(f"this needs pycolmap: {INSTALL}") from None
    pycolmap.logging.minloglevel = 3
    return pycolmap


def call(function: Callable[[], R], path: Path) -> R:
    """Call a function of pycolmap; convert its exceptions to an InputError of one line."""
    try:
        return function()
    except (RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: COLMAP: {lines[-1]}") from None


class Colmap(Exporter):
    """Writes a new database with pycolmap, or with the ``colmap`` executable if it is missing.

    Image ids are in the order of names. Cameras are inferred from the image files, which the
    executable requires, and shared as requested. Keypoints have their affine shapes and COLMAP's
    offset of half a pixel; descriptors are bytes.
    """

    location: ClassVar[str] = DATABASE

    def check(self) -> None:
        """Raise an error if COLMAP, an image or disk space is missing."""
        require()
        directory = self.request.images
        if directory is None and not available():
            raise InputError("without pycolmap, the images are required: --images DIRECTORY")
        for path in () if directory is None else (directory / name for name in self.request.names):
            if not path.is_file():
                raise InputError(f"{path}: does not exist; check the image directory")
        check_space(self.target.parent, self.request.count * _BYTES_PER_FEATURE)

    def open(self) -> None:
        """Create the database; pycolmap writes it in one transaction."""
        path = self.stack.enter_context(replacing_path(self.target))
        path.unlink()  # COLMAP creates the file
        self.command: CommandWriter | None = None
        if self.request.images is not None and not available():
            self.command = CommandWriter(path, self.request, self.stack)
            return
        self.library = pycolmap()
        self.database = call(lambda: self.library.Database.open(str(path)), path)
        self.stack.callback(self.database.close)
        self.stack.enter_context(self.library.DatabaseTransaction(self.database))
        self.numbers = {name: i for i, name in enumerate(sorted(self.request.names), 1)}
        self.cameras: dict[str, int] = {}  # camera ids by the first image that has the camera

    def features(self, name: str, features: Features) -> None:
        """Write an image, its camera, keypoints and descriptors."""
        if self.command is not None:
            self.command.features(name, features)
            return
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        shared = self.request.camera_of.get(name, name)
        if shared not in self.cameras:
            camera = self._camera(name, features)
            camera.camera_id = self.cameras[shared] = self.numbers.get(shared, number)
            self.database.write_camera(camera, use_camera_id=True)
        image = self.library.Image(name=name, camera_id=self.cameras[shared], image_id=number)
        self.database.write_image(image, use_image_id=True)
        self.database.write_keypoints(number, features.frames.to_colmap())
        self.database.write_descriptors(number, _descriptors(self.library, sift_bytes(features)))

    def _camera(self, name: str, features: Features) -> Any:
        (h, w), options = features.image_size, self.request.cameras
        if self.request.images is not None and options.focal is None:
            try:
                camera = self.library.infer_camera_from_image(
                    str(self.request.images / name),
                    self.library.ImageReaderOptions(camera_model=options.model),
                )
            except (RuntimeError, ValueError):  # a format that COLMAP cannot read, such as WebP
                camera = None
            if camera is not None and (camera.width, camera.height) == (w, h):
                return camera
        focal = DEFAULT_FOCAL * max(w, h) if options.focal is None else options.focal
        camera = self.library.Camera.create_from_model_name(0, options.model, focal, w, h)
        camera.has_prior_focal_length = options.focal is not None
        return camera

    def pair(self, pair: TwoViews) -> None:
        """Write the matches of two images, and their geometry if they have one."""
        if self.command is not None:
            self.command.pair(pair)
            return
        first, second = self.numbers[pair.name_a], self.numbers[pair.name_b]
        matches = np.ascontiguousarray(pair.matches, np.uint32)
        self.database.write_matches(first, second, matches)
        if pair.matrix is None:
            return
        geometry, kinds = self.library.TwoViewGeometry(), self.library.TwoViewGeometryConfiguration
        if pair.model == "fundamental":
            geometry.config, geometry.F = kinds.UNCALIBRATED, pair.matrix
        else:
            geometry.config, geometry.H = kinds.PLANAR_OR_PANORAMIC, pair.matrix
        geometry.inlier_matches = np.ascontiguousarray(pair.inlier_matches, np.uint32)
        self.database.write_two_view_geometry(first, second, geometry)

    def close(self) -> list[Path]:
        """Return the database."""
        if self.command is not None:
            self.command.imported()
        return [self.target]


def check_space(directory: Path, needed: int) -> None:
    """Raise an error if a directory is not writable or too full, in which case COLMAP aborts."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
        with tempfile.NamedTemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise InputError(f"{directory}: cannot be written ({error.strerror})") from None
    if free < needed:
        raise InputError(
            f"{directory}: not enough disk space: {needed / 1e6:,.0f} MB needed, "
            f"{free / 1e6:,.0f} MB free"
        )


def _descriptors(library: Any, values: NDArray[np.uint8]) -> Any:
    data, kind = np.ascontiguousarray(values), library.FeatureExtractorType.SIFT
    return library.FeatureDescriptors(data=data, type=kind)


def replace_descriptors(path: Path, values: Iterable[tuple[str, NDArray[np.uint8]]]) -> None:
    """Replace the descriptors of images by bytes (n, 128), by name; delete the old matches.

    The descriptors of all images are written in one transaction.
    """
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written")
    descriptors = dict(values)
    if not available():
        try:
            with colmap_tables.opened(path) as tables:
                tables.replace_descriptors(descriptors)
        except sqlite3.Error as error:
            raise InputError(f"{path}: {error}") from None
        return
    library = pycolmap()
    database = call(lambda: library.Database.open(str(path)), path)
    try:
        with library.DatabaseTransaction(database):
            database.clear_matches()
            database.clear_two_view_geometries()
            database.clear_descriptors()
            for image in database.read_all_images():
                if image.name not in descriptors:
                    continue
                rows = _descriptors(library, descriptors[image.name])
                database.write_descriptors(image.image_id, rows)
    finally:
        database.close()


def read_frames(path: Path) -> dict[str, Frames]:
    """Return the keypoints of all images of a database by name."""
    return {name: Frames.from_colmap(rows) for name, rows in colmap_tables.keypoints(path).items()}


def align(model: Path, output: Path, locations: Mapping[str, FloatArray], max_error: float) -> bool:
    """Write a model in the coordinates of known camera locations; return whether it was possible.

    Parameters
    ----------
    model, output : Path
        The directories of the model and of the new one, which must exist.
    locations : dict
        The locations (3,) of cameras by image name.
    max_error : float
        The maximum error of a location.
    """
    if not available():
        return colmap_command.align(model, output, locations, max_error)
    library = pycolmap()
    reconstruction = call(lambda: library.Reconstruction(str(model)), model)
    transform = library.align_reconstruction_to_locations(
        reconstruction, list(locations), np.stack(list(locations.values())), 3,
        library.RANSACOptions(max_error=max_error),
    )  # fmt: skip
    if transform is None:
        return False
    reconstruction.transform(transform)
    reconstruction.write(str(output))
    return True


def adjust(model: Path, output: Path, options: Mapping[str, bool]) -> None:
    """Write a model after a bundle adjustment without weights.

    ``output`` is an existing directory. ``options`` are those of COLMAP, by name, such as
    refine_principal_point.
    """
    if not available():
        colmap_command.adjust(model, output, options)
        return
    library = pycolmap()
    # pycolmap.bundle_adjustment prints a report for any log level.
    adjustment = library.BundleAdjustmentOptions(print_summary=False)
    for name, value in options.items():
        setattr(adjustment, name, value)
    reconstruction = call(lambda: library.Reconstruction(str(model)), model)
    config = library.BundleAdjustmentConfig()
    for number in reconstruction.reg_image_ids():
        config.add_image(number)
    config.fix_gauge(library.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = library.create_default_bundle_adjuster(adjustment, config, reconstruction)
    call(adjuster.solve, model)
    reconstruction.update_point_3d_errors()
    reconstruction.write(str(output))


def map_images(
    database: Path,
    directory: Path,
    output: Path,
    thresholds: Thresholds = STRICT,
    registered: Callable[[int], None] = lambda count: None,
    start: Path | None = None,
) -> list[Reconstruction]:
    """Run COLMAP's mapper on a database; return the models, written to ``output``.

    ``registered`` is called with the number of images in the model so far. ``start`` is a model to
    which images are added, instead of starting new ones.
    """
    if not available():
        return colmap_command.map_images(database, directory, output, thresholds, registered, start)
    library = pycolmap()
    options = library.IncrementalPipelineOptions()
    for name, value in thresholds.items():
        setattr(options if hasattr(options, name) else options.mapper, name, value)
    # pycolmap also calls the callback of the initial pair if it starts from a model.
    first = 2 if start is None else len(colmap_model.summary(start).images)
    count = 0

    def show(images: int) -> None:
        nonlocal count
        count = images
        registered(count)

    call(
        lambda: library.incremental_mapping(
            str(database), str(directory), str(output), options, str(start or ""),
            initial_image_pair_callback=lambda: show(first),
            next_image_callback=lambda: show(count + 1),
        ),
        database,
    )  # fmt: skip
    return [colmap_model.summary(path) for path in colmap_model.models(output)]
