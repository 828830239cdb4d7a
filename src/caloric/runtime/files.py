"""Writing files so that nobody ever sees half of one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from caloric.errors import InputError


def check_target(path: Path | None) -> None:
    """An error now, rather than after the work, if nothing can be written there."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} cannot be written to")


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A new name beside ``path``; what is written there takes its place at the end."""
    check_target(path)
    name = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    # Made here, so that it has the rights that any new file would have.
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield name
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when all of it has been written."""
    with replacing_path(path) as name, open(name, "wb") as file:
        yield file
