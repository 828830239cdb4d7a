"""COLMAP by its executable, for machines that have no pycolmap: Linux on ARM, for example.

Features and matches reach it as the text files that its own importers read. They hold round
keypoints, so affine shapes are lost on the way; pycolmap keeps them.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from caloric.errors import InputError


def executable() -> str | None:
    """The path of ``colmap``, or None."""
    return shutil.which("colmap")


def _call(command: str, *options: str | Path) -> str:
    """What ``colmap COMMAND OPTIONS`` prints; its failure is an error in one line."""
    program = executable()
    if program is None:
        raise InputError("no colmap executable on the path")
    # Qt, with which it is linked, aborts without a display.
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [program, command, *map(str, options)],
        env=environment, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode and "--help" not in options:
        raise InputError(f"colmap {command} failed ({done.returncode}): {_reason(done)}")
    return done.stdout + done.stderr


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says why: an error, or a failed check, before the addresses of the stack."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    told = [line for line in lines if "ERROR" in line or "Check failed" in line]
    rest = [line for line in lines if not line.startswith(("@", "***"))]
    return (told or rest or ["no message"])[-1]


def _without_gpu(command: str) -> tuple[str, ...]:
    """The option that keeps a command off the GPU, which has another name in every few versions."""
    names = re.findall(r"--(\w+\.use_gpu)\b", _call(command, "--help"))
    return tuple(word for name in sorted(set(names)) for word in (f"--{name}", "0"))


def write_database(path: Path, text: Path, folder: Path, verified: bool) -> None:
    """A new database from text files: features ``text/NAME.txt`` and ``text/matches.txt``.

    ``folder`` has the images, which COLMAP opens for their cameras. Matches that are not
    ``verified`` are verified by COLMAP.
    """
    path.unlink(missing_ok=True)
    places = ("--database_path", path)
    _call("feature_importer", *places, "--image_path", folder, "--import_path", text)
    _call(
        "matches_importer", *places, "--match_list_path", text / "matches.txt",
        "--match_type", "inliers" if verified else "raw", *_without_gpu("matches_importer"),
    )  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model in numbers: its folder, images placed, points, and their mean error in pixels."""

    folder: Path
    images: int
    points: int
    error: float


def map_images(database: Path, folder: Path, output: Path) -> list[Model]:
    """COLMAP's mapper; what it made, one folder a model; nothing where it found no model."""
    places = ("--database_path", database, "--image_path", folder)
    try:
        _call("mapper", *places, "--output_path", output)
    except InputError as error:
        if "failed to create" not in str(error).lower():
            raise
    return [_analysed(path) for path in sorted(output.iterdir()) if path.is_dir()]


def _analysed(model: Path) -> Model:
    told = _call("model_analyzer", "--path", model)

    def number(label: str) -> float:
        found = re.search(rf"{label}: *([0-9.]+)", told)
        if found is None:
            raise InputError(f"colmap model_analyzer did not say how many: {label}")
        return float(found.group(1))

    return Model(
        model, int(number("Registered images")), int(number("Points")),
        number("Mean reprojection error"),
    )  # fmt: skip
