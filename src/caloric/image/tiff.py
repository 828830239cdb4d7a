"""Windowed reading of TIFF files: strips and tiles are decoded on demand and cached."""

import os
import warnings
import weakref
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import reading
from caloric.image.pixels import scaled_to_white

SMALL = 4_000_000  # pixels: images up to this size are read as a whole
KEPT = 128_000_000  # bytes of decoded strips and tiles in the cache

_GRAY, _RGB = 1, 2  # photometric interpretations that need no conversion


class TiffWindows:
    """A grayscale or RGB TIFF file of 8 or 16 bits or floats, read by windows."""

    def __init__(
        self, path: Path, file: IO[bytes], page: Any, white_level: float | None = None
    ) -> None:
        """Wrap a ``page`` (tifffile.TiffPage) of an open file."""
        self._white_level = white_level
        self._path, self._file, self._page = path, file, page
        weakref.finalize(self, file.close)
        self._lock = Lock()
        self._cache: OrderedDict[int, NDArray[np.generic]] = OrderedDict()
        samples = int(page.samplesperpixel)
        size = (int(page.imagelength), int(page.imagewidth))
        self._shape = size if samples == 1 else (*size, samples)
        self._part = (
            (int(page.tilelength), int(page.tilewidth))
            if page.is_tiled
            else (int(page.rowsperstrip), size[1])
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (h, w) or (h, w, 3) of the image."""
        return self._shape

    def window(self, rows: slice, columns: slice) -> NDArray[np.generic]:
        """Return the pixels of the given rows and columns."""
        height, width = self._part
        across = -(-self._shape[1] // width)
        shape = (rows.stop - rows.start, columns.stop - columns.start, *self._shape[2:])
        result = np.empty(shape, self._page.dtype)
        for i in range(rows.start // height, -(-rows.stop // height)):
            for j in range(columns.start // width, -(-columns.stop // width)):
                part = self._decoded(i * across + j)
                top, left = i * height, j * width
                y0, y1 = max(top, rows.start), min(top + height, rows.stop)
                x0, x1 = max(left, columns.start), min(left + width, columns.stop)
                target = result[y0 - rows.start : y1 - rows.start]
                target[:, x0 - columns.start : x1 - columns.start] = part[
                    y0 - top : y1 - top, x0 - left : x1 - left
                ]
        return result if self._white_level is None else scaled_to_white(result, self._white_level)

    def _decoded(self, index: int) -> NDArray[np.generic]:
        with self._lock:
            if index in self._cache:
                self._cache.move_to_end(index)
                return self._cache[index]
            part = self._read(index)
            self._cache[index] = part
            while len(self._cache) > 1 and sum(p.nbytes for p in self._cache.values()) > KEPT:
                self._cache.popitem(last=False)
            return part

    def _bytes(self, offset: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            # pread does not move the file position, which forked processes share.
            return os.pread(self._file.fileno(), count, offset)
        self._file.seek(offset)
        return self._file.read(count)

    def _read(self, index: int) -> NDArray[np.generic]:
        page = self._page
        try:
            data = self._bytes(page.dataoffsets[index], page.databytecounts[index])
            part, _, shape = page.decode(data, index, jpegtables=page.jpegtables)
            if part is None:  # not stored in a sparse file
                part = np.full(shape, page.nodata, page.dtype)
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"{self._path}: strip or tile {index} is damaged ({reason})") from None
        return np.asarray(part[0] if len(self._shape) == 3 else part[0, ..., 0])


def windows(path: Path, white_level: float | None = None) -> TiffWindows | None:
    """Return a TIFF file as windows; None for files that are read as a whole."""
    try:
        import tifffile

        file = path.open("rb")
    except (OSError, ImportError, ValueError):
        return None
    result = None
    try:
        if file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                page: Any = tifffile.TiffFile(file).pages[0]
                if _plain(page):
                    tags = {tag.code: tag.value for tag in page.tags}
                    if white_level is None and page.dtype == np.uint16:
                        white_level = reading.stated_white(tags, page.description.encode())
                    result = TiffWindows(path, file, page, white_level)
                    result._read(0)
    except Exception:
        result = None  # reported when the whole file is read
    if result is None:
        file.close()
    return result


def _plain(page: Any) -> bool:
    """Return whether an image is large and needs no conversion: no palette, no planes, upright."""
    orientation = page.tags.get("Orientation")
    return bool(
        page.imagelength * page.imagewidth > SMALL
        and (orientation is None or orientation.value == 1)
        and page.imagedepth == 1
        and page.planarconfig == 1
        and str(page.dtype) in ("uint8", "uint16", "float32")
        and (
            (page.photometric == _GRAY and page.samplesperpixel == 1)
            or (page.photometric == _RGB and page.samplesperpixel == 3)
        )
    )
