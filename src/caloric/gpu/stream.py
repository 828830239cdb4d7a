"""Files decoded on threads, ahead of what uses them, by the CPU or by a GPU's own decoder."""

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
_ORIENTATION = 274  # of EXIF: 1 is upright

_AHEAD = 128  # files
_BYTES = 1 << 30  # of the largest so far, so many times


def by_nvjpeg(path: str, device: Any) -> Any:
    """A JPEG decoded by the device, uint8 (3, h, w) in its memory; None if it cannot be.

    What is turned by EXIF, or not a plain JPEG, is left to the CPU. Decoders differ by a level or
    two of 255, and features by as much.
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
    """That a device can decode, if it is to."""
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
    """Yield what is read from each file, or why it cannot be read, in order."""

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
            found = ahead.popleft().result()
            largest = max(largest, getattr(found, "nbytes", 1))
            yield found


def opened(files: Sequence[str], device: str, decode: str = "cpu") -> Iterator[Any]:
    """Images in their order, or why they cannot be read: for a device decoded ahead, on threads.

    ``decode="gpu"``: JPEGs by nvJPEG where that is possible.
    """
    target = devices.resolve(device)

    def read(path: str) -> Any:
        there = by_nvjpeg(path, target) if decode == "gpu" else None
        if there is not None:
            return there
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
