"""Alignments of a model that is being refined, saved so that an interrupted call can continue."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from caloric.collection.aligning import Alignments
from caloric.collection.scenes import Scene
from caloric.runtime.files import replacing

NAME = "unfinished"  # directory below that of the new model
_FORMAT = "1"  # increase if the alignments change


def _key(model: Path, images: Path, scene: Scene) -> str:
    """Return a hash of the model's files, and of the sizes and times of the images."""
    value = hashlib.sha256(_FORMAT.encode())
    for path in sorted(model.glob("*.*")):
        if path.is_file():
            value.update(path.name.encode() + path.read_bytes())
    for image in scene.images:
        with suppress(OSError):
            status = (images / image.name).stat()
            value.update(f"{image.name} {status.st_size} {status.st_mtime_ns}".encode())
    return value.hexdigest()


class Checkpoints:
    """Saves the alignments of each block of images below the directory of a new model.

    Files for another model, or for other images, are removed.
    """

    def __init__(self, target: Path, model: Path, images: Path, scene: Scene) -> None:
        """Create the directory."""
        self.directory = target / NAME
        key = _key(model, images, scene)
        file = self.directory / "key.txt"
        if not file.is_file() or file.read_text() != key:
            self.remove()
            self.directory.mkdir()
            file.write_text(key)

    def __call__(self, name: str, make: Callable[[], list[Alignments]]) -> list[Alignments]:
        """Return the alignments of a block of images; make and save them if necessary."""
        path = self.directory / f"{name}.npz"
        with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path) as arrays:
            return [Alignments(**arrays)]
        parts = make()
        if parts:
            names = Alignments.__dataclass_fields__
            joined: dict[str, Any] = {
                name: np.concatenate([vars(v)[name] for v in parts]) for name in names
            }
            with replacing(path) as file:
                np.savez(file, **joined)
        return parts

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.directory, ignore_errors=True)
