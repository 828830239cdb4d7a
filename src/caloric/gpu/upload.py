"""Upload: raw pixels are copied to the device and converted to grayscale there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.descriptor.engine import check_intensities
from caloric.errors import InputError
from caloric.gpu import backend, cuda_streams
from caloric.image.pixels import (
    as_image,
    as_unit_range,
    channels_first,
    check_finite,
    check_levels,
    is_tensor,
    rec601,
)
from caloric.image.pixels import to_gray as gray_on_host
from caloric.kernels import Kernel
from caloric.runtime import threads
from caloric.types import Windows

Image: TypeAlias = NDArray[np.generic] | Tensor

_INTEGERS = (np.uint8, np.uint16, np.bool_)
_WHITE = {torch.uint8: 255.0, torch.uint16: 65535.0}
TYPES = {
    "u1": torch.uint8, "u2": torch.uint16, "i4": torch.int32, "b1": torch.bool,
    "f2": torch.float16, "f4": torch.float32, "f8": torch.float64,
}  # fmt: skip
RANGES = 5  # numbers per image: is finite, lowest and highest pixel, lowest and highest gray


@dataclass(frozen=True)
class Kind:
    """Shape and type of an image; all images of a batch are of the same kind.

    Arrays are (h, w) or (h, w, c), tensors (h, w) or (c, h, w).
    """

    shape: tuple[int, ...]
    type: str
    tensor: bool

    @classmethod
    def of(cls, image: Image) -> "Kind":
        """Return the kind of an image."""
        if isinstance(image, torch.Tensor):
            return cls(tuple(image.shape), str(image.dtype), True)
        return cls(image.shape, image.dtype.newbyteorder("=").str[1:], False)

    @property
    def layout(self) -> str:
        """The layout of a batch, as in :func:`to_gray`."""
        return "tensors" if self.tensor else "arrays"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        h, w = self.shape[-2:] if self.tensor else self.shape[:2]
        return h, w

    @property
    def pixels(self) -> int:
        """The number of pixels."""
        return self.size[0] * self.size[1]

    @property
    def is_integer_array(self) -> bool:
        """Whether images are arrays of integers, which need no check of their values."""
        return not self.tensor and self.type in ("u1", "u2")

    def enlarged(self) -> "Kind":
        """Return a kind of arrays that is large enough for many similar sizes.

        Sides are rounded up to 2ᵏ or 3 · 2ᵏ⁻¹, so that there are few different kinds.
        """
        h, w = (_rounded_up(n) for n in self.size)
        return replace(self, shape=(h, w, *self.shape[2:]))


def _rounded_up(length: int) -> int:
    power = 1 << (length - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


GRAY = "gray"  # the layout of grayscale float32 pixels (b, h, w) that need no checks


def prepared(image: Any) -> Image:
    """Return an image as an array or a tensor, or raise InputError for its shape or type.

    Pixel values are checked later, on the device (:func:`ranges`).
    """
    if not is_tensor(image):
        if isinstance(image, Windows):
            h, w = image.shape[:2]
            return gray_on_host(image.window(slice(0, h), slice(0, w)))
        array = as_image(image)
        if array.dtype.type not in _INTEGERS:
            as_unit_range(array[:0], "image")  # raises InputError if the type is not supported
        return array
    check_type(image)
    return torch.as_tensor(channels_first(image)).detach()


def check_type(image: Tensor) -> None:
    """Raise InputError if the data type of a tensor is not supported."""
    kind = image.dtype
    if not (image.is_floating_point() or kind in _WHITE or kind == torch.bool):
        raise InputError(
            f"image: tensor of unsupported type {kind}; use uint8, uint16, bool or floats in [0, 1]"
        )


def upload(images: Sequence[Image], device: Any) -> Tensor:
    """Return images of the same kind as a tensor (b, ...) on the device, unconverted."""
    first = images[0]
    if isinstance(first, torch.Tensor):
        return torch.stack([torch.as_tensor(image).to(device) for image in images])
    return upload_rows([np.asarray(image)[None] for image in images], device)


_STRIP = 1 << 20  # bytes that a thread copies at a time
SHARED = 6 << 20  # bytes: smaller copies end before other threads have started


def upload_rows(arrays: Sequence[NDArray[np.generic]], device: Any) -> Tensor:
    """Return concatenated arrays (n, ...) of the same type as a tensor on the device.

    Threads copy them to pinned memory; the copy to the device is asynchronous.
    """
    kind, shape = arrays[0].dtype.newbyteorder("="), arrays[0].shape[1:]
    counts = [len(array) for array in arrays]
    row_bytes = int(np.prod(shape)) * kind.itemsize
    buffer, rows = _host_buffer((sum(counts), *shape), kind, device)
    if buffer.numel() < SHARED:
        np.concatenate(arrays, out=rows)
    else:
        step = max(1, _STRIP // max(1, row_bytes))
        parts = [
            (array[start : start + step], first + start)
            for array, first in zip(arrays, np.cumsum([0, *counts]).tolist(), strict=False)
            for start in range(0, len(array), step)
        ]
        threads.each(lambda p: np.copyto(rows[p[1] : p[1] + len(p[0])], p[0]), parts)
    return cuda_streams.upload(buffer, device).view(TYPES[kind.str[1:]]).view(rows.shape)


def _host_buffer(
    shape: tuple[int, ...], kind: np.dtype[Any], device: Any
) -> tuple[Tensor, NDArray[np.generic]]:
    """Return an uninitialized buffer of bytes, pinned for a GPU, and its view of some shape."""
    size = int(np.prod(shape)) * kind.itemsize
    buffer = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    return buffer, buffer.numpy().view(kind).reshape(shape)


def upload_padded(images: Sequence[Image], kind: Kind, count: int, device: Any) -> Tensor:
    """Return images at the top left of ``count`` arrays of a kind; other pixels are undefined."""
    on_host = np.dtype(kind.type)
    buffer, rows = _host_buffer((count, *kind.shape), on_host, device)

    def copy(i: int) -> None:
        image = np.asarray(images[i])
        np.copyto(rows[i, : len(image), : image.shape[1]], image)

    threads.each(copy, range(len(images)))
    return cuda_streams.upload(buffer, device).view(TYPES[kind.type]).view(rows.shape)


def upload_frames(sets: Sequence[NDArray[np.float64]], count: int | None, device: Any) -> Tensor:
    """Return sets of n frames (s, n, 2, 3) on the device, in one copy.

    With a ``count``, each set is padded to it by copies of its first frame.
    """
    size = len(sets[0]) if count is None else count
    padded = [part for maps in sets for part in (maps, np.repeat(maps[:1], size - len(maps), 0))]
    return upload_rows(padded, device).view(len(sets), size, 2, 3)


def as_tensor(values: Any, device: Any) -> Tensor:
    """Return an array or a tensor as a tensor on the device."""
    if is_tensor(values):
        return torch.as_tensor(values, device=device)
    return upload_rows([np.asarray(values)], device)


def _unit_range(pixels: Tensor) -> Tensor:
    """Return pixels in [0, 1], bit-identical to :func:`caloric.image.pixels.as_unit_range`."""
    white = _WHITE.get(pixels.dtype)
    if white is None:
        return pixels.float()
    # Divide by a tensor: on a GPU a Python number would be replaced by its rounded inverse.
    return pixels.float() / torch.full((), white, device=pixels.device)


def to_gray(pixels: Tensor, layout: str) -> Tensor:
    """Return the grayscale pixels (b, h, w) of images, bit-identical to those of the CPU.

    ``layout`` is "arrays" (b, h, w) or (b, h, w, c), "tensors" (b, h, w) or (b, c, h, w), or "gray"
    for grayscale float32 pixels (b, h, w).
    """
    if layout == GRAY:
        return pixels
    if pixels.dtype == torch.uint8 and layout == "arrays" and pixels.shape[3:] == (3,):
        return backend.of(pixels.device).gray(pixels)
    values = _unit_range(pixels)
    if values.ndim == 3:
        return values
    channels = values.unbind(1 if layout == "tensors" else 3)
    if len(channels) == 1:
        return channels[0]
    result: Tensor = rec601(*channels[:3])
    return 1 + channels[3] * (result - 1) if len(channels) == 4 else result


def _limits(pixels: Tensor) -> Tensor:
    """Return whether images are finite, and their lowest and highest pixels, (b, 3)."""
    flat = pixels.flatten(1)
    low, high = torch.aminmax(flat, dim=1)
    return torch.stack([torch.isfinite(flat).all(1).float(), low.float(), high.float()], 1)


def ranges(pixels: Tensor, gray: Tensor, layout: str, kernel: Kernel) -> Tensor:
    """Return the numbers (b, 5) from which :func:`check` judges images: see ``RANGES``."""
    result = torch.ones((len(pixels), RANGES), device=pixels.device)
    if layout == GRAY:
        return result
    if pixels.is_floating_point():
        result[:, :3] = _limits(pixels)
    if kernel.feature == "intensity":
        result[:, 3], result[:, 4] = torch.aminmax(gray.flatten(1), dim=1)
    return result


def check(ranges: NDArray[np.float32], kernel: Kernel) -> None:
    """Raise the same InputError as the CPU if the :func:`ranges` (5,) of an image are invalid."""
    finite, low, high, darkest, brightest = ranges.tolist()
    check_finite(finite > 0)
    check_levels(low, high)
    if kernel.feature == "intensity":
        check_intensities(darkest, brightest, kernel)


def on_device(image: Image, device: Any) -> Tensor:
    """Return the pixels (1, ...) of an image on the device, unconverted and checked."""
    pixels = upload([image], device)
    if pixels.is_floating_point():
        finite, low, high = _limits(pixels)[0].tolist()
        check_finite(finite > 0)
        check_levels(low, high)
    return pixels
