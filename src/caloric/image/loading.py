"""Prefetching of image files on threads, decoded by the CPU or by nvJPEG on a GPU."""

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from caloric.errors import Failure, InputError
from caloric.image import inputs
from caloric.runtime import threads
from caloric.types import ImageLike

if TYPE_CHECKING:
    from torch import Tensor

Decoder = Literal["cpu", "gpu"]
T = TypeVar("T")
_ORIENTATION = 274  # EXIF tag; 1 is upright

_BATCH = 32  # files that nvJPEG decodes together
_AHEAD = 128  # maximum number of prefetched files
_BYTES = 1 << 30  # maximum size of prefetched images, estimated from the largest so far


def read_ahead(
    files: Sequence[T], read: Callable[[T], Any], ahead: int = _AHEAD
) -> Iterator[Any | Failure]:
    """Yield the result of ``read`` for each file, in order, or a Failure.

    Up to ``ahead`` files are prefetched on threads.
    """

    def safely(file: T) -> Any | Failure:
        try:
            return read(file)
        except InputError as error:
            return Failure(str(error))
        except MemoryError:
            return Failure(f"{inputs.label(file, 'image')}: not enough memory")

    with ThreadPoolExecutor(min(threads.count(), ahead), "caloric-files") as pool:
        pending: deque[Future[Any]] = deque()
        submitted, largest = 0, 0
        for index in range(len(files)):
            limit = min(ahead, max(1, _BYTES // largest if largest else threads.count()))
            while submitted < len(files) and submitted - index < limit:
                pending.append(pool.submit(safely, files[submitted]))
                submitted += 1
            result = pending.popleft().result()
            largest = max(largest, getattr(result, "nbytes", 1))
            yield result


def check_decoder(decode: Decoder, device: Any) -> None:
    """Raise InputError if the device (None for the CPU) does not support the decoder."""
    if decode == "cpu":
        return
    if device is None or device.type != "cuda":
        raise InputError("--decode gpu requires a GPU: use --device cuda")
    try:
        import torchvision  # noqa: F401
    except ImportError:
        raise InputError("--decode gpu requires torchvision with nvJPEG") from None


def open_images(
    images: Sequence[ImageLike],
    device: Any = None,
    decode: Decoder = "cpu",
    white_level: float | None = None,
) -> Iterator[Any]:
    """Yield each image or a Failure, in order.

    Many files are prefetched for a device, but only one for the CPU, whose threads are busy. With
    ``decode="gpu"`` JPEGs are decoded by nvJPEG if possible. Arrays and tensors are passed on.
    """

    def read(image: ImageLike) -> Any:
        return inputs.opened(image, white_level)

    if device is not None and decode == "gpu" and white_level is None:
        return _decoded_by_gpu([str(image) for image in images], device)
    if white_level is None and not any(map(inputs.is_encoded, images)):
        return iter(images)
    return read_ahead(images, read, 2 if device is None else _AHEAD)


def jpeg_bytes(path: str) -> "Tensor | None":
    """Return the bytes of a JPEG that nvJPEG can decode; None for a file for the CPU.

    The CPU decodes other formats, JPEGs that are neither RGB nor grayscale, and those with an EXIF
    orientation.
    """
    import torch
    from PIL import Image

    if not path.lower().endswith((".jpg", ".jpeg")):
        return None
    try:
        content = np.fromfile(path, np.uint8)
        with Image.open(io.BytesIO(content.tobytes())) as image:
            upright = image.getexif().get(_ORIENTATION, 1) == 1
            if upright and image.format == "JPEG" and image.mode in ("RGB", "L"):
                return torch.from_numpy(content)
    except Exception:  # depends on the decoder; reported when the pixels are read
        return None
    return None


def by_nvjpeg(contents: "list[Tensor]", device: Any) -> "list[Tensor | None]":
    """Return JPEGs decoded on the device, uint8 (3, h, w), or None for those it cannot decode.

    The pixels differ from those of other decoders by one or two levels of 255.
    """
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        return list(decode_jpeg(contents, mode=ImageReadMode.RGB, device=device))
    except RuntimeError:
        if len(contents) == 1:
            return [None]
        return [by_nvjpeg([content], device)[0] for content in contents]


def _decoded_by_gpu(files: Sequence[str], device: Any) -> Iterator[Any]:
    """Yield the images in order; the device decodes a batch while the previous one is used."""
    import torch

    def read(path: str) -> Any:
        content = jpeg_bytes(path)
        return inputs.open_image(path) if content is None else (path, content)

    def decode(batch: list[Any]) -> list[Any]:
        jpegs = [i for i, item in enumerate(batch) if isinstance(item, tuple)]
        if jpegs:
            pixels = by_nvjpeg([batch[i][1] for i in jpegs], device)
            torch.cuda.synchronize(device)
            for i, image in zip(jpegs, pixels, strict=True):
                path = batch[i][0]
                batch[i] = next(read_ahead([path], inputs.open_image)) if image is None else image
        return batch

    def batches() -> Iterator[list[Any]]:
        batch = []
        for item in read_ahead(files, read):
            batch.append(item)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    with ThreadPoolExecutor(1, "caloric-decoder") as decoder:
        ahead: deque[Future[list[Any]]] = deque()
        for batch in batches():
            ahead.append(decoder.submit(decode, batch))
            if len(ahead) > 2:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()
