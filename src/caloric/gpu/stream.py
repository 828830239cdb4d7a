"""Image files decoded in advance on threads, by the CPU or by the decoder of a GPU."""

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from caloric.errors import InputError
from caloric.features import Failure
from caloric.gpu import devices
from caloric.image import reading
from caloric.runtime import threads

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
_ORIENTATION = 274  # EXIF tag; 1 is upright

_AT_ONCE = 32  # files that nvJPEG decodes together
_AHEAD = 128  # files decoded in advance
_BYTES = 1 << 30  # of images decoded in advance, estimated by the largest so far


def jpeg_bytes(path: str) -> "Tensor | None":
    """Return the bytes of a JPEG that nvJPEG can decode; None if it is left to the CPU.

    Those are images rotated by EXIF, JPEGs that are not RGB or grey, and other files.
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
    except Exception:  # as many types as decoders; reading the pixels reports the error
        return None
    return None


def by_nvjpeg(contents: "list[Tensor]", device: Any) -> "list[Tensor | None]":
    """Return JPEGs decoded on the device, uint8 (3, h, w); None for what it cannot decode.

    Decoders differ by one or two levels of 255, and features accordingly.
    """
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        return list(decode_jpeg(contents, mode=ImageReadMode.RGB, device=device))
    except RuntimeError:
        if len(contents) == 1:
            return [None]
        return [by_nvjpeg([content], device)[0] for content in contents]


def check(decode: str, device: str) -> None:
    """Raise InputError if ``decode`` is "gpu" and the device cannot decode images."""
    if decode not in ("cpu", "gpu"):
        raise InputError(f"--decode must be cpu or gpu, got {decode!r}")
    if decode == "cpu":
        return
    target = devices.resolve(device)
    if target is None or target.type != "cuda":
        raise InputError(f"--decode gpu needs a GPU, and --device is {device}")
    try:
        import torchvision  # noqa: F401
    except ImportError:
        raise InputError("--decode gpu needs torchvision, with nvJPEG") from None


def decoded(files: Sequence[str], read: Callable[[str], T]) -> Iterator[T | Failure]:
    """Yield the result of ``read`` for each file in order, or a Failure."""

    def safely(file: str) -> T | Failure:
        try:
            return read(file)
        except InputError as error:
            return Failure(str(error))
        except MemoryError:
            return Failure(f"{file}: not enough memory")

    with ThreadPoolExecutor(threads.count(), "caloric-files") as pool:
        ahead: deque[Future[T | Failure]] = deque()
        begun, largest = 0, 0
        for index in range(len(files)):
            most = min(_AHEAD, max(1, _BYTES // largest)) if largest else threads.count()
            while begun < len(files) and begun - index < most:
                ahead.append(pool.submit(safely, files[begun]))
                begun += 1
            result = ahead.popleft().result()
            largest = max(largest, getattr(result, "nbytes", 1))
            yield result


def opened(files: Sequence[str], device: str, decode: str = "cpu") -> Iterator[Any]:
    """Yield the images in order, or a Failure each; for a device they are decoded in advance.

    With ``decode="gpu"`` JPEGs are decoded by nvJPEG where possible.
    """
    target = devices.resolve(device)
    if target is not None and decode == "gpu":
        yield from _decoded_by_gpu(files, target)
    elif target is not None:
        yield from decoded(files, reading.open_image)
    else:
        for path in files:
            try:
                yield reading.open_image(path)
            except InputError as error:
                yield Failure(str(error))


def _decoded_by_gpu(files: Sequence[str], device: Any) -> Iterator[Any]:
    """Yield the images in order; the device decodes a batch while the last one is used."""
    import torch

    def read(path: str) -> Any:
        content = jpeg_bytes(path)
        return reading.open_image(path) if content is None else (path, content)

    def decode(batch: list[Any]) -> list[Any]:
        jpegs = [i for i, item in enumerate(batch) if isinstance(item, tuple)]
        if jpegs:
            pixels = by_nvjpeg([batch[i][1] for i in jpegs], device)
            torch.cuda.synchronize(device)
            for i, image in zip(jpegs, pixels, strict=True):
                batch[i] = (
                    next(decoded([batch[i][0]], reading.open_image)) if image is None else image
                )
        return batch

    def batches() -> Iterator[list[Any]]:
        batch = []
        for item in decoded(files, read):
            batch.append(item)
            if len(batch) == _AT_ONCE:
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
