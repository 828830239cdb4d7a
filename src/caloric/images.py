"""Arrays of pixels, taken relative to the range of their type."""

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.errors import InputError

FLOATS = (np.float16, np.float32, np.float64)


def as_unit_range(pixels: object, what: str, dtype: DTypeLike = np.float32) -> NDArray[np.floating]:
    """The pixels as floats, 0 to 1: integers by their type's range, floats as they are.

    ``what`` names the array in errors: "patches", "image".
    """
    array = np.asarray(pixels)
    if array.dtype in FLOATS:
        if not np.isfinite(array).all():
            raise InputError(f"{what}: NaN or infinite pixels; replace them first")
        return array.astype(dtype)
    if array.dtype == np.bool_:
        return array.astype(dtype)
    if array.dtype in (np.uint8, np.uint16):
        full = np.iinfo(array.dtype).max
        return np.asarray(array.astype(dtype) / np.dtype(dtype).type(full))
    raise InputError(
        f"{what}: pixels of type {array.dtype} are not understood; "
        "use uint8, uint16, bool, or floats in [0, 1]"
    )
