"""The images of a directory, local or at any address that fsspec opens, by relative name."""

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

_BLOCK = 64  # images hashed by one task
SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm",
    ".heic", ".heif", ".avif", ".jp2", ".j2k",
)  # fmt: skip


@dataclass(frozen=True)
class Photograph:
    """An image file: ``name`` relative to its directory, ``content`` the hash of its bytes."""

    name: str
    content: str


class UnreadableError(InputError):
    """A file could not be read this time; the next run tries it again."""


def is_remote(directory: str) -> bool:
    """Return whether a directory is an address, such as ``s3://bucket/photos``."""
    return "://" in directory


def absolute(directory: str) -> str:
    """Return the absolute path of a directory; an address is returned unchanged, without file://."""
    directory = directory.removeprefix("file://")
    return directory if is_remote(directory) else str(Path(directory).absolute())


def _remote(directory: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            f"{directory}: addresses need fsspec: pip install 'caloric[collection]'"
        ) from None
    try:
        system, root = url_to_fs(directory)
    except (ImportError, ValueError, OSError) as error:
        raise InputError(f"{directory}: cannot be opened ({error})") from None
    return system, str(root).rstrip("/")


def names(directory: str) -> list[str]:
    """Return the sorted names of all images below a directory, and of links to directories."""
    if is_remote(directory):
        system, root = _remote(directory)
        try:
            result = [str(path)[len(root) + 1 :] for path in system.find(root)]
        except Exception as error:  # every fsspec file system has errors of its own
            raise InputError(f"{directory}: cannot be listed ({error})") from None
        linked = []
    else:
        base = Path(directory)
        if not base.is_dir():
            raise InputError(f"{directory}: no such directory")
        paths = list(base.rglob("*"))
        result = [p.relative_to(base).as_posix() for p in paths if p.is_file() or not p.exists()]
        # Links to directories are not followed, but reported as unreadable.
        linked = [p.relative_to(base).as_posix() for p in paths if p.is_symlink() and p.is_dir()]
    result = sorted(name for name in result if PurePosixPath(name).suffix.lower() in SUFFIXES)
    result += linked
    if not result:
        raise InputError(f"{directory}: no images in it ({', '.join(SUFFIXES)})")
    return result


def _inside(directory: str, name: str) -> Path:
    """Return the path of a file, which must lie in the directory after links are resolved."""
    path = Path(directory) / name
    if not path.resolve().is_relative_to(Path(directory).resolve()):
        raise InputError(f"{name}: leads out of the directory {directory}; copy the file into it")
    if path.is_dir():
        raise InputError(f"{name}: a link to a directory is not followed; name that directory")
    return path


def content(directory: str, name: str) -> bytes:
    """Return the bytes of an image file."""
    try:
        if is_remote(directory):
            system, root = _remote(directory)
            return bytes(system.cat_file(f"{root}/{name}"))
        return _inside(directory, name).read_bytes()
    except InputError:
        raise
    except Exception as error:  # every fsspec file system has errors of its own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableError(f"{name}: cannot be read ({reason})") from None


Block = tuple[str, tuple[str, ...]]  # a directory, and names in it


def blocks(directory: str) -> list[Block]:
    """Return the images of a directory in blocks, one for each hashing task."""
    images = names(directory)
    return [(directory, tuple(images[i : i + _BLOCK])) for i in range(0, len(images), _BLOCK)]


def hashed(block: Block) -> dict[str, Photograph | InputError]:
    """Return each image of a block with the hash of its content, or the error of reading it."""
    directory, names = block
    result: dict[str, Photograph | InputError] = {}
    for name in names:
        try:
            name.encode()
            result[name] = Photograph(name, hashlib.sha256(content(directory, name)).hexdigest())
        except UnicodeEncodeError:
            shown = name.encode("utf-8", "backslashreplace").decode()
            result[shown] = InputError(f"{shown}: the name is not UTF-8; rename the file")
        except InputError as error:
            result[name] = error
    return result


def pixels(directory: str, photograph: Photograph) -> tuple[NDArray[np.generic], int]:
    """Return the decoded, upright image and its EXIF orientation.

    Raises an error if the file has changed since it was hashed.
    """
    data = content(directory, photograph.name)
    if hashlib.sha256(data).hexdigest() != photograph.content:
        raise InputError(f"{photograph.name}: has changed during the run; run again")
    try:
        return reading.decode(data), reading.orientation(data)
    except InputError as error:
        raise InputError(f"{photograph.name}: {error}") from None


def bits(count: int, most: int) -> int:
    """Return the bits of a hash that give shards of about √count / 2 images, at most ``most``.

    There are then enough shards for many workers even where images are few.
    """
    each = min(most, max(1, math.isqrt(count) // 2))
    return max(0, math.ceil(math.log2(max(count, 1) / each)))


def bucket(name: str, depth: int) -> int:
    """Return the first ``depth`` bits of the hash of a name, which depend on nothing else."""
    value = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return value >> (64 - depth) if depth else 0


def in_buckets(photographs: list[Photograph], most: int) -> Iterator[tuple[int, list[Photograph]]]:
    """Yield the number and the images of each bucket, sorted by name."""
    depth = bits(len(photographs), most)
    groups: dict[int, list[Photograph]] = {}
    for photograph in sorted(photographs, key=lambda p: p.name):
        groups.setdefault(bucket(photograph.name, depth), []).append(photograph)
    yield from sorted(groups.items())
