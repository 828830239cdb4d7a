"""Dispatch of feature extraction to the CPU or a device, for one image or many."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from caloric.detector.options import DetectOptions
from caloric.errors import Failure, InputError
from caloric.extraction import oblique, tiled
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import inputs, loading, tiles
from caloric.image.pixels import Source, lacks_texture, low_contrast, source, unused_range
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import ImageLike

R = TypeVar("R")
_log = logging.getLogger(__name__)
_FEW = 100  # fewer features may be due to an incorrect intensity range


@dataclass(frozen=True, eq=False)
class Extraction:
    """The extraction of an image, which a device has started or the CPU will do.

    ``pending`` waits for the device and returns the features, or None if the image does not fit
    into its memory. Then, and without ``pending``, the CPU extracts them, from ``pixels`` if given
    and otherwise from ``image``. Warnings start with ``name``.
    """

    image: Any
    mask: Any
    options: ExtractOptions
    memory: int
    name: str = "image"
    pixels: Source | None = None
    pending: Callable[[], Any] | None = None

    @threads.single_threaded_blas
    def features(self) -> Any:
        """Return the features."""
        features = None if self.pending is None else self.pending()
        if features is None:
            pixels = self.pixels or tiled.checked_source(self.image, self.options.recipe.kernel)
            allowed = tiled.allowed_by(self.mask, pixels.size)
            frames, values = tiled.find(pixels, allowed, self.options, self.memory)
            features = self.options.features(frames, values, pixels.size)
        if isinstance(features, Failure):
            raise InputError(features.reason)
        advise(self.name, self.image, len(features), self.options)
        return features


def begin(
    image: Any,
    mask: Any,
    options: ExtractOptions,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    on_device: bool = False,
    name: str = "image",
    pixels: Source | None = None,
) -> Extraction:
    """Start extracting the features of an image; the CPU starts when they are requested.

    With ``on_device``, features that the device extracts stay there: :func:`moved_to` moves others.
    The CPU reads the image from ``pixels`` if it is given. Warnings start with ``name``.
    """
    target = devices.resolve(device)
    check_device(target, options, on_device)
    pending: Callable[[], Any] | None = None
    if options.views is not None:
        pending = oblique.begin(image, mask, options, (1, *options.tilts), device, memory)
    elif target is not None:
        from caloric.gpu import batches

        item = _prepared(image, mask)
        if 0 not in item[0].shape:
            queue = batches.queue_of(item, options, target, on_device)
            pending = batches.repeatable(queue, queue())
    return Extraction(image, mask, options, memory, name, pixels, pending)


def detect(image: ImageLike, mask: Any, options: DetectOptions, memory: int) -> Frames:
    """Return the frames of an image in any form; errors and warnings name its file."""
    name = inputs.label(image, "image")
    with inputs.naming(name):
        opened = inputs.opened(image)
        pixels = source(opened)
        frames, _ = tiled.find(pixels, tiled.allowed_by(mask, pixels.size), options, memory)
    advise(name, opened, len(frames), options)
    return frames


def check_device(target: Any, options: ExtractOptions, on_device: bool) -> None:
    """Raise InputError if the device does not support the options."""
    if on_device and (target is None or options.views is not None):
        raise InputError("on_device=True requires a device, such as 'cuda', and views=None")
    if target is not None and options.detector != "dog":
        raise InputError(f"detector {options.detector!r} runs only on the CPU; use device 'cpu'")


def extract_each(
    images: Iterable[tuple[Any, Any]],
    options: ExtractOptions,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    on_device: bool = False,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield (index, features) for each image, with a :class:`Failure` if it has no features.

    ``images`` yields (image, mask or None); an image that is already a Failure is passed on. A
    device processes images of the same size together, so results may be out of order. Warnings
    start with the name of the image.
    """

    def name(index: int) -> str:
        return f"images[{index}]" if names is None else names[index]

    target = devices.resolve(device)
    check_device(target, options, on_device)
    if options.views is not None:
        yield from _each_oblique(images, options, device, memory, name)
    elif target is not None:
        yield from _each_on_device(images, options, target, memory, on_device, name)
    else:
        for index, (image, mask) in enumerate(images):
            work = Extraction(image, mask, options, memory, name=name(index)).features
            yield index, _or_failure(image, work)


def extract_list(
    images: list[Any],
    masks: Any,
    options: ExtractOptions,
    device: str,
    memory: int,
    on_device: bool,
) -> list[Features]:
    """Return the features of images in their order; raise InputError for the first that fails."""
    count = len(images)
    if masks is not None and (not isinstance(masks, list | tuple) or len(masks) != count):
        raise InputError(f"masks: expected a list of {count} masks, one per image, or None")
    opened = loading.open_images(images, devices.resolve(device))
    pairs = zip(opened, [None] * count if masks is None else masks, strict=True)
    names = [inputs.label(image, f"images[{i}]") for i, image in enumerate(images)]
    results: dict[int, Features] = {}
    for index, result in extract_each(pairs, options, device, memory, on_device, names):
        if isinstance(result, Failure):
            raise inputs.named(result.reason, names[index])
        results[index] = result
    return [results[i] for i in range(count)]


def describe_frames(
    image: ImageLike, frames: Frames, options: ExtractOptions, device: Any, memory: int
) -> NDArray[np.generic]:
    """Return the descriptors (n, d) of given frames, on a device or, if it is None, on the CPU."""
    with inputs.naming(inputs.label(image, "image")):
        return _describe(inputs.opened(image), frames, options, device, memory)


def _describe(
    image: Any, frames: Frames, options: ExtractOptions, device: Any, memory: int
) -> NDArray[np.generic]:
    pixels = tiled.checked_source(image, options.recipe.kernel)
    if device is not None and 0 not in pixels.size and len(frames):
        from caloric.gpu import batches

        on_device = batches.describe_frames(pixels.whole(), frames.maps, options, device)
        if on_device is not None:
            return on_device.astype(options.output, copy=False)
    return tiled.describe(pixels, frames, options, memory)


def _each_oblique(
    images: Iterable[tuple[Any, Any]],
    options: ExtractOptions,
    device: str,
    memory: int,
    name: Callable[[int], str],
) -> Iterator[tuple[int, Features | Failure]]:
    """Yield the features of all views of each image; a device processes the next one meanwhile."""

    def finished(index: int, image: Any, pending: Any) -> tuple[int, Features | Failure]:
        result = pending if isinstance(pending, Failure) else _or_failure(image, pending)
        if isinstance(result, Features):
            advise(name(index), image, len(result), options)
        return index, result

    tilts = (1, *options.tilts)
    last = None
    for index, (image, mask) in enumerate(images):
        begin = partial(oblique.begin, image, mask, options, tilts, device, memory)
        pending = index, image, _or_failure(image, begin)
        if last is not None:
            yield finished(*last)
        last = pending
    if last is not None:
        yield finished(*last)


def _each_on_device(
    images: Iterable[tuple[Any, Any]],
    options: ExtractOptions,
    device: Any,
    memory: int,
    on_device: bool,
    name: Callable[[int], str],
) -> Iterator[tuple[int, Any]]:
    from caloric.gpu import batches

    pending: dict[int, tuple[Any, Any]] = {}  # kept for images that do not fit into device memory
    early: list[tuple[int, Any]] = []  # results without the device

    def items() -> Iterator[tuple[int, batches.Item]]:
        for index, (image, mask) in enumerate(images):
            item = _or_failure(image, partial(_prepared, image, mask))
            if isinstance(item, Failure):
                early.append((index, item))
                continue
            pending[index] = (image, mask)
            if 0 in item[0].shape:
                early.append((index, on_cpu(index)))
            else:
                yield index, item

    def on_cpu(index: int) -> Any:
        image, mask = pending.pop(index)
        extraction = Extraction(image, mask, options, memory, name=name(index))
        if not on_device:
            return _or_failure(image, extraction.features)
        return _or_failure(image, lambda: moved_to(device, extraction.features()))

    for index, result in batches.extract_all(items(), options, device, on_device):
        yield from early
        early.clear()
        if result is None:
            yield index, on_cpu(index)
            continue
        image, _ = pending.pop(index)
        if not isinstance(result, Failure):
            advise(name(index), image, len(result), options)
        yield index, result
    yield from early


def _prepared(image: Any, mask: Any) -> Any:
    """Return an image and its mask prepared for upload; raise InputError if they are invalid."""
    from caloric.gpu import upload

    pixels = upload.prepared(image)
    return pixels, tiled.checked_mask(mask, upload.Kind.of(pixels).size)


def moved_to(device: Any, features: Any) -> Any:
    """Return features on a device; raise InputError if they do not fit into its memory."""
    if not isinstance(features, Features):
        return features  # already there
    from caloric.gpu import download

    work = partial(download.to_device, features, device)
    on_device = devices.unless_out_of_memory(work, None)
    if on_device is None:
        raise InputError("image: its features do not fit into device memory; use on_device=False")
    return on_device


def _or_failure(image: Any, work: Callable[[], R]) -> R | Failure:
    if isinstance(image, Failure):
        return image
    try:
        return work()
    except InputError as error:
        return Failure(str(error))
    except MemoryError:
        return Failure("not enough memory")


def advise(name: str, image: Any, count: int, options: DetectOptions) -> None:
    """Log a warning if an image has few features because of its texture or intensity range."""
    limit = options.max_features
    if count >= max(_FEW, (limit or 0) // 2) or limit == 0:
        return
    reason = lacks_texture(image) if count == 0 else None
    if reason is not None:
        _log.warning("%s: no features found (%s)", name, reason)
        return
    advice = unused_range(image)
    if advice is None and count < _FEW:
        advice = low_contrast(image)
    if advice is not None:
        _log.warning("%s: only %d features: %s", name, count, advice)
