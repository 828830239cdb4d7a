"""COLMAP by its executable, for machines without pycolmap, such as Linux on ARM.

Features are passed as the text files of COLMAP's importer, which reads the cameras; matches,
geometries and affine shapes are then written to the database's tables.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from caloric.errors import InputError


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


def import_features(path: Path, text: Path, folder: Path) -> None:
    """Write a new database from text files ``text/NAME.txt``, with cameras from the images."""
    path.unlink(missing_ok=True)
    paths = ("--database_path", path, "--image_path", folder)
    call("feature_importer", *paths, "--import_path", text)


@dataclass(frozen=True)
class Model:
    """The summary of a model: its folder, registered images, points, and mean error in pixels."""

    folder: Path
    images: int
    points: int
    error: float


def map_images(database: Path, folder: Path, output: Path) -> list[Model]:
    """Run COLMAP's mapper; return a summary of each model, none if it found no model."""
    paths = ("--database_path", database, "--image_path", folder)
    try:
        call("mapper", *paths, "--output_path", output)
    except InputError as error:
        if "failed to create" not in str(error).lower():
            raise
    return [_analysed(path) for path in sorted(output.iterdir()) if path.is_dir()]


def _analysed(model: Path) -> Model:
    output = call("model_analyzer", "--path", model)

    def number(label: str) -> float:
        match = re.search(rf"{label}: *([0-9.]+)", output)
        if match is None:
            raise InputError(f"colmap model_analyzer printed no value of {label!r}")
        return float(match.group(1))

    return Model(
        model, int(number("Registered images")), int(number("Points")),
        number("Mean reprojection error"),
    )  # fmt: skip
