"""The ``colmap`` executable, for machines without pycolmap, such as Linux on ARM.

COLMAP's feature importer reads text files of features and infers the cameras. Matches, geometries
and affine shapes are then written directly to the tables of the database.
"""

import logging
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop import colmap_model, colmap_tables, text
from caloric.interop.colmap_model import Reconstruction
from caloric.interop.exporters import inside
from caloric.matching.two_views import TwoViews

_log = logging.getLogger(__name__)


def executable() -> str | None:
    """Return the path of the ``colmap`` executable, or None."""
    return shutil.which("colmap")


def call(command: str, *options: str | Path) -> str:
    """Run ``colmap COMMAND OPTIONS`` and return its output; raise InputError if it fails."""
    program = executable()
    if program is None:
        raise InputError("no colmap executable on the PATH; install COLMAP")
    # COLMAP uses Qt, which aborts without a display.
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    result = subprocess.run(
        [program, command, *map(str, options)],
        env=environment, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if result.returncode and "--help" not in options:
        raise InputError(
            f"colmap {command} failed with status {result.returncode}: {_reason(result)}"
        )
    return result.stdout + result.stderr


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    """Return the line of the output that has the error, not a line of the stack trace."""
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Check failed" in line]
    rest = [line for line in lines if not line.startswith(("@", "***"))]
    return (errors or rest or ["no message"])[-1]


def without_gpu(command: str) -> tuple[str, ...]:
    """Return the options that disable the GPU; their names depend on the version of COLMAP."""
    names = re.findall(r"--(\w+\.use_gpu)\b", call(command, "--help"))
    return tuple(word for name in sorted(set(names)) for word in (f"--{name}", "0"))


class CommandWriter:
    """Writes a new database; cameras are inferred from the images in ``directory``.

    COLMAP's importer creates the database from text files, before the first pair is written.
    """

    def __init__(self, path: Path, directory: Path, stack: ExitStack) -> None:
        """Prepare the import; ``stack`` removes temporary files and closes the database."""
        self.path, self.directory, self.stack = path, directory, stack
        temporary = tempfile.TemporaryDirectory(dir=path.parent, prefix="text.")
        self.temporary = Path(stack.enter_context(temporary))
        self.names: list[str] = []
        self.tables: colmap_tables.Tables | None = None

    def features(self, name: str, features: Features) -> None:
        """Write the features of an image to temporary files."""
        text.write(inside(self.temporary / "text", f"{name}.txt"), features)
        np.save(inside(self.temporary / "keypoints", f"{name}.npy"), features.frames.to_colmap())
        self.names.append(name)

    def pair(self, pair: TwoViews) -> None:
        """Write a pair, if COLMAP can read both images."""
        tables = self.imported()
        if pair.name_a in tables.numbers and pair.name_b in tables.numbers:
            tables.add_pair(pair)

    def imported(self) -> colmap_tables.Tables:
        """Return the tables of the database; import all features in the first call."""
        if self.tables is not None:
            return self.tables
        paths = ("--database_path", self.path, "--image_path", self.directory)
        call("feature_importer", *paths, "--import_path", self.temporary / "text")
        self.tables = self.stack.enter_context(colmap_tables.opened(self.path))
        for name in self.names:
            if name in self.tables.numbers:
                keypoints = np.load(self.temporary / "keypoints" / f"{name}.npy")
                self.tables.replace_keypoints(name, keypoints)
            else:
                _log.warning("%s: not in the database, because COLMAP cannot read the file", name)
        return self.tables


def map_images(database: Path, directory: Path, output: Path) -> list[Reconstruction]:
    """Run COLMAP's mapper; return a summary of each model."""
    paths = ("--database_path", database, "--image_path", directory)
    try:
        call("mapper", *paths, "--output_path", output)
    except InputError as error:
        if "failed to create" not in str(error).lower():
            raise
    return [_summary(path) for path in sorted(output.iterdir()) if path.is_dir()]


def _summary(model: Path) -> Reconstruction:
    output = call("model_analyzer", "--path", model)

    def number(label: str) -> float:
        match = re.search(rf"{label}: *([0-9.]+)", output)
        if match is None:
            raise InputError(f"colmap model_analyzer: no {label!r} in the output")
        return float(match.group(1))

    return colmap_model.summary(model, int(number("Points")), number("Mean reprojection error"))
