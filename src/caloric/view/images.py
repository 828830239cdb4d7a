"""The images of the page: decoding, previews and crops."""

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image import inputs
from caloric.image.pixels import to_gray
from caloric.viz.figure import rgb

PREVIEW = 2048  # longer side of a preview in pixels
MAX_PIXELS = 100_000_000  # of an image
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """An image: its name, and its pixels in RGB (h, w, 3) and in grayscale (h, w).

    ``path`` is the path given on the command line, or empty for an uploaded image.
    """

    name: str
    color: Pixels
    gray: NDArray[np.float32]
    path: str = ""

    @classmethod
    def read(cls, path: str, white_level: float | None = None) -> "LoadedImage":
        """Read a file: see :func:`caloric.read_image`."""
        pixels = inputs.read_image(path, MAX_PIXELS, white_level)
        return cls.of_pixels(Path(path).name, pixels, path)

    @classmethod
    def of(cls, name: str, data: bytes, path: str = "") -> "LoadedImage":
        """Decode the bytes of a file; an error names it if it is not an image or too large."""
        with inputs.prefixed_errors(name):
            pixels = inputs.read_image(data, MAX_PIXELS)
        return cls.of_pixels(name, pixels, path)

    @classmethod
    def of_pixels(cls, name: str, pixels: NDArray[np.generic], path: str = "") -> "LoadedImage":
        """Return the image for an array of pixels."""
        gray = to_gray(pixels)
        if 0 in gray.shape:
            raise InputError(f"{name}: the image has no pixels")
        color = pixels if pixels.dtype == np.uint8 and pixels.shape[2:] == (3,) else rgb(pixels)
        return cls(name, np.asarray(color, np.uint8), gray, path)

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self.gray.shape[1], self.gray.shape[0]


def preview(image: LoadedImage) -> bytes:
    """Return a JPEG of at most 2,048 pixels per side."""
    return crop(image, (0, 0, *image.size), PREVIEW)


def crop(image: LoadedImage, box: tuple[int, int, int, int], max_side: int) -> bytes:
    """Return a JPEG of a box (left, top, width, height), at most ``max_side`` pixels per side."""
    left, top, width, height = box
    w, h = image.size
    x, y = max(0, left), max(0, top)
    bottom, right = min(h, max(y + 1, top + height)), min(w, max(x + 1, left + width))
    part = image.color[y:bottom, x:right]
    if part.size == 0:
        raise InputError("the crop is outside the image")
    scale = min(1.0, max_side / max(part.shape[:2]))
    if scale < 1:
        size = max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale))
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    return encoded(part, ".jpg")


def encoded(pixels: Pixels, suffix: str) -> bytes:
    """Return an RGB or grayscale image, encoded in the format of a file suffix."""
    bgr = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    success, data = cv2.imencode(suffix, np.ascontiguousarray(bgr))
    if not success:
        raise InputError(f"an image of shape {pixels.shape} cannot be encoded")
    return bytes(data.tobytes())


def data_url(data: bytes, image_format: str) -> str:
    """Return an encoded image of a format such as "png" as a data URL."""
    return f"data:image/{image_format};base64,{base64.b64encode(data).decode()}"
