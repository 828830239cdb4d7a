"""Everything that a user can pass as an image: arrays, Pillow images, files, bytes and tensors."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import reading, tiff
from caloric.image.pixels import as_image, is_tensor, scaled_to_white, to_gray
from caloric.image.reading import MAX_PIXELS
from caloric.types import ImageLike, Pixels, Windows


def read_image(
    image: ImageLike, max_pixels: int = MAX_PIXELS, white_level: float | None = None
) -> NDArray[np.generic]:
    """Return an image of any form as an array. All functions accept the same forms.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        - array (h, w) or (h, w, 3 or 4): grayscale, RGB or RGBA; uint8, uint16, bool, or floats in
          [0, 1]. Floats down to -0.5 and up to 1.5, due to interpolation or noise, are accepted.
        - PIL image of any mode, converted to grayscale, RGB or RGBA. Its EXIF orientation is not
          applied: use ``PIL.ImageOps.exif_transpose`` for that. Dithered images of mode "1" are
          smoothed. Modes "I" and "I;16" need 16-bit values, and "F" needs values in [0, 1].
        - path (str or Path), bytes, or a file object opened in binary mode: a JPEG, PNG, TIFF,
          WebP, BMP, PPM, AVIF or JPEG 2000 file, or HEIC if ``pillow-heif`` is installed (the extra
          ``heic``). It is rotated according to its EXIF orientation.
        - tensor of PyTorch: (h, w), (c, h, w) or (h, w, c), with 1, 3 or 4 channels. A shape that
          can be read both ways, such as (3, 100, 3), is an error.
        - the result of :func:`open_image`.
    max_pixels : int
        Files whose header declares more pixels are rejected before memory is allocated.
    white_level : float, optional
        The value of white, for data that does not use the range of its type, such as 4095 for 12
        bits in uint16. By default the maximum of the type, 1 for floats, or the number of bits that
        a 16-bit TIFF file states (MaxSampleValue, WhiteLevel, or OME's SignificantBits).

    Returns
    -------
    ndarray (h, w), (h, w, 3) or (h, w, 4)
        uint8, uint16 or float pixels as stored, colors in RGB order; float32 in [0, 1] if there is
        a white level. 16-bit CMYK and PPM images are converted to uint8.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, caloric
    >>> from PIL import Image
    >>> black = Image.fromarray(np.zeros((120, 160), np.uint8))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     black.save(f"{directory}/black.png")
    ...     caloric.read_image(f"{directory}/black.png").shape
    (120, 160)
    >>> caloric.read_image(black.convert("P")).shape
    (120, 160, 3)
    """
    check_white_level(white_level)
    if isinstance(image, Windows):
        h, w = image.shape[:2]
        image = image.window(slice(0, h), slice(0, w))
    if is_encoded(image):
        return _decoded(image, max_pixels, white_level)
    pixels = as_image(image)
    return pixels if white_level is None else scaled_to_white(pixels, white_level)


def open_image(
    image: ImageLike, max_pixels: int = MAX_PIXELS, white_level: float | None = None
) -> NDArray[np.generic] | Windows:
    """Open an image of any form and size; large TIFF files are read window by window.

    Parameters
    ----------
    image : path, or any other image
        See :func:`read_image`.
    max_pixels : int
        The limit of :func:`read_image`. It does not apply to TIFF files that are read by windows.
    white_level : float, optional
        See :func:`read_image`.

    Returns
    -------
    ndarray or Windows
        For the path of a large TIFF file, if ``tifffile`` is installed (the extra ``tiff``), an
        object with ``shape`` (h, w) or (h, w, 3) that decodes strips or tiles on demand and caches
        up to 128 MB of them. Otherwise the array of :func:`read_image`.

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
    check_white_level(white_level)
    if isinstance(image, Windows) and white_level is None:
        return image
    windows = tiff.windows(Path(image), white_level) if is_path(image) else None
    return read_image(image, max_pixels, white_level) if windows is None else windows


def opened(image: Any, white_level: float | None = None) -> Any:
    """Return an image for feature extraction: an array, Windows, or an unconverted tensor.

    Tensors stay on their device; :func:`caloric.gpu.upload.prepared` checks them.
    """
    if is_tensor(image) and white_level is None:
        return image
    return open_image(image, white_level=white_level)


def gray(image: ImageLike, name: str | None = None) -> Pixels:
    """Return an image of any form as grayscale float32 (h, w) in [0, 1].

    Errors start with ``name``, by default the name of the file.
    """
    with naming(label(image, "image") if name is None else name):
        return to_gray(read_image(image))


def check_white_level(white_level: float | None) -> None:
    """Raise InputError if the white level is not a positive number or None."""
    if white_level is None:
        return
    is_number = isinstance(white_level, int | float | np.number) and white_level is not True
    if not (is_number and 0 < white_level < np.inf):
        raise InputError(f"the white level must be a positive number, got {white_level!r}")


def is_path(image: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether an image is given as a path."""
    return isinstance(image, str | os.PathLike)


def is_pillow(image: object) -> bool:
    """Return whether this is an image of Pillow, without importing Pillow."""
    # While another thread imports Pillow, the module has no class yet, and nobody has an image.
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return kind is not None and isinstance(image, kind)


def is_encoded(image: object) -> bool:
    """Return whether this is a file, its bytes, or a Pillow image, rather than pixels."""
    is_bytes = isinstance(image, bytes | bytearray)
    return is_path(image) or is_bytes or is_pillow(image) or callable(getattr(image, "read", None))


def as_list(image: Any) -> list[Any] | None:
    """Return the images of a list, tuple or 4-D tensor; None for a single image.

    A list of lists or of numbers is a single image.
    """
    if is_tensor(image) and image.ndim == 4:
        return list(image)
    if not isinstance(image, list | tuple) or (image and all(map(_is_row, image))):
        return None
    return list(image)


def _is_row(item: Any) -> bool:
    """Return whether this is a row of pixels, or a pixel, rather than an image."""
    if is_encoded(item) or isinstance(item, Windows):
        return False
    return isinstance(item, list | tuple) or getattr(item, "ndim", 0) < 2


def listed(images: Any) -> list[Any]:
    """Return several images as a list; raise InputError for a single one."""
    if is_encoded(images) or getattr(images, "ndim", 3) == 2:
        raise InputError("images: got a single image; expected a list of images")
    return list(images)


def label(image: object, default: str) -> str:
    """Return the name of an image in messages: its path as given, or the default."""
    if is_path(image):
        return os.fspath(image)
    name = getattr(image, "filename", None) or getattr(image, "name", None)
    return name if isinstance(name, str) else default


def named(reason: object, name: str) -> InputError:
    """Return an error about one image that starts with its name."""
    text = str(reason).removeprefix("image: ")
    return InputError(text if text.startswith(f"{name}: ") else f"{name}: {text}")


@contextmanager
def prefixed_errors(name: str) -> Iterator[None]:
    """Start every InputError with ``name``."""
    try:
        yield
    except InputError as error:
        raise named(error, name) from None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Replace "image:" at the start of errors by the name of the image."""
    try:
        yield
    except InputError as error:
        if not str(error).startswith("image: "):
            raise
        raise named(error, name) from None


def _decoded(image: Any, max_pixels: int, white_level: float | None) -> NDArray[np.generic]:
    """Return the pixels of a file, its bytes, or a Pillow image; errors name a file."""
    name = label(image, "image")
    with prefixed_errors(name):
        if is_pillow(image):
            return reading.from_pillow(image, white_level)
        if is_path(image):
            data = _content(name)
        else:
            data = image.read() if hasattr(image, "read") else bytes(image)
        if not isinstance(data, bytes):
            raise InputError("the file must be opened in binary mode: open(path, 'rb')")
        if not data:
            raise InputError("the file is empty" if is_path(image) else "no bytes to read")
        return reading.decode(data, max_pixels, white_level)


def _content(path: str) -> bytes:
    """Return the bytes of a file."""
    if "://" in path:
        raise InputError("URLs are not supported; download the file first")
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        hint = " (standard input is not supported; save the image to a file)" * (path == "-")
        raise InputError(f"no such file{hint}") from None
    except IsADirectoryError:
        raise InputError("a directory, not an image") from None
    except OSError as error:
        raise InputError(f"cannot read the file ({error.strerror})") from None
    except ValueError as error:  # for example, a null character
        raise InputError(f"not a path ({error})") from None
