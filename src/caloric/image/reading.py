"""Reading image files: upright RGB or gray pixels, or an InputError with a one-line message."""

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
        A file whose header declares more pixels is refused before memory is allocated for it.

    Returns
    -------
    ndarray (h, w), (h, w, 3) or (h, w, 4)
        uint8, uint16 or float pixels as stored, colors in RGB order. CMYK and PPM images of
        16 bits are reduced to uint8.

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
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    try:
        return decode(data, max_pixels)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def open_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> NDArray[np.generic] | Windows:
    """Open an image file of any size; a large TIFF is then read window by window.

    Parameters
    ----------
    path : str or Path
        The file.
    max_pixels : int
        The limit of :func:`read_image`. It does not apply to a TIFF that is read by windows.

    Returns
    -------
    ndarray or Windows
        For a large TIFF in strips or tiles, if ``tifffile`` is installed (the extra ``tiff``), an
        object with ``shape`` (h, w) or (h, w, 3) that decodes only the windows that are needed and
        caches up to 128 MB of decoded strips or tiles. Otherwise the array of :func:`read_image`.

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
    """Silence the warnings of decoders, so that an error message stays one line.

    Warning filters and OpenCV's log level belong to the whole process: the first of concurrent
    readers sets them and the last one restores them.
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
    """Return the pixels of :func:`read_image` from the bytes of a file."""
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF and b"avif" not in data[:64]:
        _support_heif()
    with _quiet():
        return _decode(data, max_pixels)


_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands


@cache
def _support_heif() -> None:
    """Add HEIC, the format of many telephones, to what Pillow reads."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise InputError(
            "a HEIC image, which needs pillow-heif: pip install pillow-heif; or convert it"
        ) from None
    register_heif_opener()


def orientation(file: bytes | Path) -> int:
    """Return the EXIF orientation, 1 to 8, of a file or its bytes; 1 if it has none."""
    from PIL import Image

    try:
        with _quiet(), Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as image:
            number = int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # as many types as decoders; reading the pixels reports the error
        return 1
    return number if 1 <= number <= 8 else 1


def _decode(data: bytes, max_pixels: int) -> NDArray[np.generic]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            w, h = image.size
            if w * h > max_pixels:
                raise InputError(f"claims {w} x {h} pixels, more than the limit of {max_pixels:,}")
            if w * h == 0:
                raise InputError("has no pixels")
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
            raise InputError("not an image that can be read (unknown format)") from None
        if tags.get(_WIDTH, 0) * tags.get(_HEIGHT, 0) > max_pixels:
            raise InputError(f"claims more pixels than the limit of {max_pixels:,}") from None
        return _decode_by_opencv(data)
    except Image.DecompressionBombError:
        raise InputError(f"claims more pixels than the limit of {max_pixels:,}") from None
    except (MemoryError, RecursionError):
        raise InputError("too large to be decoded") from None
    except Exception as error:
        # Decoders raise many types of exception on a broken file.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"not an image that can be read ({reason[:120]})") from None


def _complete(jpeg: bytes) -> bool:
    """Return whether a JPEG ends as it should; Pillow decides about others."""
    return jpeg.rstrip(b"\0").endswith(b"\xff\xd9")


def _decode_jpeg(data: bytes, image: Any) -> NDArray[np.generic]:
    """Return the pixels of a JPEG by OpenCV, which lets other threads run meanwhile.

    They are the ones of Pillow, which copies them three times and lets no other thread run.
    """
    how = cv2.IMREAD_GRAYSCALE if image.mode == "L" else cv2.IMREAD_COLOR
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), how | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None or pixels.shape[1::-1] != image.size:
        raise InputError("not an image that can be read")
    if pixels.ndim == 3:
        cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)
    return _upright(np.asarray(pixels), int(image.getexif().get(_ORIENTATION, 1)))


def _needs_opencv(image: Any, data: bytes) -> bool:
    """Return whether OpenCV decodes the file: more than 8 bits, or TIFF without alpha.

    Pillow reduces deep colors to 8 bits; OpenCV misreads 8-bit TIFF with alpha.
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


# An upright image is the stored one, transposed for these orientations, then with the order of its
# rows and of its columns reversed for these.
_TRANSPOSED, _ROWS_REVERSED, _COLUMNS_REVERSED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)


def _upright(pixels: NDArray[np.generic], orientation: int) -> NDArray[np.generic]:
    """Return the pixels upright, for an EXIF orientation."""
    if orientation in _TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in _ROWS_REVERSED else 1
    columns = -1 if orientation in _COLUMNS_REVERSED else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def stored_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return the size (h, w) of the stored image from that of the upright one, or the reverse."""
    return (size[1], size[0]) if orientation in _TRANSPOSED else size


def to_stored(size: tuple[int, int], orientation: int) -> NDArray[np.float64]:
    """Return the map (2, 3) of points (x, y) of an upright image of ``size`` to the stored one."""
    h, w = size
    turn = np.array([[1.0, 0, 0], [0, 1, 0]])
    if orientation in _COLUMNS_REVERSED:
        turn[0] = -1, 0, w - 1
    if orientation in _ROWS_REVERSED:
        turn[1] = 0, -1, h - 1
    return np.ascontiguousarray(turn[::-1]) if orientation in _TRANSPOSED else turn


def _decode_by_opencv(data: bytes) -> NDArray[np.generic]:
    """Return the pixels as decoded by OpenCV, which keeps 16 bits and floats, in RGB order."""
    tags = _tiff_tags(data)
    deep = tags.get(_BITS, 8) > 8 or tags.get(_SAMPLES, 1) > 2
    if deep and tags.get(_PLANAR, 1) == 2:
        raise InputError("stores its colors in separate planes; store them together")
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise InputError("not an image that can be read")
    if pixels.dtype.kind != "f" and pixels.dtype not in (np.uint8, np.uint16):
        raise InputError(f"has pixels of type {pixels.dtype}; store it as 8 or 16 bits or floats")
    if pixels.ndim == 3 and pixels.shape[2] == 3:
        return np.ascontiguousarray(pixels[..., ::-1])
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        pixels = pixels[..., [2, 1, 0, 3]]
        return _unpremultiplied(pixels) if tags.get(_EXTRA) == 1 else np.ascontiguousarray(pixels)
    if tags.get(_PHOTOMETRIC) == 0 and pixels.dtype != np.uint8:
        # White is stored as 0, which OpenCV inverts for 8 bits only.
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
            raise InputError("has 32-bit integers beyond 16 bits; rescale it first")
        return values.astype(np.uint16)
    if image.mode == "F":
        return np.asarray(image)
    return np.asarray(image.convert("RGBA" if transparent else "RGB"))
