"""Conversion of arrays and tensors to grayscale float32 pixels in [0, 1]."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.errors import InputError
from caloric.runtime import threads
from caloric.types import Windows

FLOATS = (np.float16, np.float32, np.float64)
_PIXELS = 250_000  # per block, so that a block fits in the cache


def as_unit_range(pixels: object, what: str, dtype: DTypeLike = np.float32) -> NDArray[np.floating]:
    """Return the pixels as floats: integers divided by their type's maximum, floats unchanged.

    ``what`` names the array in error messages: "patches", "image".
    """
    array = as_array(pixels, what)
    if array.dtype.type in FLOATS:
        check_finite(bool(np.isfinite(array).all()), what)
        return array.astype(dtype)
    if array.dtype == np.bool_:
        return array.astype(dtype)
    if array.dtype.type in (np.uint8, np.uint16):
        full = 2 ** (8 * array.dtype.itemsize) - 1
        result = array.astype(dtype)
        result /= np.dtype(dtype).type(full)
        return result
    raise InputError(
        f"{what}: pixels of type {array.dtype} are not supported; "
        "use uint8, uint16, bool, or floats in [0, 1]"
    )


def as_array(pixels: object, what: str) -> NDArray[np.generic]:
    """Return ``pixels`` as an array; masked arrays and ragged lists raise InputError."""
    if np.ma.isMaskedArray(pixels) and np.ma.getmaskarray(pixels).any():
        raise InputError(f"{what}: masked pixels are not supported; fill them first")
    try:
        array = np.asarray(pixels)
    except ValueError:
        raise InputError(f"{what}: not an array; all rows must have the same length") from None
    if array.dtype == object:
        raise InputError(f"{what}: expected pixels, got {type(pixels).__name__}")
    return array


def is_tensor(image: object) -> bool:
    """Return whether the image is a PyTorch tensor, without importing PyTorch."""
    return type(image).__module__.partition(".")[0] == "torch" and hasattr(image, "detach")


def channels_first(tensor: Any) -> Any:
    """Return a tensor (h, w), (c, h, w) or (h, w, c) as (h, w) or (c, h, w), c = 1, 3 or 4.

    Other shapes, and those that can be read both ways, raise InputError.
    """
    shape = tuple(tensor.shape)
    if len(shape) == 2:
        return tensor
    first, last = (len(shape) == 3 and shape[axis] in _CHANNELS for axis in (0, -1))
    if first and last:
        raise InputError(
            f"image: a tensor of shape {shape} can be (c, h, w) or (h, w, c); pass an array "
            "(h, w, c), or a tensor (h, w)"
        )
    if not (first or last):
        raise InputError(
            "image: expected a tensor (h, w), (c, h, w) or (h, w, c) with 1, 3 or 4 channels, "
            f"got {shape}"
        )
    return tensor if first else tensor.permute(2, 0, 1)


_CHANNELS = (1, 3, 4)


def _tensor_to_array(tensor: Any) -> NDArray[np.generic]:
    host = channels_first(tensor).detach().cpu()
    try:
        pixels = np.asarray(host.numpy())
    except TypeError:  # NumPy has no bfloat16
        pixels = np.asarray(host.float().numpy())
    return np.moveaxis(pixels, 0, -1) if pixels.ndim == 3 else pixels


def as_image(image: object) -> NDArray[np.generic]:
    """Return an array (h, w) or (h, w, 3 | 4) of an array or a tensor: see channels_first."""
    array = _tensor_to_array(image) if is_tensor(image) else as_array(image, "image")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _CHANNELS):
        raise InputError(f"image: expected shape (h, w) or (h, w, 3 or 4), got {array.shape}")
    return array


def check_finite(finite: bool, what: str = "image") -> None:
    """Raise InputError if not all pixels are finite."""
    if not finite:
        raise InputError(f"{what}: NaN or infinite pixels; replace them first")


# Interpolation and noise exceed [0, 1] by less, images normalized to [-1, 1] by more.
_LOWEST, _HIGHEST = -0.5, 1.5


def check_levels(low: float, high: float) -> None:
    """Raise InputError if the range of a float image is clearly not [0, 1]."""
    if low < _LOWEST or high > _HIGHEST:
        raise InputError(
            f"image: floats must be in [0, 1], got {low:g} to {high:g}; "
            "divide by 255, or by the white level of the data"
        )


def unused_range(image: object) -> str | None:
    """Return advice for an image that uses little of its range, such as 12-bit data in uint16.

    The result is None for other images.
    """
    if isinstance(image, Windows):
        return None
    array = as_image(image)
    if not array.size or array.dtype == np.bool_:
        return None
    floats = array.dtype.type in FLOATS
    white = 1.0 if floats else 2.0 ** (8 * array.dtype.itemsize) - 1
    top = float((array[..., :3] if array.ndim == 3 else array).max())
    if not 0 < top < white / 4:
        return None
    if floats:
        return f"the brightest pixel is {top:.3g} of 1; set the white level to {top:.3g} {_OPTION}"
    bits = int(np.ceil(np.log2(top + 1)))
    return (
        f"the brightest pixel is {top:,.0f} of {white:,.0f}; if the data has {bits} bits, set the "
        f"white level to {2**bits - 1} {_OPTION}"
    )


_OPTION = "(white_level of caloric.read_image, or --white-level)"


def scaled_to_white(pixels: NDArray[np.generic], white: float) -> NDArray[np.float32]:
    """Return pixels divided by the white level and clipped to 1."""
    return np.asarray(np.minimum(pixels.astype(np.float32) / white, 1), np.float32)


_FLAT = 1e-6  # range of the gray levels of an image without texture
_SMALL = 16  # pixels


def lacks_texture(image: object) -> str | None:
    """Return why an image cannot have features; None if that is not known."""
    if isinstance(image, Windows):
        return None
    gray = to_gray(image)
    h, w = gray.shape
    if gray.size and np.ptp(gray) > _FLAT:
        return f"the image has only {w} x {h} pixels" if min(h, w) < _SMALL else None
    return "the image has no texture" if gray.size else "the image has no pixels"


def low_contrast(image: object) -> str | None:
    """Return advice for an image with low contrast; None for other images."""
    if isinstance(image, Windows):
        return None
    gray = to_gray(image)
    if not gray.size:
        return None
    low, high = np.percentile(gray, (0.5, 99.5))
    if not 0 < high - low < 0.1:
        return None
    return (
        f"the gray levels span {100 * (high - low):.2g} % of the range; stretch the contrast, or "
        "lower the threshold with the option contrast"
    )


_REC601 = 0.299, 0.587, 0.114  # weights of red, green and blue


def rec601(red: Any, green: Any, blue: Any) -> Any:
    """Return the Rec. 601 luma of float32 channels (arrays or tensors).

    A matrix product is avoided because its rounding depends on the memory layout.
    """
    of_red, of_green, of_blue = _REC601
    return of_red * red + of_green * green + of_blue * blue


@cache
def weighted_levels() -> list[NDArray[np.float32]]:
    """Return the weighted values (256,) of bytes in each channel of :func:`rec601`."""
    levels = as_unit_range(np.arange(256, dtype=np.uint8), "levels")
    return [np.asarray(weight * levels, np.float32) for weight in _REC601]


def _rec601_of_bytes(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return :func:`rec601` of bytes (h, w, 3) by tables, with the same result in less time."""
    channels = zip(cv2.split(pixels), weighted_levels(), strict=True)
    gray, *others = (np.asarray(cv2.LUT(channel, table), np.float32) for channel, table in channels)
    for other in others:
        gray += other
    return gray


def to_gray(image: object) -> NDArray[np.float32]:
    """Return an image (h, w) or (h, w, 3 | 4) in RGB order as grayscale float32 (h, w) in [0, 1].

    Colors are weighted by Rec. 601; transparent pixels are blended with white.
    """
    array = as_image(image)
    result = np.empty(array.shape[:2], np.float32)
    if array.size:
        strips = threads.strips(len(array), max(1, _PIXELS // array.shape[1]))
        ranges = threads.each(lambda rows: _convert(array, rows, result), strips)
        if array.dtype.type in FLOATS:
            check_levels(min(low for low, _ in ranges), max(high for _, high in ranges))
    return result


def _convert(
    array: NDArray[np.generic], rows: range, result: NDArray[np.float32]
) -> tuple[float, float]:
    """Convert some rows for :func:`to_gray`; return the range of their values, for floats only."""
    part = slice(rows.start, rows.stop)
    if array.dtype == np.uint8 and array.shape[2:] == (3,):
        result[part] = _rec601_of_bytes(np.ascontiguousarray(array[part], np.uint8))
        return 0.0, 0.0
    pixels = as_unit_range(array[part], "image").astype(np.float32, copy=False)
    value_range = (0.0, 0.0)
    if array.dtype.type in FLOATS:
        value_range = float(pixels.min()), float(pixels.max())
    if pixels.ndim == 2:
        result[part] = pixels
        return value_range
    gray = rec601(*(pixels[..., i] for i in range(3)))
    if pixels.shape[2] == 4:
        gray = 1 + pixels[..., 3] * (gray - 1)
    result[part] = gray
    return value_range


@dataclass(frozen=True, eq=False)
class Source:
    """An image of ``size`` (h, w); ``read(rows, columns)`` returns a window in grayscale."""

    size: tuple[int, int]
    read: Callable[[slice, slice], NDArray[np.float32]]

    def whole(self) -> NDArray[np.float32]:
        """Return the whole image."""
        return self.read(*(slice(0, n) for n in self.size))


def source(image: object) -> Source:
    """Return an array or :class:`Windows` as a :class:`Source`, converted when it is read."""
    if isinstance(image, Windows):
        size, window = (image.shape[0], image.shape[1]), image.window
    else:
        array = as_image(image)
        as_unit_range(array[:0], "image")  # raises InputError if the type is not supported
        size = (array.shape[0], array.shape[1])

        def window(rows: slice, columns: slice) -> NDArray[np.generic]:
            return array[rows, columns]

    def read(rows: slice, columns: slice) -> NDArray[np.float32]:
        pixels = window(rows, columns)
        try:
            return to_gray(pixels)
        except InputError:
            if pixels.dtype.type in FLOATS:  # the error is about a part: report the whole range
                whole = _value_range(window, size)
                if np.isfinite(whole).all():
                    check_levels(*whole)
            raise

    return Source(size, read)


def _value_range(
    window: Callable[[slice, slice], NDArray[np.generic]], size: tuple[int, int]
) -> tuple[float, float]:
    """Return the lowest and the highest value of an image that is read by windows."""
    lows, highs = [], []
    for rows in threads.strips(size[0], 256):
        values = np.asarray(window(slice(rows.start, rows.stop), slice(0, size[1])), np.float64)
        lows.append(float(values.min()))
        highs.append(float(values.max()))
    return min(lows), max(highs)
