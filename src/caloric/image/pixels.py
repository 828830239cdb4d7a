"""Arrays of pixels, taken relative to the range of their type."""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.errors import InputError
from caloric.runtime import threads

FLOATS = (np.float16, np.float32, np.float64)
_PIXELS = 250_000  # converted at once, by one thread: they stay in its cache


def as_unit_range(pixels: object, what: str, dtype: DTypeLike = np.float32) -> NDArray[np.floating]:
    """The pixels as floats, 0 to 1: integers by their type's range, floats as they are.

    ``what`` names the array in errors: "patches", "image".
    """
    array = as_array(pixels, what)
    if array.dtype.type in FLOATS:
        if not np.isfinite(array).all():
            raise InputError(f"{what}: NaN or infinite pixels; replace them first")
        return array.astype(dtype)
    if array.dtype == np.bool_:
        return array.astype(dtype)
    if array.dtype.type in (np.uint8, np.uint16):
        full = 2 ** (8 * array.dtype.itemsize) - 1
        result = array.astype(dtype)
        result /= np.dtype(dtype).type(full)
        return result
    raise InputError(
        f"{what}: pixels of type {array.dtype} are not understood; "
        "use uint8, uint16, bool, or floats in [0, 1]"
    )


def as_array(pixels: object, what: str) -> NDArray[np.generic]:
    """An array from whatever holds pixels; a ragged list or a mask is an error that says so."""
    if np.ma.isMaskedArray(pixels) and np.ma.getmaskarray(pixels).any():
        raise InputError(f"{what}: masked pixels; fill them first")
    if isinstance(pixels, str | bytes | PathLike):
        raise InputError(f"{what}: a name, not pixels; read the file with caloric.read_image")
    try:
        return np.asarray(pixels)
    except ValueError:
        raise InputError(f"{what}: not an array; all rows must have the same length") from None


def is_tensor(image: object) -> bool:
    """Whether it is PyTorch's, which is not imported to find out."""
    return type(image).__module__.partition(".")[0] == "torch" and hasattr(image, "detach")


def several(image: Any) -> list[Any] | None:
    """The images of a list, a tuple or a tensor (b, c, h, w); None if it is a single one."""
    if is_tensor(image) and image.ndim == 4:
        return list(image)
    if isinstance(image, list | tuple) and image:
        shapes = [getattr(one, "shape", ()) for one in image]
        if all(len(shape) >= 2 for shape in shapes):
            return list(image)
    return None


def _of_tensor(image: Any) -> NDArray[np.generic]:
    host = image.detach().cpu()
    try:
        return np.asarray(host.numpy())
    except TypeError:  # NumPy has no bfloat16
        return np.asarray(host.float().numpy())


def _as_image(image: object) -> NDArray[np.generic]:
    """An array (h, w) or (h, w, 3 | 4); of a tensor (c, h, w) too."""
    if is_tensor(image):
        pixels = _of_tensor(image)
        image = np.moveaxis(pixels, 0, -1) if pixels.ndim == 3 else pixels
    array = as_array(image, "image")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise InputError(f"image: expected shape (h, w) or (h, w, 3 or 4), got {array.shape}")
    return array


def check_levels(low: float, high: float) -> None:
    """Of an image of floats: that they can be meant to be in [0, 1]."""
    if low < -1 or high > 2:
        raise InputError(
            f"image: floats from {low:g} to {high:g}; they must be in [0, 1]: "
            "divide by 255 or by whatever white is"
        )


def rec601(red: Any, green: Any, blue: Any) -> Any:
    """Return the grey of float32 channels, of arrays and of tensors, by the weights of Rec. 601.

    Not as a matrix product, whose rounding would depend on how the array lies in memory.
    """
    return 0.299 * red + 0.587 * green + 0.114 * blue


def to_grey(image: object) -> NDArray[np.float32]:
    """(h, w) float32, 0 to 1, of an image (h, w) or (h, w, 3 | 4) in RGB order.

    Colours by Rec. 601's weights; what is transparent is seen on white.
    """
    array = _as_image(image)
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
    """Some rows of :func:`to_grey`; the least and the largest number in them, of floats."""
    part = slice(rows.start, rows.stop)
    pixels = as_unit_range(array[part], "image").astype(np.float32, copy=False)
    ends = (0.0, 0.0)
    if array.dtype.type in FLOATS:
        ends = float(pixels.min()), float(pixels.max())
    if pixels.ndim == 2:
        result[part] = pixels
        return ends
    grey = rec601(*(pixels[..., i] for i in range(3)))
    if pixels.shape[2] == 4:
        grey = 1 + pixels[..., 3] * (grey - 1)
    result[part] = grey
    return ends


@runtime_checkable
class Windows(Protocol):
    """An image that is read by windows: :func:`caloric.open_image` makes one of a large TIFF."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(h, w) or (h, w, channels)."""

    def window(self, rows: slice, columns: slice) -> NDArray[np.generic]:
        """The pixels of some rows and columns."""


@dataclass(frozen=True, eq=False)
class Source:
    """The grey pixels of an image of ``size`` (h, w): ``read`` gives those of rows and columns."""

    size: tuple[int, int]
    read: Callable[[slice, slice], NDArray[np.float32]]


def source(image: object) -> Source:
    """Of an array or of :class:`Windows`; what is read is converted, and no more."""
    if isinstance(image, Windows):
        windows = image
        return Source(
            (windows.shape[0], windows.shape[1]),
            lambda rows, columns: to_grey(windows.window(rows, columns)),
        )
    array = _as_image(image)
    to_grey(array[:1, :1])  # says what is wrong with its type
    return Source(
        (array.shape[0], array.shape[1]), lambda rows, columns: to_grey(array[rows, columns])
    )
