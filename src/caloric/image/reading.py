"""Reading image files as upright RGB or grayscale pixels."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
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
_SHORT = 3  # TIFF's 16-bit integer type
_TIFF: dict[bytes, Literal["little", "big"]] = {b"II*\0": "little", b"MM\0*": "big"}


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic]:
    """Read an image file, rotated according to its EXIF orientation.

    Parameters
    ----------
    path : str or Path
        The file: JPEG, PNG, TIFF, WebP, BMP, PPM, AVIF, JPEG 2000, and HEIC if ``pillow-heif`` is
        installed (the extra ``heic``). Palette and CMYK images are converted to RGB.
    max_pixels : int
        Files whose header declares more pixels are rejected before memory is allocated.

    Returns
    -------
    ndarray (h, w), (h, w, 3) or (h, w, 4)
        uint8, uint16 or float pixels as stored, colors in RGB order. 16-bit CMYK and PPM images are
        converted to uint8.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, caloric
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     Image.fromarray(np.zeros((120, 160), np.uint8)).save(f"{directory}/black.png")
    ...     caloric.read_image(f"{directory}/black.png").shape
    (120, 160)
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a directory, not an image") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the file ({error.strerror})") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    try:
        return decode(data, max_pixels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def open_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic] | Windows:
    """Open an image file of any size; large TIFF files are read window by window.

    Parameters
    ----------
    path : str or Path
        The file.
    max_pixels : int
        The limit of :func:`read_image`. It does not apply to TIFF files that are read by windows.

    Returns
    -------
    ndarray or Windows
        For a large TIFF file, if ``tifffile`` is installed (the extra ``tiff``), an object with
        ``shape`` (h, w) or (h, w, 3) that decodes strips or tiles on demand and caches up to 128 MB
        of them. Otherwise the array of :func:`read_image`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, caloric
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     Image.fromarray(np.zeros((120, 160), np.uint8)).save(f"{directory}/black.png")
    ...     caloric.open_image(f"{directory}/black.png").shape
    (120, 160)
    """
    from caloric.image import tiff

    windows = tiff.windows(Path(path))
    return read_image(path, max_pixels) if windows is None else windows


_lock = Lock()
_readers = 0
_before: tuple[Any, int] | None = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of decoders, so that error messages stay one line.

    Warning filters and OpenCV's log level are process-wide: the first of concurrent readers sets
    them and the last one restores them.
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
    """Return the pixels of an image file given as bytes: see :func:`read_image`."""
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF and b"avif" not in data[:64]:
        _support_heif()
    with _quiet():
        return _decode(data, max_pixels)


_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands


@cache
def _support_heif() -> None:
    """Register the HEIC format with Pillow."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InputError(
            "HEIC images require pillow-heif: run pip install pillow-heif, or convert the image"
        ) from None
    register_heif_opener()


def orientation(file: bytes | Path) -> int:
    """Return the EXIF orientation, 1 to 8, of a file or its bytes; 1 by default."""
    from PIL import Image

    try:
        with _quiet(), Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
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
                    return _decode_by_opencv(data)  # OpenCV applies the orientation of TIFF files
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
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot decode the image ({reason[:120]})") from None


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


def _pillow_to_array(image: Any) -> NDArray[np.generic]:
    transparent = "A" in image.getbands() or "transparency" in image.info
    if image.mode in ("1", "L") and not transparent:
        return np.asarray(image.convert("L"))
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)
    if image.mode == "I":
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise InputError("32-bit integers exceed the range of 16 bits; rescale the image first")
        return values.astype(np.uint16)
    if image.mode == "F":
        return np.asarray(image)
    return np.asarray(image.convert("RGBA" if transparent else "RGB"))
