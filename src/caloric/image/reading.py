"""Reading image files: as they were meant to be seen, or an error of one line."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import Windows

MAX_PIXELS = 134_217_728
_DEEP_PNG = 16
# Tags of TIFF and of EXIF.
_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION = 256, 257, 258, 262, 274
_SAMPLES, _PLANAR, _EXTRA = 277, 284, 338
_SHORT = 3  # TIFF's type of 16 bits
_TIFF: dict[bytes, Literal["little", "big"]] = {b"II*\0": "little", b"MM\0*": "big"}


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic]:
    """The pixels of a file, (h, w) or (h, w, 3 | 4) in RGB order, turned as its EXIF data says.

    8 and 16 bits and floats keep their type (16 bits of rare kinds, CMYK or PPM, become 8);
    palettes and CMYK become RGB. A file that claims more
    than ``max_pixels`` is refused before any memory is taken for it.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not an image") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    try:
        return decode(data, max_pixels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def open_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic] | Windows:
    """The image, to be read by windows where the file allows: then any number of pixels.

    Of a TIFF in strips or tiles that ``tifffile`` can decode one by one (the extra ``tiff``) only
    a window is in memory, and the strips or tiles that were decoded last, 128 megabytes of them;
    all else is read as :func:`read_image` does.
    """
    from caloric.image import tiff

    found = tiff.windows(Path(path))
    return read_image(path, max_pixels) if found is None else found


_lock = Lock()
_readers = 0
_before: tuple[Any, int] | None = None


@contextmanager
def _quiet() -> Iterator[None]:
    """What decoders think of a file would come before our one line.

    Warnings and OpenCV's log belong to the process: the first reader silences them, the last one
    puts back what there was.
    """
    global _readers, _before
    log = cv2.utils.logging
    with _lock:
        if _readers == 0:
            caught = warnings.catch_warnings()
            _before = caught, log.getLogLevel()
            caught.__enter__()
            warnings.simplefilter("ignore")
            log.setLogLevel(log.LOG_LEVEL_SILENT)
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if _readers == 0 and _before is not None:
                caught, level = _before
                caught.__exit__(None, None, None)
                log.setLogLevel(level)


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic]:
    """The same from the bytes of a file."""
    with _quiet():
        return _decode(data, max_pixels)


def _decode(data: bytes, max_pixels: int) -> NDArray[np.generic]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            w, h = image.size
            if w * h > max_pixels:
                raise InputError(f"claims {w} x {h} pixels, more than the limit of {max_pixels:,}")
            if w * h == 0:
                raise InputError("has no pixels")
            if _for_opencv(image, data):
                if image.format == "TIFF":
                    return _deep(data)  # OpenCV turns these itself
                # Pillow is strict about damage, where other decoders fill in what is missing.
                image.load()
                return _turned(_deep(data), int(image.getexif().get(_ORIENTATION, 1)))
            image.load()
            return _plain(ImageOps.exif_transpose(image))
    except InputError:
        raise
    except UnidentifiedImageError:
        tags = _tiff_tags(data)
        if not tags:
            raise InputError("not an image that can be read (unknown format)") from None
        if tags.get(_WIDTH, 0) * tags.get(_HEIGHT, 0) > max_pixels:
            raise InputError(f"claims more pixels than the limit of {max_pixels:,}") from None
        return _deep(data)
    except Image.DecompressionBombError:
        raise InputError(f"claims more pixels than the limit of {max_pixels:,}") from None
    except (MemoryError, RecursionError):
        raise InputError("too large to be decoded") from None
    except Exception as error:
        # Decoders fail in many ways on a broken file; to the user all are the same.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"not an image that can be read ({reason[:120]})") from None


def _for_opencv(image: Any, data: bytes) -> bool:
    """More than 8 bits, which Pillow reduces to 8 in colour; and plain TIFF.

    Of a TIFF with 8 bits and alpha OpenCV would make something else.
    """
    if image.format == "TIFF":
        deep = max(image.tag_v2.get(_BITS, (1,))) > 8
        return deep or image.mode in ("1", "L", "RGB")
    return bool(image.format == "PNG" and data[24] == _DEEP_PNG)


def _tiff_tags(data: bytes) -> dict[int, int]:
    """The tags of a TIFF file that are one number. BITS, which may be several, is the first."""
    order: Literal["little", "big"] | None = _TIFF.get(data[:4])
    if order is None:
        return {}
    start = int.from_bytes(data[4:8], order)
    tags = {}
    for entry in range(int.from_bytes(data[start : start + 2], order)):
        at = start + 2 + 12 * entry
        width = 2 if int.from_bytes(data[at + 2 : at + 4], order) == _SHORT else 4
        count = int.from_bytes(data[at + 4 : at + 8], order)
        place = at + 8
        if width * count > 4:
            place = int.from_bytes(data[at + 8 : at + 12], order)
        number = int.from_bytes(data[place : place + width], order)
        tags[int.from_bytes(data[at : at + 2], order)] = number
    return tags


def _turned(pixels: NDArray[np.generic], orientation: int) -> NDArray[np.generic]:
    """As EXIF's orientation 1 to 8 says: 5 to 8 are transposed, then rows or columns run back."""
    if not 2 <= orientation <= 8:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def _deep(data: bytes) -> NDArray[np.generic]:
    """By OpenCV: colours of 16 bits and floats."""
    tags = _tiff_tags(data)
    deep = tags.get(_BITS, 8) > 8 or tags.get(_SAMPLES, 1) > 2
    if deep and tags.get(_PLANAR, 1) == 2:
        raise InputError("stores its colours in separate planes; store them together")
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise InputError("not an image that can be read")
    if pixels.dtype.kind != "f" and pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(f"has pixels of type {pixels.dtype}; store it as 8 or 16 bits or floats")
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        pixels = pixels[..., [2, 1, 0, 3]]
        return _straight(pixels) if tags.get(_EXTRA) == 1 else np.ascontiguousarray(pixels)
    if tags.get(_PHOTOMETRIC) == 0 and pixels.dtype != np.uint8:
        # White is 0. OpenCV minds that for 8 bits alone.
        return np.asarray(_white(pixels) - pixels)
    return np.asarray(pixels)


def _white(pixels: NDArray[Any]) -> Any:
    kind = pixels.dtype
    return kind.type(1) if kind.kind == "f" else kind.type(np.iinfo(kind).max)


def _straight(pixels: NDArray[Any]) -> NDArray[np.generic]:
    """Colours that were multiplied by alpha, divided by it again."""
    white = float(_white(pixels))
    alpha = np.maximum(pixels[..., 3:].astype(np.float64), 1e-9 * white) / white
    colours = np.minimum(pixels[..., :3] / alpha, white)
    colours = colours if pixels.dtype.kind == "f" else np.rint(colours)
    return np.concatenate([colours.astype(pixels.dtype), pixels[..., 3:]], -1)


def _plain(image: Any) -> NDArray[np.generic]:
    transparent = "A" in image.getbands() or "transparency" in image.info
    if image.mode in ("1", "L") and not transparent:
        return np.asarray(image.convert("L"))
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode == "I":
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise InputError("has 32-bit integers beyond 16 bits; rescale it first")
        return values.astype(np.uint16)
    if image.mode == "F":
        return np.asarray(image)
    return np.asarray(image.convert("RGBA" if transparent else "RGB"))
