"""A figure as pixels: conversion to RGB, text, and files."""

import io
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.image.inputs import read_image
from caloric.image.pixels import as_unit_range
from caloric.runtime.files import replacing
from caloric.types import ImageLike

GAP = 8  # pixels between panels
DIMMED = 0.6  # brightness of images behind lines
_TEXT = (20, 20, 20)


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure as an RGB image, ``pixels`` (h, w, 3) uint8; notebooks display it."""

    pixels: NDArray[np.uint8]

    def __repr__(self) -> str:
        """Return the width and height in one line."""
        h, w = self.pixels.shape[:2]
        return f"Figure({w} x {h})"

    def smaller(self, width: int) -> "Figure":
        """Return the figure, reduced to ``width`` pixels if it is wider."""
        h, w = self.pixels.shape[:2]
        if w <= width:
            return self
        size = (width, max(1, round(h * width / w)))
        small = cv2.resize(self.pixels, size, interpolation=cv2.INTER_AREA)
        return Figure(np.asarray(small, np.uint8))

    def png(self) -> bytes:
        """Return the figure as the bytes of a PNG file."""
        return bytes(cv2.imencode(".png", self.pixels[..., ::-1])[1])

    _repr_png_ = png  # displayed by notebooks

    def save(self, path: str | Path) -> None:
        """Write the figure to a file; its suffix, such as .png or .jpg, selects the format."""
        path = Path(path)
        check_format(path)
        data = cv2.imencode(path.suffix, self.pixels[..., ::-1])[1]
        with replacing(path) as file:
            file.write(data.tobytes())

    def show(self) -> None:
        """Open the figure in the default image viewer."""
        from PIL import Image

        Image.open(io.BytesIO(self.png())).show()


def check_format(path: Path) -> None:
    """Raise an error if OpenCV cannot write images with the suffix of a path."""
    if not path.suffix or not cv2.haveImageWriter(f"x{path.suffix}"):
        raise InputError(f"{path}: cannot write images as {path.suffix!r}; use .png or .jpg")


def write(canvas: NDArray[np.uint8], text: str, at: tuple[int, int], size: int = 14) -> None:
    """Write a line of text onto an image, with its left end and vertical center at (x, y)."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.fromarray(canvas)
    ImageDraw.Draw(page).text(at, text, _TEXT, ImageFont.load_default(size), anchor="lm")
    canvas[...] = np.asarray(page)


def rgb(image: ImageLike, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Return an image as RGB bytes (h, w, 3), resized to ``size`` (h, w).

    An image that uses less than a quarter of its range, such as 12 bits in 16, is stretched.
    """
    pixels = as_unit_range(read_image(image), "image")
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, -1)
    elif pixels.shape[2] == 4:
        pixels = 1 + pixels[..., 3:] * (pixels[..., :3] - 1)
    top = float(pixels.max(initial=0))
    if 0 < top < 0.25:
        pixels = pixels / top
    h, w = pixels.shape[:2]
    if size is not None and size != (h, w):
        kind = cv2.INTER_AREA if size[0] < h else cv2.INTER_CUBIC
        pixels = np.asarray(cv2.resize(pixels, size[::-1], interpolation=kind), np.float32)
    return np.asarray(np.rint(255 * np.clip(pixels, 0, 1)), np.uint8)
