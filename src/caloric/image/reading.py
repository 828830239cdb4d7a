"""Decoding of image files and Pillow images to upright RGB or grayscale pixels."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.pixels import scaled_to_white

MAX_PIXELS = 134_217_728
_DEEP_PNG = 16
# Tags of TIFF and of EXIF.
_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION = 256, 257, 258, 262, 274
_SAMPLES, _PLANAR, _EXTRA = 277, 284, 338
_DESCRIPTION, _MAX_SAMPLE, _WHITE_LEVEL = 270, 281, 50717
_SHORT = 3  # TIFF's 16-bit integer type
_TIFF: dict[bytes, Literal["little", "big"]] = {b"II*\0": "little", b"MM\0*": "big"}


_lock = Lock()
_readers = 0
_before: tuple[Any, int] | None = None
LOG: Any = getattr(cv2.utils, "logging", cv2)  # the functions are in cv2 before OpenCV 4.13
_SILENT = 0


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings of decoders, so that error messages stay one line.

    Warning filters and OpenCV's log level are process-wide: the first of concurrent readers sets
    them and the last one restores them.
    """
    global _readers, _before
    with _lock:
        if _readers == 0:
            caught = warnings.catch_warnings()
            _before = caught, LOG.getLogLevel()
            caught.__enter__()
            warnings.simplefilter("ignore")
            LOG.setLogLevel(_SILENT)
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if _readers == 0 and _before is not None:
                caught, level = _before
                caught.__exit__(None, None, None)
                LOG.setLogLevel(level)


def decode(
    data: bytes, max_pixels: int = MAX_PIXELS, white_level: float | None = None
) -> NDArray[np.generic]:
    """Return the pixels of an image file given as bytes: see :func:`caloric.read_image`."""
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF and b"avif" not in data[:64]:
        _support_heif()
    with quiet():
        pixels = _decode(data, max_pixels)
        if white_level is None and pixels.dtype == np.uint16:
            white_level = stated_white(_tiff_tags(data), data)
    return pixels if white_level is None else scaled_to_white(pixels, white_level)


_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands


@cache
def _support_heif() -> None:
    """Register the HEIC format with Pillow."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InputError(
            "HEIC images need pillow-heif: pip install 'caloric[heic]', or convert the image"
        ) from None
    register_heif_opener()


def orientation(file: bytes | Path) -> int:
    """Return the EXIF orientation, 1 to 8, of a file or its bytes; 1 by default."""
    from PIL import Image

    try:
        with quiet(), Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
            number = int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # depends on the decoder; reported when the pixels are read
        return 1
    return number if 1 <= number <= 8 else 1


def _decode(data: bytes, max_pixels: int) -> NDArray[np.generic]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            w, h = image.size
            if w * h > max_pixels:
                raise InputError(f"{w} x {h} pixels exceed the limit of {max_pixels:,}")
            if w * h == 0:
                raise InputError("the image has no pixels")
            if image.format == "JPEG" and image.mode in ("L", "RGB") and _complete(data):
                return _decode_jpeg(data, image)
            if _needs_opencv(image, data):
                if image.format == "TIFF":
                    # OpenCV applies the orientation of TIFF files.
                    pixels = _decode_by_opencv(data)
                    return _undithered(pixels) if image.mode == "1" else pixels
                # Pillow rejects damaged files, where OpenCV would fill in missing pixels.
                image.load()
                return _upright(_decode_by_opencv(data), int(image.getexif().get(_ORIENTATION, 1)))
            image.load()
            return _pillow_to_array(ImageOps.exif_transpose(image))
    except InputError:
        raise
    except UnidentifiedImageError:
        tags = _tiff_tags(data)
        if not tags:
            raise InputError("cannot decode the image (unknown format)") from None
        if tags.get(_WIDTH, 0) * tags.get(_HEIGHT, 0) > max_pixels:
            raise InputError(f"more pixels than the limit of {max_pixels:,}") from None
        return _decode_by_opencv(data)
    except Image.DecompressionBombError:
        raise InputError(f"more pixels than the limit of {max_pixels:,}") from None
    except (MemoryError, RecursionError):
        raise InputError("the image is too large to decode") from None
    except Exception as error:
        # Decoders raise many types of exceptions for damaged files.
        raise InputError(f"cannot decode the image ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return the message of a decoder's exception as a short line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:120]


def _complete(jpeg: bytes) -> bool:
    """Return whether a JPEG has its end marker; Pillow handles truncated ones."""
    return jpeg.rstrip(b"\0").endswith(b"\xff\xd9")


def _decode_jpeg(data: bytes, image: Any) -> NDArray[np.generic]:
    """Return the pixels of a JPEG decoded by OpenCV, which releases the GIL.

    They equal Pillow's, which holds the GIL and copies them three times.
    """
    how = cv2.IMREAD_GRAYSCALE if image.mode == "L" else cv2.IMREAD_COLOR
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), how | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None or pixels.shape[1::-1] != image.size:
        raise InputError("cannot decode the image")
    if pixels.ndim == 3:
        cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)
    return _upright(np.asarray(pixels), int(image.getexif().get(_ORIENTATION, 1)))


def _needs_opencv(image: Any, data: bytes) -> bool:
    """Return whether OpenCV must decode the file: more than 8 bits, or TIFF without alpha.

    Pillow converts 16-bit colors to 8 bits; OpenCV misreads 8-bit TIFF files with alpha.
    """
    if image.format == "TIFF":
        deep = max(image.tag_v2.get(_BITS, (1,))) > 8
        return deep or image.mode in ("1", "L", "RGB")
    return bool(image.format == "PNG" and data[24] == _DEEP_PNG)


def _tiff_tags(data: bytes) -> dict[int, int]:
    """Return the first number of each tag of a TIFF file; an empty dict for other files."""
    order: Literal["little", "big"] | None = _TIFF.get(data[:4])
    if order is None:
        return {}
    start = int.from_bytes(data[4:8], order)
    tags = {}
    for entry in range(int.from_bytes(data[start : start + 2], order)):
        tag = start + 2 + 12 * entry
        width = 2 if int.from_bytes(data[tag + 2 : tag + 4], order) == _SHORT else 4
        count = int.from_bytes(data[tag + 4 : tag + 8], order)
        value = tag + 8
        if width * count > 4:
            value = int.from_bytes(data[tag + 8 : tag + 12], order)
        number = int.from_bytes(data[value : value + width], order)
        tags[int.from_bytes(data[tag : tag + 2], order)] = number
    return tags


def stated_white(tags: Mapping[int, Any], description: bytes) -> float | None:
    """Return the white level of a TIFF file that stores fewer bits in 16; None for other files.

    The tags MaxSampleValue and WhiteLevel (of DNG) and OME's SignificantBits state it. It is
    rounded up to the maximum of a number of bits, because some programs write the maximum of the
    pixels. Nothing is stated by PNG: its chunk sBIT is for samples that are already scaled.
    """
    first = {tag: value[0] if isinstance(value, tuple) else value for tag, value in tags.items()}
    if first.get(_BITS) != 16 or first.get(_PHOTOMETRIC) == 0:
        return None
    ome = re.search(rb'SignificantBits="(\d+)"', description)
    stated = first.get(_MAX_SAMPLE) or first.get(_WHITE_LEVEL) or 0
    bits = int(ome[1]) if ome else int(stated).bit_length()
    return 2.0**bits - 1 if 8 <= bits < 16 else None


# EXIF orientations for which the stored image is transposed, and those for which its rows and its
# columns are then reversed, to make it upright.
_TRANSPOSED, _ROWS_REVERSED, _COLUMNS_REVERSED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)


def _upright(pixels: NDArray[np.generic], orientation: int) -> NDArray[np.generic]:
    """Return the upright pixels of an image with an EXIF orientation."""
    if orientation in _TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in _ROWS_REVERSED else 1
    columns = -1 if orientation in _COLUMNS_REVERSED else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def stored_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return the size (h, w) of the stored image given that of the upright one, or vice versa."""
    return (size[1], size[0]) if orientation in _TRANSPOSED else size


def to_stored(size: tuple[int, int], orientation: int) -> NDArray[np.float64]:
    """Return the affine map (2, 3) from an upright image of ``size`` (h, w) to the stored image."""
    h, w = size
    transform = np.array([[1.0, 0, 0], [0, 1, 0]])
    if orientation in _COLUMNS_REVERSED:
        transform[0] = -1, 0, w - 1
    if orientation in _ROWS_REVERSED:
        transform[1] = 0, -1, h - 1
    return np.ascontiguousarray(transform[::-1]) if orientation in _TRANSPOSED else transform


def _decode_by_opencv(data: bytes) -> NDArray[np.generic]:
    """Return the pixels decoded by OpenCV, which preserves 16 bits and floats, in RGB order."""
    tags = _tiff_tags(data)
    deep = tags.get(_BITS, 8) > 8 or tags.get(_SAMPLES, 1) > 2
    if deep and tags.get(_PLANAR, 1) == 2:
        raise InputError("planar TIFF files are not supported; save it with interleaved channels")
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise InputError("cannot decode the image")
    if pixels.dtype.kind in "iu" and pixels.dtype.itemsize == 4:
        pixels = _sixteen_bits(pixels)
    if pixels.dtype.kind != "f" and pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"pixels of type {pixels.dtype} are not supported; save it with 8 or 16 bits or floats"
        )
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        pixels = pixels[..., [2, 1, 0, 3]]
        return _unpremultiplied(pixels) if tags.get(_EXTRA) == 1 else np.ascontiguousarray(pixels)
    if tags.get(_PHOTOMETRIC) == 0 and pixels.dtype != np.uint8:
        # "White is zero": OpenCV inverts only 8-bit images.
        return np.asarray(_white(pixels) - pixels)
    return np.asarray(pixels)


def _sixteen_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Return integers as uint16; raise InputError if some are out of range."""
    if values.size and (values.min() < 0 or values.max() > 65535):
        raise InputError("32-bit integers exceed the range of 16 bits; rescale the image first")
    return values.astype(np.uint16)


def _white(pixels: NDArray[Any]) -> Any:
    kind = pixels.dtype
    return kind.type(1) if kind.kind == "f" else kind.type(np.iinfo(kind).max)


def _unpremultiplied(pixels: NDArray[Any]) -> NDArray[np.generic]:
    """Return premultiplied RGBA pixels with their colors divided by alpha."""
    white = float(_white(pixels))
    alpha = np.maximum(pixels[..., 3:].astype(np.float64), 1e-9 * white) / white
    colors = np.minimum(pixels[..., :3] / alpha, white)
    colors = colors if pixels.dtype.kind == "f" else np.rint(colors)
    return np.concatenate([colors.astype(pixels.dtype), pixels[..., 3:]], -1)


def from_pillow(image: Any, white_level: float | None = None) -> NDArray[np.generic]:
    """Return the pixels of a Pillow image, as stored: its EXIF orientation is not applied."""
    try:
        image.load()
        pixels = _pillow_to_array(image)
    except InputError:
        raise
    except Exception as error:  # depends on the decoder
        raise InputError(f"cannot decode the image ({_reason(error)})") from None
    if white_level is None and image.mode in _INTEGER_MODES:
        white_level = _pillow_white(image, pixels)
    return pixels if white_level is None else scaled_to_white(pixels, white_level)


_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_INTEGER_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")


def _pillow_white(image: Any, pixels: NDArray[np.generic]) -> float | None:
    """Return the white level of a 16-bit image; raise InputError for one of 8 bits.

    ``image.convert("I")`` returns the values of 8-bit images unscaled.
    """
    if image.format is None and pixels.size and 0 < int(pixels.max()) <= 255:
        raise InputError(
            f"a PIL image of mode {image.mode} needs 16-bit values, got at most {pixels.max()}; "
            "use image.convert('L'), or read it with white_level=255"
        )
    tags = getattr(image, "tag_v2", None)
    if tags is None:
        return None
    bits = int(tags.get(_BITS, (16,))[0])
    if bits < 16:  # unlike OpenCV, Pillow does not scale them
        return 2.0**bits - 1
    return stated_white(dict(tags), str(tags.get(_DESCRIPTION, "")).encode())


# The share of neighbors that differ in a dithered image, and σ of the smoothing filter in pixels.
# Six pairs of photographs with 4,000 features keep 58 to 77 % of their matches; with σ of 1.3, 53
# to 84 %. A Gaussian of σ 1.4 keeps 54 to 63 % in five of them. docs/conventions.md has results on
# other pairs.
_DITHERED, _DITHER_SIGMA = 0.2, 1.45


def _undithered(pixels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a bilevel image, smoothed if it is dithered: gray levels are patterns of pixels.

    In a dithered image many neighbors differ; in drawings, text and masks only few do. The filter
    is 2G − G², where G is a Gaussian blur. It preserves more of the low frequencies than G.
    """
    changes = pixels[:, 1:] != pixels[:, :-1]
    if not changes.size or changes.mean() < _DITHERED:
        return pixels
    values = np.asarray(pixels)
    once = cv2.GaussianBlur(values, (0, 0), _DITHER_SIGMA)
    twice = cv2.GaussianBlur(values, (0, 0), _DITHER_SIGMA * 2**0.5)
    return np.asarray(cv2.addWeighted(once, 2, twice, -1, 0))


def _pillow_to_array(image: Any) -> NDArray[np.generic]:
    """Return the pixels of a Pillow image of any mode; modes that Pillow cannot convert raise."""
    transparent = image.mode in _ALPHA_MODES or "transparency" in image.info
    if image.mode in ("1", "L") and not transparent:
        pixels = np.asarray(image.convert("L"))
        return _undithered(pixels) if image.mode == "1" else pixels
    if image.mode in _INTEGER_MODES:
        return _sixteen_bits(np.asarray(image))
    if image.mode == "F":
        return np.asarray(image)
    if image.mode == "La":  # Pillow converts it only to LA
        image = image.convert("LA")
    try:
        return np.asarray(image.convert("RGBA" if transparent else "RGB"))
    except ValueError:
        raise InputError(
            f"PIL images of mode {image.mode} cannot be converted to RGB by this version of "
            "Pillow; convert the image to RGB first"
        ) from None
