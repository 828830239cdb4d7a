"""The images of a directory, on disk or at a URL that fsspec can open, by relative name."""

import hashlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import exif, reading
from caloric.image.exif import Exif
from caloric.runtime.files import check_input_directory

_LOGGER = logging.getLogger(__name__)
_BLOCK = 64  # images hashed by one task
SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm",
    ".heic", ".heif", ".avif", ".jp2", ".j2k",
)  # fmt: skip


@dataclass(frozen=True)
class ImageFile:
    """An image file: its path relative to the image directory, the hash of its bytes, its EXIF."""

    name: str
    content: str
    exif: Exif = field(default=Exif(), compare=False)


class UnreadableError(InputError):
    """A file could not be read in this run; the next run retries it."""


def is_remote(directory: str) -> bool:
    """Return whether a directory is a URL, such as ``s3://bucket/photos``."""
    return "://" in directory


def absolute(directory: str) -> str:
    """Return the absolute path of a directory, without ``file://``; other URLs are unchanged."""
    directory = directory.removeprefix("file://")
    return directory if is_remote(directory) else str(Path(directory).absolute())


def _remote(directory: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            f"{directory}: URLs need fsspec: pip install 'caloric[collection]'"
        ) from None
    try:
        system, root = url_to_fs(directory)
    except (ImportError, ValueError, OSError) as error:
        raise InputError(f"{directory}: cannot be opened ({error})") from None
    return system, str(root).rstrip("/")


def names(directory: str) -> list[str]:
    """Return the sorted names of all images in a directory tree, then links to directories.

    Hidden files and directories, whose names start with a dot, are skipped and logged.
    """
    if is_remote(directory):
        system, root = _remote(directory)
        try:
            result = [str(path)[len(root) + 1 :] for path in system.find(root)]
        except Exception as error:  # each fsspec file system defines different errors
            raise InputError(f"{directory}: cannot be listed ({error})") from None
        linked = []
    else:
        base = check_input_directory(directory)
        paths = list(base.rglob("*"))
        result = [p.relative_to(base).as_posix() for p in paths if p.is_file() or not p.exists()]
        # Links to directories are not followed; they are reported as unreadable.
        linked = [p.relative_to(base).as_posix() for p in paths if p.is_symlink() and p.is_dir()]
    result = sorted(name for name in result if PurePosixPath(name).suffix.lower() in SUFFIXES)
    hidden = [name for name in result if _is_hidden(name)]
    if hidden:
        _LOGGER.warning("hidden files are skipped: %d, such as %s", len(hidden), hidden[0])
    result = [name for name in result + linked if not _is_hidden(name)]
    if not result:
        raise InputError(f"{directory}: contains no images ({', '.join(SUFFIXES)})")
    return result


def _is_hidden(name: str) -> bool:
    """Return whether a name or one of its directories starts with a dot, as on Unix."""
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _inside(directory: str, name: str) -> Path:
    """Return the path of a file; raise an error if a link leads out of the directory."""
    path = Path(directory) / name
    if not path.resolve().is_relative_to(Path(directory).resolve()):
        raise InputError(f"{name}: a link out of {directory}; copy the file into the directory")
    if path.is_dir():
        raise InputError(f"{name}: links to directories are not followed; copy the directory")
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
    except Exception as error:  # each fsspec file system defines different errors
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableError(f"{name}: cannot be read ({reason})") from None


Block = tuple[str, tuple[str, ...]]  # a directory, and names of images in it


def blocks(directory: str) -> list[Block]:
    """Return the images of a directory in blocks, one for each hashing task."""
    images = names(directory)
    return [(directory, tuple(images[i : i + _BLOCK])) for i in range(0, len(images), _BLOCK)]


def hashed(block: Block) -> dict[str, ImageFile | InputError]:
    """Return the images of a block by name, with hashes; or errors for unreadable ones."""
    directory, names = block
    result: dict[str, ImageFile | InputError] = {}
    for name in names:
        try:
            name.encode()
            data = content(directory, name)
            result[name] = ImageFile(name, hashlib.sha256(data).hexdigest(), exif.read(data))
        except UnicodeEncodeError:
            shown = name.encode("utf-8", "backslashreplace").decode()
            result[shown] = InputError(f"{shown}: the name is not UTF-8; rename the file")
        except InputError as error:
            result[name] = error
    return result


def pixels(
    directory: str, file: ImageFile, white_level: float | None = None
) -> tuple[NDArray[np.generic], int]:
    """Return the decoded, upright image and its EXIF orientation.

    Raises InputError if the file has changed since it was hashed.
    """
    data = content(directory, file.name)
    if hashlib.sha256(data).hexdigest() != file.content:
        raise InputError(f"{file.name}: the file has changed; extract its features again")
    try:
        return reading.decode(data, white_level=white_level), reading.orientation(data)
    except InputError as error:
        raise InputError(f"{file.name}: {error}") from None


def bits(count: int, max_per_shard: int) -> int:
    """Return the number of hash bits that select a shard.

    A shard then has about √count / 2 images, but at most ``max_per_shard``, so that there are
    enough shards for many workers even if there are few images.
    """
    per_shard = min(max_per_shard, max(1, math.isqrt(count) // 2))
    return max(0, math.ceil(math.log2(max(count, 1) / per_shard)))


def bucket(name: str, depth: int) -> int:
    """Return the first ``depth`` bits of the hash of a name."""
    value = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return value >> (64 - depth) if depth else 0


def in_buckets(files: list[ImageFile], max_per_shard: int) -> Iterator[tuple[int, list[ImageFile]]]:
    """Yield the number of each bucket, and its images sorted by name."""
    depth = bits(len(files), max_per_shard)
    groups: dict[int, list[ImageFile]] = {}
    for file in sorted(files, key=lambda file: file.name):
        groups.setdefault(bucket(file.name, depth), []).append(file)
    yield from sorted(groups.items())
