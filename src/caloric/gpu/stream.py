"""Image files decoded in advance on threads, by the CPU or by the decoder of a GPU."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from caloric.errors import InputError
from caloric.features import Failure
from caloric.gpu import devices
from caloric.image import reading
from caloric.image.pixels import Windows, to_grey
from caloric.runtime import threads

T = TypeVar("T")
_ORIENTATION = 274  # EXIF tag; 1 is upright

_AHEAD = 128  # files decoded in advance
_BYTES = 1 << 30  # of images decoded in advance, estimated by the largest so far


def by_nvjpeg(path: str, device: Any) -> Any:
    """Return a JPEG decoded on the device, uint8 (3, h, w); None if it must be decoded by the CPU.

    Images rotated by EXIF and JPEGs that are not RGB or grey are left to the CPU. Decoders differ
    by one or two levels of 255, and features accordingly.
    """
    if device.type != "cuda" or not path.lower().endswith((".jpg", ".jpeg")):
        return None
    try:
        import torch
        from PIL import Image
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError:
        return None
    try:
        with Image.open(path) as image:
            if image.getexif().get(_ORIENTATION, 1) != 1 or image.mode not in ("RGB", "L"):
                return None
        content = torch.from_numpy(np.fromfile(path, np.uint8))
        return decode_jpeg(content, mode=ImageReadMode.RGB, device=device)
    except (OSError, RuntimeError):
        return None


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

    def read(path: str) -> Any:
        pixels = by_nvjpeg(path, target) if decode == "gpu" else None
        if pixels is not None:
            return pixels
        image = reading.open_image(path)
        return image if isinstance(image, Windows) else to_grey(image)

    if target is not None:
        yield from decoded(files, read)
        return
    for path in files:
        try:
            yield reading.open_image(path)
        except InputError as error:
            yield Failure(str(error))
