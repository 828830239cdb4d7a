"""Writing files so that nobody ever sees half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from caloric.errors import InputError


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A new name beside ``path``; what is written there takes its place at the end."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        # mkstemp makes files for the owner alone; give this one what any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when all of it has been written."""
    with replacing_path(path) as name, open(name, "wb") as file:
        yield file
