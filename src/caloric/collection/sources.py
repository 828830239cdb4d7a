"""The images of a folder, by names relative to it: on disk, or wherever fsspec reaches."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import reading

_BLOCK = 64
SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm")


@dataclass(frozen=True)
class Photograph:
    """``name`` relative to its folder, with slashes; ``content`` the hash of its bytes."""

    name: str
    content: str


class UnreadableError(InputError):
    """A file that could not be read this time, whatever is in it."""


def is_remote(folder: str) -> bool:
    """Whether it is an address, such as s3://bucket/photos."""
    return "://" in folder


def absolute(folder: str) -> str:
    """The same from wherever a worker runs; file:// is a folder like any other."""
    folder = folder.removeprefix("file://")
    return folder if is_remote(folder) else str(Path(folder).absolute())


def _remote(folder: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            f"{folder}: addresses need fsspec: pip install 'caloric[collection]'"
        ) from None
    try:
        system, root = url_to_fs(folder)
    except (ImportError, ValueError, OSError) as error:
        raise InputError(f"{folder}: cannot be opened ({error})") from None
    return system, str(root).rstrip("/")


def names(folder: str) -> list[str]:
    """Of all images below a folder, sorted; a link that leads out of it is an error."""
    if is_remote(folder):
        system, root = _remote(folder)
        try:
            found = [str(path)[len(root) + 1 :] for path in system.find(root)]
        except Exception as error:  # each file system has its own
            raise InputError(f"{folder}: cannot be listed ({error})") from None
        linked = []
    else:
        base = Path(folder)
        if not base.is_dir():
            raise InputError(f"{folder}: no such folder")
        every = list(base.rglob("*"))
        found = [p.relative_to(base).as_posix() for p in every if p.is_file() or not p.exists()]
        # Not followed: told as what cannot be read.
        linked = [p.relative_to(base).as_posix() for p in every if p.is_symlink() and p.is_dir()]
    found = sorted(name for name in found if PurePosixPath(name).suffix.lower() in SUFFIXES)
    found += linked
    if not found:
        raise InputError(f"{folder}: no images in it ({', '.join(SUFFIXES)})")
    return found


def _inside(folder: str, name: str) -> Path:
    """The file of a name, which must lie in the folder, links followed."""
    path = Path(folder) / name
    if not path.resolve().is_relative_to(Path(folder).resolve()):
        raise InputError(f"{name}: leads out of the folder {folder}; copy the file into it")
    if path.is_dir():
        raise InputError(f"{name}: a link to a folder is not followed; name that folder")
    return path


def content(folder: str, name: str) -> bytes:
    """The bytes of an image's file."""
    try:
        if is_remote(folder):
            system, root = _remote(folder)
            return bytes(system.cat_file(f"{root}/{name}"))
        return _inside(folder, name).read_bytes()
    except InputError:
        raise
    except Exception as error:  # an fsspec file system has errors of its own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableError(f"{name}: cannot be read ({reason})") from None


Block = tuple[str, tuple[str, ...]]  # a folder, and names in it


def blocks(folder: str) -> list[Block]:
    """All images of a folder, so many at a time."""
    every = names(folder)
    return [(folder, tuple(every[i : i + _BLOCK])) for i in range(0, len(every), _BLOCK)]


def hashed(block: Block) -> dict[str, Photograph | InputError]:
    """Each with the hash of its content, or why it cannot be read."""
    folder, every = block
    found: dict[str, Photograph | InputError] = {}
    for name in every:
        try:
            name.encode()
            found[name] = Photograph(name, hashlib.sha256(content(folder, name)).hexdigest())
        except UnicodeEncodeError:
            shown = name.encode("utf-8", "backslashreplace").decode()
            found[shown] = InputError(f"{shown}: the name is not UTF-8; rename the file")
        except InputError as error:
            found[name] = error
    return found


def pixels(folder: str, photograph: Photograph) -> NDArray[np.generic]:
    """The image itself; one that is no longer what it was is an error."""
    data = content(folder, photograph.name)
    if hashlib.sha256(data).hexdigest() != photograph.content:
        raise InputError(f"{photograph.name}: has changed during the run; run again")
    try:
        return reading.decode(data)
    except InputError as error:
        raise InputError(f"{photograph.name}: {error}") from None


def bits(count: int, most: int) -> int:
    """How many bits of a name's hash make shards of about √count of ``count``, and ``most``."""
    each = min(most, max(2, math.isqrt(count)))
    return max(0, math.ceil(math.log2(max(count, 1) / each)))


def bucket(name: str, depth: int) -> int:
    """The first ``depth`` bits of the name's hash: the same whatever else there is."""
    whole = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return whole >> (64 - depth) if depth else 0


def in_buckets(found: list[Photograph], most: int) -> Iterator[tuple[int, list[Photograph]]]:
    """By bucket, those of one sorted by name."""
    depth = bits(len(found), most)
    groups: dict[int, list[Photograph]] = {}
    for one in sorted(found, key=lambda p: p.name):
        groups.setdefault(bucket(one.name, depth), []).append(one)
    yield from sorted(groups.items())
