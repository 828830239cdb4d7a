"""Arrays that long work has computed so far, saved so that an interrupted call can continue."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from caloric.runtime.files import replacing

NAME = "unfinished"  # directory below that of a new model
_FORMAT = b"2"  # increase if the arrays change

Arrays = dict[str, Any]  # arrays by name


def beside(path: Path) -> Path:
    """Return the directory for the checkpoints of a new file."""
    return path.with_name(f"{path.name}.{NAME}")


def states(directory: Path, names: Iterable[str]) -> Iterator[bytes]:
    """Yield the names of files with their sizes and times, if they exist."""
    for name in names:
        with suppress(OSError):
            status = (directory / name).stat()
            yield f"{name} {status.st_size} {status.st_mtime_ns}".encode()


class Checkpoints:
    """Saves arrays in a directory.

    ``inputs`` are everything that the arrays depend on. Files for other inputs are removed.
    """

    def __init__(self, directory: Path, inputs: Iterable[bytes]) -> None:
        """Create the directory."""
        self.directory = directory
        key = hashlib.sha256(_FORMAT)
        for part in inputs:
            key.update(hashlib.sha256(part).digest())
        file = self.directory / "key.txt"
        if not file.is_file() or file.read_text() != key.hexdigest():
            self.remove()
            self.directory.mkdir()
            file.write_text(key.hexdigest())

    def __call__(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return named arrays; make and save them if necessary, unless there are none."""
        path = self.directory / f"{name}.npz"
        with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path) as arrays:
            return dict(arrays)
        made = make()
        if made:
            with replacing(path) as file:
                np.savez(file, **made)
        return made

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.directory, ignore_errors=True)
