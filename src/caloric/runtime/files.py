"""Atomic file writing: readers never see a partial file."""

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from caloric.errors import InputError

_TOKEN_BYTES = 6  # of the names of temporary files
_STALE = 24 * 3600  # seconds after which a temporary file belongs to a killed process


def check_target(path: Path | None) -> None:
    """Raise InputError if ``path`` cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path} is a directory; specify a file")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the directory {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the directory {path.parent} is not writable")


def check_new(path: Path) -> None:
    """Raise InputError if ``path`` cannot be written or exists."""
    check_target(path)
    if path.exists():
        raise InputError(f"{path} already exists; specify a new file")


def check_directory(path: Path) -> Path:
    """Return the path of an output directory; raise InputError if it is empty or a file."""
    if path == Path():
        raise InputError("specify an output directory")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} exists and is not a directory; specify another")
    return path


def check_input_directory(path: str | Path, hint: str = "") -> Path:
    """Return the path of an input directory; raise InputError if it does not exist or is a file."""
    if not Path(path).is_dir():
        problem = "not a directory" if Path(path).exists() else "no such directory"
        raise InputError(f"{path}: {problem}{hint}")
    return Path(path)


@contextmanager
def created_directory(path: Path) -> Iterator[Path]:
    """Create a directory and its parents; after an error, remove those that are new and empty."""
    new = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # not empty
            for directory in new:
                directory.rmdir()
        raise


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file in the same directory, which then replaces ``path``."""
    check_target(path)
    name = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}")
    # Unlike tempfile, this gives the file the default permissions.
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield name
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def remove_stale(path: Path) -> None:
    """Remove temporary files of ``path`` that killed processes left at least a day ago."""
    temporary = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}(-journal)?")
    for other in path.parent.iterdir():
        if temporary.fullmatch(other.name):
            with suppress(OSError):  # removed by another process, or not ours
                if time.time() - other.stat().st_mtime > _STALE:
                    other.unlink()


_TEMPORARY = ".caloric-"  # start of the names of temporary directories


@contextmanager
def temporary_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory, which is removed at the end."""
    with tempfile.TemporaryDirectory(dir=parent, prefix=_TEMPORARY) as path:
        yield Path(path)


def remove_temporary_directories(parent: Path) -> None:
    """Remove the temporary directories that killed processes left; no other may be running."""
    for path in parent.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces ``path`` at the end."""
    with replacing_path(path) as name, open(name, "wb") as file:
        yield file
