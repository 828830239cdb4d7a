"""Reading image files: as they were meant to be seen, or an error of one line."""

import io
import warnings
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError

MAX_PIXELS = 134_217_728
_DEEP_PNG = 16
_TIFF: dict[bytes, Literal["little", "big"]] = {b"II*\0": "little", b"MM\0*": "big"}


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic]:
    """The pixels of a file, (h, w) or (h, w, 3 | 4) in RGB order, turned as its EXIF data says.

    8 and 16 bits and floats keep their type; palettes and CMYK become RGB. A file that claims more
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


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic]:
    """The same from the bytes of a file."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    with warnings.catch_warnings():
        # Odd metadata is the file's business; what matters is whether the pixels can be had.
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                w, h = image.size
                if w * h > max_pixels:
                    raise InputError(
                        f"claims {w} x {h} pixels, more than the limit of {max_pixels:,}"
                    )
                if w * h == 0:
                    raise InputError("has no pixels")
                if image.format == "TIFF":
                    return _deep(data)
                # Pillow is strict about damage, where other decoders fill in what is missing.
                image.load()
                if image.format == "PNG" and data[24] == _DEEP_PNG:
                    return _deep(data)
                return _plain(ImageOps.exif_transpose(image))
        except InputError:
            raise
        except UnidentifiedImageError:
            size = _tiff_size(data)
            if size is None:
                raise InputError("not an image that can be read (unknown format)") from None
            if size > max_pixels:
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


def _tiff_size(data: bytes) -> int | None:
    """Pixels that a TIFF file claims, for those that Pillow does not know: floats in colour."""
    order: Literal["little", "big"] | None = _TIFF.get(data[:4])
    if order is None:
        return None
    start = int.from_bytes(data[4:8], order)
    sizes = {256: 0, 257: 0}
    for entry in range(int.from_bytes(data[start : start + 2], order)):
        at = start + 2 + 12 * entry
        tag = int.from_bytes(data[at : at + 2], order)
        if tag in sizes:
            width = 2 if int.from_bytes(data[at + 2 : at + 4], order) == 3 else 4
            sizes[tag] = int.from_bytes(data[at + 8 : at + 8 + width], order)
    return sizes[256] * sizes[257] or None


def _deep(data: bytes) -> NDArray[np.generic]:
    """By OpenCV: colours of 16 bits and floats, which Pillow would reduce to 8 bits."""
    level = cv2.utils.logging.getLogLevel()
    # What a decoder thinks of a file would come before our one line.
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    finally:
        cv2.utils.logging.setLogLevel(level)
    if pixels is None:
        raise InputError("not an image that can be read")
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        return np.ascontiguousarray(pixels[..., [2, 1, 0, 3]])
    return np.asarray(pixels)


def _plain(image: Any) -> NDArray[np.generic]:
    if image.mode in ("1", "L"):
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
    transparent = "A" in image.getbands() or "transparency" in image.info
    return np.asarray(image.convert("RGBA" if transparent else "RGB"))
