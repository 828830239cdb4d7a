"""COLMAP by its executable, for machines without pycolmap, such as Linux on ARM.

Features are passed as the text files of COLMAP's importer, which reads the cameras; matches,
geometries and affine shapes are then written to the database's tables.
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
    """Return the path of ``colmap``, or None."""
    return shutil.which("colmap")


def call(command: str, *options: str | Path) -> str:
    """Return the output of ``colmap COMMAND OPTIONS``; raise an error of one line if it fails."""
    program = executable()
    if program is None:
        raise InputError("no colmap executable on the path")
    # COLMAP is linked with Qt, which aborts without a display.
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    result = subprocess.run(
        [program, command, *map(str, options)],
        env=environment, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if result.returncode and "--help" not in options:
        raise InputError(f"colmap {command} failed ({result.returncode}): {_reason(result)}")
    return result.stdout + result.stderr


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    """Return the line of the output that gives the reason, not one of the stack trace."""
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Check failed" in line]
    rest = [line for line in lines if not line.startswith(("@", "***"))]
    return (errors or rest or ["no message"])[-1]


def without_gpu(command: str) -> tuple[str, ...]:
    """Return the options that disable the GPU; their name depends on COLMAP's version."""
    names = re.findall(r"--(\w+\.use_gpu)\b", call(command, "--help"))
    return tuple(word for name in sorted(set(names)) for word in (f"--{name}", "0"))


class CommandWriter:
    """Writes a new database; cameras are read from the images in ``directory``.

    COLMAP's importer makes the database from text files, before the first pair is written.
    """

    def __init__(self, path: Path, directory: Path, stack: ExitStack) -> None:
        """Use ``stack`` to remove temporary files and to close the database."""
        self.path, self.directory, self.stack = path, directory, stack
        place = tempfile.TemporaryDirectory(dir=path.parent, prefix="text.")
        self.place = Path(stack.enter_context(place))
        self.names: list[str] = []
        self.tables: colmap_tables.Tables | None = None

    def features(self, name: str, features: Features) -> None:
        """Keep the features of an image until the import."""
        text.write(inside(self.place / "text", f"{name}.txt"), features)
        np.save(inside(self.place / "keypoints", f"{name}.npy"), features.frames.to_colmap())
        self.names.append(name)

    def pair(self, pair: TwoViews) -> None:
        """Write a pair, if COLMAP can read both images."""
        tables = self.imported()
        if pair.name_a in tables.numbers and pair.name_b in tables.numbers:
            tables.add_pair(pair)

    def imported(self) -> colmap_tables.Tables:
        """Return the database with the features of all images."""
        if self.tables is not None:
            return self.tables
        paths = ("--database_path", self.path, "--image_path", self.directory)
        call("feature_importer", *paths, "--import_path", self.place / "text")
        self.tables = self.stack.enter_context(colmap_tables.opened(self.path))
        for name in self.names:
            if name in self.tables.numbers:
                keypoints = np.load(self.place / "keypoints" / f"{name}.npy")
                self.tables.replace_keypoints(name, keypoints)
            else:
                _log.warning("%s: left out of the database, because COLMAP cannot read it", name)
        return self.tables


def map_images(database: Path, directory: Path, output: Path) -> list[Reconstruction]:
    """Run COLMAP's mapper; return a summary of each model, none if it found no model."""
    paths = ("--database_path", database, "--image_path", directory)
    try:
        call("mapper", *paths, "--output_path", output)
    except InputError as error:
        if "failed to create" not in str(error).lower():
            raise
    return [_analysed(path) for path in sorted(output.iterdir()) if path.is_dir()]


def _analysed(model: Path) -> Reconstruction:
    output = call("model_analyzer", "--path", model)

    def number(label: str) -> float:
        match = re.search(rf"{label}: *([0-9.]+)", output)
        if match is None:
            raise InputError(f"colmap model_analyzer printed no value of {label!r}")
        return float(match.group(1))

    return colmap_model.summary(model, int(number("Points")), number("Mean reprojection error"))
