"""Atomic writing of files: a reader never sees a partial file."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from caloric.errors import InputError


def check_target(path: Path | None) -> None:
    """Raise InputError before any work is done if ``path`` cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path}: a directory; name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the directory {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the directory {path.parent} cannot be written to")


def check_directory(path: Path) -> Path:
    """Return a directory to write to; raise InputError if it is a file or has no name."""
    if path == Path():
        raise InputError("name a directory to write to")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} exists and is not a directory; name another")
    return path


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield the path of a new file in the same directory, which replaces ``path`` at the end."""
    check_target(path)
    name = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    # Created here, so that it gets the default permissions of new files.
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield name
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces ``path`` once it has been written completely."""
    with replacing_path(path) as name, open(name, "wb") as file:
        yield file
