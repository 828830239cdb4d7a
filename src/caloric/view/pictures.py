"""The pictures of the page: their pixels, and files of them and of parts of them."""

import base64
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import reading
from caloric.image.pixels import as_unit_range, to_grey

PREVIEW = 2048  # pixels of the longer side of a preview
PIXELS = 100_000_000  # largest picture that is accepted
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Picture:
    """One of the two pictures: its name, its pixels in RGB (h, w, 3) and in grey (h, w).

    ``path`` is what a command would call it; empty if it was dropped on the page, which is told
    the name alone.
    """

    name: str
    colour: Pixels
    grey: NDArray[np.float32]
    path: str = ""

    @classmethod
    def of(cls, name: str, data: bytes, path: str = "") -> "Picture":
        """Return the picture in a file; raise an error with its name if it is none or too large."""
        try:
            pixels = reading.decode(data, PIXELS)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return cls.of_pixels(name, pixels, path)

    @classmethod
    def of_pixels(cls, name: str, pixels: NDArray[np.generic], path: str = "") -> "Picture":
        """Return the picture of a decoded image."""
        grey = to_grey(pixels)
        if 0 in grey.shape:
            raise InputError(f"{name}: no pixels in it")
        return cls(name, _colour(pixels, grey), grey, path)

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self.grey.shape[1], self.grey.shape[0]


def _colour(pixels: NDArray[np.generic], grey: NDArray[np.float32]) -> Pixels:
    if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return np.asarray(pixels, np.uint8)
    unit = np.repeat(grey[:, :, None], 3, 2)
    if pixels.ndim == 3 and pixels.shape[2] >= 3:
        values = as_unit_range(pixels, "image")
        unit = values[..., :3]
        if values.shape[2] == 4:  # composed on white, as the grey image is
            unit = 1 + values[..., 3:] * (unit - 1)
    return np.clip(np.rint(255 * unit), 0, 255).astype(np.uint8)


def preview(picture: Picture) -> bytes:
    """Return a JPEG of at most 2,048 pixels a side."""
    return crop(picture, (0, 0, *picture.size), PREVIEW)


def crop(picture: Picture, box: tuple[int, int, int, int], most: int) -> bytes:
    """Return a JPEG of a box (left, top, width, height), of at most ``most`` pixels a side."""
    left, top, width, height = box
    w, h = picture.size
    x, y = max(0, left), max(0, top)
    bottom, right = min(h, max(y + 1, top + height)), min(w, max(x + 1, left + width))
    part = picture.colour[y:bottom, x:right]
    if part.size == 0:
        raise InputError("that part lies outside the picture")
    scale = min(1.0, most / max(part.shape[:2]))
    if scale < 1:
        size = max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale))
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    return encoded(part, ".jpg")


def encoded(pixels: Pixels, suffix: str) -> bytes:
    """Return the file of an image in RGB or grey, in the format of ``suffix``."""
    bgr = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    success, data = cv2.imencode(suffix, np.ascontiguousarray(bgr))
    if not success:
        raise InputError(f"a picture of {pixels.shape} cannot be encoded")
    return bytes(data.tobytes())


def address(data: bytes, kind: str) -> str:
    """Return a file as an address that contains it, for the source of an image in a page."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
