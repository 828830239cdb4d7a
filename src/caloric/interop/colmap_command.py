"""The ``colmap`` executable, for machines without pycolmap, such as Linux on ARM.

COLMAP's feature importer creates the database and infers the cameras, from text files with one
feature each. Features, matches and geometries are then written directly to the tables, which is
faster than text.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop import colmap_model, colmap_tables
from caloric.interop.colmap_model import Reconstruction
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Request, inside
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import temporary_directory
from caloric.types import FloatArray

_ONE_FEATURE = f"1 128\n0 0 1 0{128 * ' 0'}\n"  # in COLMAP's text format
Thresholds = dict[str, int]  # options of COLMAP's mapper, by name
# By default, COLMAP discards all models but the first if they have fewer than 10 images.
MIN_MODEL: Thresholds = {"min_model_size": 3}


def executable() -> str | None:
    """Return the path of the ``colmap`` executable, or None."""
    return shutil.which("colmap")


def call(
    command: str, *options: str | Path, observe: Callable[[str], None] = lambda line: None
) -> str:
    """Run ``colmap COMMAND OPTIONS`` and return its output; raise InputError if it fails.

    ``observe`` is called with each line of the output as it is printed.
    """
    program = executable()
    if program is None:
        raise InputError("no colmap executable on the PATH; install COLMAP")
    # COLMAP uses Qt, which aborts without a display.
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    lines = []
    with subprocess.Popen(
        [program, command, *map(str, options)], env=environment, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                observe(line)
        except BaseException:
            process.kill()
            raise
    output = "".join(lines)
    if process.returncode and "--help" not in options:
        raise InputError(
            f"colmap {command} failed with status {process.returncode}: {_reason(output)}"
        )
    return output


def version() -> str:
    """Return the version of the executable; "" if there is none."""
    return "" if executable() is None else call("help").partition(" --")[0]


def _reason(output: str) -> str:
    """Return the line of the output that has the error, not a line of the stack trace."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Check failed" in line]
    rest = [line for line in lines if not line.startswith(("@", "***"))]
    return (errors or rest or ["no message"])[-1]


def without_gpu(command: str) -> tuple[str, ...]:
    """Return the options that disable the GPU; their names depend on the version of COLMAP."""
    names = re.findall(r"--(\w+\.use_gpu)\b", call(command, "--help"))
    return tuple(word for name in sorted(set(names)) for word in (f"--{name}", "0"))


class CommandWriter:
    """Writes a new database; cameras are inferred from the images, and shared as requested.

    COLMAP's importer creates the database from text files, before the first pair is written.
    """

    def __init__(self, path: Path, request: Request, stack: ExitStack) -> None:
        """Prepare the import; ``stack`` removes temporary files and closes the database."""
        assert request.images is not None
        self.path, self.request, self.stack = path, request, stack
        self.directory = request.images
        self.temporary = stack.enter_context(temporary_directory(path.parent))
        self.sizes: dict[str, tuple[int, int]] = {}
        self.tables: colmap_tables.Tables | None = None

    def features(self, name: str, features: Features) -> None:
        """Write the features of an image to temporary files."""
        inside(self.temporary / "text", f"{name}.txt").write_text(_ONE_FEATURE, "ascii")
        path = inside(self.temporary / "arrays", f"{name}.npz")
        np.savez(path, keypoints=features.frames.to_colmap(), descriptors=sift_bytes(features))
        self.sizes[name] = features.image_size

    def pair(self, pair: TwoViews) -> None:
        """Write a pair."""
        self.imported().add_pair(pair)

    def imported(self) -> colmap_tables.Tables:
        """Return the tables of the database; import all features in the first call."""
        if self.tables is not None:
            return self.tables
        paths = ("--database_path", self.path, "--image_path", self.directory)
        cameras = self.request.cameras
        # By default, the importer shares a camera among images with the same EXIF data.
        options = (
            "--ImageReader.camera_model", cameras.model,
            "--ImageReader.single_camera_per_image", "1",
        )  # fmt: skip
        call("feature_importer", *paths, "--import_path", self.temporary / "text", *options)
        self.tables = self.stack.enter_context(colmap_tables.opened(self.path))
        self.tables.share_cameras(self.request.camera_of)
        for name in self.sizes.keys() - self.tables.numbers.keys():
            self._add(name, self.tables)
        if cameras.focal is not None:
            self.tables.set_focal(cameras.focal)
        for name in self.sizes:
            with np.load(self.temporary / "arrays" / f"{name}.npz") as arrays:
                self.tables.replace_features(name, **arrays)
        return self.tables

    def _add(self, name: str, tables: colmap_tables.Tables) -> None:
        """Add an image of a format that COLMAP cannot read, such as AVIF."""
        camera_of, (h, w) = self.request.camera_of, self.sizes[name]
        shared = camera_of.get(name, name)
        others = (other for other in tables.numbers if camera_of.get(other, other) == shared)
        same = next(others, None)
        camera = (
            tables.add_camera(colmap_tables.CameraRow.default(self.request.cameras.model, w, h))
            if same is None
            else tables.camera_of(same)
        )
        tables.add_image(name, camera, np.zeros((0, 6), np.float32))


def align(model: Path, output: Path, locations: Mapping[str, FloatArray], max_error: float) -> bool:
    """Write a model in the coordinates of known camera locations: see :func:`colmap.align`."""
    if any(" " in name for name in locations):
        return _align_renamed(model, output, locations, max_error)
    lines = [
        f"{name} {' '.join(f'{value:.6f}' for value in location)}\n"
        for name, location in locations.items()
    ]
    known = call("model_aligner", "--help")
    names = ("robust_alignment_max_error", "alignment_max_error")  # of COLMAP 3.8, and of others
    option = next(name for name in names if f"--{name} " in known)
    references = output / "locations.txt"
    references.write_text("".join(lines), "utf-8")
    try:
        call(
            "model_aligner", "--input_path", model, "--output_path", output, "--ref_images_path",
            references, "--ref_is_gps", "0", "--alignment_type", "custom", f"--{option}",
            str(max_error),
        )  # fmt: skip
    except InputError:
        return False
    finally:
        references.unlink()
    return (output / "images.bin").is_file()


def _align_renamed(
    model: Path, output: Path, locations: Mapping[str, FloatArray], max_error: float
) -> bool:
    """Do the same as :func:`align` with other names: COLMAP reads them only up to a space."""
    images = list(colmap_model.registered(model))
    renamed = {image.name: f"{image.number}.jpg" for image in images}
    names = {new: name for name, new in renamed.items()}

    def write(target: Path, source: Path, new_names: Mapping[str, str]) -> None:
        changed = [replace(v, name=new_names[v.name]) for v in colmap_model.registered(source)]
        cameras, points = colmap_model.cameras(source), colmap_model.points(source)
        colmap_model.write(target, cameras, changed, points)

    with temporary_directory(output.parent) as temporary:
        write(temporary, model, renamed)
        known = {renamed[name]: value for name, value in locations.items() if name in renamed}
        if not align(temporary, output, known, max_error):
            return False
    write(output, output, names)
    return True


def adjust(model: Path, output: Path, options: Mapping[str, bool]) -> None:
    """Write a model after a bundle adjustment: see :func:`colmap.adjust`."""
    words = [
        word
        for name, value in options.items()
        for word in (f"--BundleAdjustment.{name}", str(int(value)))
    ]
    call("bundle_adjuster", "--input_path", model, "--output_path", output, *words)


# Printed before an image is added to the model, by COLMAP 3 and 4; the number counts this image.
_REGISTERED = re.compile(r"Registering \w+ #\d+ \((?:\w+=)?(\d+)\)")


def map_images(
    database: Path,
    directory: Path,
    output: Path,
    thresholds: Thresholds = MIN_MODEL,
    registered: Callable[[int], None] = lambda count: None,
    start: Path | None = None,
) -> list[Reconstruction]:
    """Run COLMAP's mapper: see :func:`caloric.interop.colmap.map_images`."""

    def observe(line: str) -> None:
        match = _REGISTERED.search(line)
        if match is not None:
            registered(int(match.group(1)) - 1)

    paths = ("--database_path", database, "--image_path", directory, "--output_path", output)
    given = () if start is None else ("--input_path", start)
    options = [
        word for name, value in thresholds.items() for word in (f"--Mapper.{name}", str(value))
    ]
    try:
        call("mapper", *paths, *given, *options, observe=observe)
    except InputError as error:
        if "failed to create" not in str(error).lower():
            raise
    models = [colmap_model.summary(path) for path in colmap_model.models(output)]
    if models:
        registered(max(len(model.images) for model in models))
    return models
