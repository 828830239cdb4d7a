"""The whole way on a device: images of one size in, frames and descriptors out, in one copy."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.descriptor.recipes import Descriptor
from caloric.detector.detection import Options
from caloric.errors import InputError
from caloric.gpu import devices, extrema, once, orientation, pooling, scalespace
from caloric.gpu.extrema import Found
from caloric.gpu.once import kept
from caloric.gpu.reader import Reader
from caloric.gpu.scalespace import Plan
from caloric.image.pixels import check_levels, is_tensor, source
from caloric.runtime import threads

log = logging.getLogger("caloric")

_FEWEST = 1024  # room for candidates
_PER = 16  # pixels of an image a candidate: more than that and it is made again with more room
AT_ONCE = 32  # images of one size
_PIXELS = 1 << 26  # of them
_WAITING = 1 << 28  # pixels that wait for others of their size
_NUMBERED = 1 << 31  # pixels of a pyramid that the kernels can number


@dataclass(frozen=True)
class Job:
    """What is to be made of images: :func:`caloric.extract`'s options.

    ``output`` is "float32" or "uint8"; ``half`` contracts in half precision, on a GPU.
    """

    recipe: Descriptor
    options: Options
    sizes: tuple[float, ...] = (1.0,)
    output: str = "float32"
    half: bool = True


@dataclass(frozen=True, eq=False)
class Batch:
    """On the device: frames (b, k, 2, 3) in float64, strengths (b, k) and descriptors (b, k, d),
    the strongest first; where the strength is 0 there is none. ``crowded`` (b,) says that there was
    no room for all candidates."""

    maps: Tensor
    strengths: Tensor
    descriptors: Tensor
    crowded: Tensor


def fusing(device: Any) -> bool:
    """Whether the kernels in Triton can be used there."""
    if device.type != "cuda":
        return False
    try:
        import triton  # noqa: F401
    except ImportError:  # a build of PyTorch without it: the plain forms do the same
        return False
    return True


def room(size: tuple[int, int]) -> int:
    """For how many candidates of an image there is room."""
    return max(_FEWEST, size[0] * size[1] // _PER)


def pyramids(images: Tensor, of: Plan, fused: bool) -> Tensor:
    """Of images (b, h, w): (b, total)."""
    if fused:
        from caloric.gpu import kernels as kernels

        return kernels.build(images, of)
    return scalespace.build(images, of)


def found(rows: Tensor, of: Plan, options: Options, fused: bool, capacity: int) -> Found:
    """Their extrema."""
    if fused:
        from caloric.gpu import kernels as kernels

        return kernels.find(rows, of, options.contrast, options.edge, capacity)
    return extrema.find(rows, of, options.contrast, options.edge)


def _unmasked(found: Found, masks: Tensor | None) -> Found:
    """Without those where a mask (b, h, w) is 0."""
    if masks is None or found.keys.shape[1] == 0:
        return found
    b, h, w = masks.shape
    x, y = (torch.round(found.places[..., i]).long() for i in (0, 1))
    at = y.clamp(0, h - 1) * w + x.clamp(0, w - 1)
    allowed = masks.reshape(b, -1).gather(1, at)
    return replace(found, keys=torch.where(allowed, found.keys, 0))


def extract(images: Tensor, job: Job, masks: Tensor | None = None, capacity: int = 0) -> Batch:
    """Of images (b, h, w), float32 0 to 1, on the device they are on.

    On a GPU with ``options.max_features`` nothing waits for the device, and all shapes are known
    before: there are as many slots as features are asked for, or as there is room for candidates.
    """
    h, w = images.shape[1:]
    of, fused = scalespace.plan(h, w), fusing(images.device)
    capacity = capacity or room((h, w))
    rows = pyramids(images, of, fused)
    peaks = _unmasked(found(rows, of, job.options, fused, capacity), masks)
    limit = job.options.max_features
    if fused and limit is not None:
        slots = most = min(limit, capacity)
    else:
        slots = None
        most = int((peaks.keys > 0).sum(1).max()) if peaks.keys.numel() else 0
        most = most if limit is None else min(limit, most)
    places, strengths = extrema.strongest(peaks, most)
    maps = upright(places, strengths)
    reader = Reader(rows, of, most, fused)
    if job.options.affine and most:
        maps = orientation.adapted(reader, maps.view(-1, 2, 3)).view_as(maps)
    wanted = peaks.counts
    if not job.options.upright and most:
        maps, strengths, wanted = orientation.turned(reader, maps, strengths, slots)
        maps, strengths = maps[:, :limit], strengths[:, :limit]
    crowded = peaks.counts > peaks.keys.shape[1]
    if slots is not None and slots != limit:
        crowded |= wanted > slots
    return Batch(maps, strengths, _described(rows, of, fused, maps, strengths, job), crowded)


def upright(places: Tensor, strengths: Tensor) -> Tensor:
    """Frames (b, k, 2, 3) of extrema; where there is none, one that can be read like any other."""
    maps = torch.zeros((*strengths.shape, 2, 3), dtype=places.dtype, device=places.device)
    maps[..., 0, 0] = maps[..., 1, 1] = torch.where(strengths > 0, places[..., 2], 1.0)
    maps[..., 2] = places[..., :2]
    return maps


def _described(
    rows: Tensor, of: Plan, fused: bool, maps: Tensor, strengths: Tensor, job: Job
) -> Tensor:
    """Descriptors (b, k, d) of frames."""
    b, k = strengths.shape
    device, d = rows.device, job.recipe.dimension
    if k == 0:
        return torch.zeros((b, 0, d), device=device)
    none = (strengths == 0)[..., None, None]
    readable = torch.where(none, torch.eye(2, 3, dtype=maps.dtype, device=device), maps)
    return _values(Reader(rows, of, k, fused), readable.view(-1, 2, 3), job).view(b, k, d)


def _values(reader: Reader, maps: Tensor, job: Job) -> Tensor:
    """Descriptors (n, d) of frames, of the type asked for."""
    values = reader.described(maps, job.recipe, job.sizes, product(job, maps.device))
    if job.output != "uint8":
        return values
    return pooling.to_uint8(values, signed=job.recipe.whitening is not None)


def product(job: Job, device: Any) -> Any:
    """The type in which harmonics and tables are multiplied."""
    return torch.float16 if job.half and device.type == "cuda" else torch.float32


@dataclass(frozen=True, eq=False)
class Extracted:
    """Of one image (h, w), on the host: frames (n, 2, 3), strengths (n,), descriptors (n, d)."""

    size: tuple[int, int]
    maps: NDArray[np.float64]
    strengths: NDArray[np.float32]
    descriptors: NDArray[np.generic]


def to_host(batch: Batch, size: tuple[int, int]) -> list[Extracted]:
    """One copy of all numbers of a batch."""
    b, k = batch.strengths.shape
    parts = (batch.maps, batch.strengths, batch.descriptors)
    flat = torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in parts])
    if flat.is_cuda:
        there = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
        there.copy_(flat, non_blocking=True)
        torch.cuda.current_stream(flat.device).synchronize()
    else:
        there = flat
    numbers = there.numpy()
    cuts = np.cumsum([part.numel() * part.element_size() for part in parts])[:-1]
    maps, strengths, values = np.split(numbers, cuts)
    kind = np.uint8 if batch.descriptors.dtype == torch.uint8 else np.float32
    maps = maps.view(np.float64).reshape(b, k, 2, 3)
    strengths = strengths.view(np.float32).reshape(b, k)
    values = values.view(kind).reshape(b, k, batch.descriptors.shape[2])

    def own(i: int) -> Extracted:
        count = int(np.count_nonzero(strengths[i] > 0))
        return Extracted(
            size,
            maps[i, :count].copy(),
            strengths[i, :count].copy(),
            values[i, :count].copy(),
        )

    return threads.each(own, range(b))


Pixels = NDArray[np.float32]


def pixels(image: Any, device: Any) -> Pixels | Tensor:
    """Grey (h, w) of an array, or of a tensor (h, w), (1, h, w) or (3, h, w), on the device."""
    if not is_tensor(image):
        own = source(image)
        return own.read(*(slice(0, n) for n in own.size))
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[0] not in (1, 3)):
        shape = tuple(image.shape)
        raise InputError(f"image: a tensor (h, w), (1, h, w) or (3, h, w), not {shape}")
    try:
        return grey(image.to(device))
    except torch.OutOfMemoryError:
        raise MemoryError from None


def grey(image: Tensor) -> Tensor:
    """:func:`caloric.image.pixels.to_grey` of a tensor, channels first."""
    if image.dtype == torch.uint8:
        pixels = image.float() / 255
    elif image.is_floating_point():
        pixels = image.float()
        if not bool(torch.isfinite(pixels).all()):
            raise InputError("image: NaN or infinite pixels; replace them first")
        if pixels.numel():
            check_levels(float(pixels.min()), float(pixels.max()))
    elif image.dtype == torch.bool:
        pixels = image.float()
    elif image.dtype == torch.uint16:
        pixels = image.float() / 65535
    else:
        raise InputError(
            f"image: a tensor of {image.dtype}; use uint8, uint16, bool, or floats in [0, 1]"
        )
    if pixels.ndim == 2:
        return pixels
    if len(pixels) == 1:
        return pixels[0]
    return 0.299 * pixels[0] + 0.587 * pixels[1] + 0.114 * pixels[2]


def describe_frames(
    pixels: Pixels, maps: NDArray[np.float64], job: Job, device: Any
) -> NDArray[Any] | None:
    """Descriptors (n, d) of one image's frames from anybody; None if it does not fit."""
    h, w = pixels.shape
    if not _numbered(h, w, device):
        return None
    return devices.fitting(
        lambda: _described_frames(pixels, maps, job, device), f"an image of {w} x {h}"
    )


def _numbered(h: int, w: int, device: Any) -> bool:
    """Whether an image is small enough for the kernels."""
    return not fusing(device) or scalespace.plan(h, w).total < _NUMBERED


def _described_frames(
    pixels: Pixels, maps: NDArray[np.float64], job: Job, device: Any
) -> NDArray[Any]:
    with torch.no_grad(), on(device):
        fused = fusing(device)
        of = scalespace.plan(*pixels.shape)
        rows = pyramids(_stacked([pixels], device), of, fused)
        frames = torch.tensor(maps).to(device)
        reader = Reader(rows, of, len(frames), fused)
        return np.asarray(_values(reader, frames, job).cpu().numpy())


Item = tuple[int, Any, Any]  # its index, its grey pixels (h, w), its mask or None


def extract_all(items: Iterable[Item], job: Job, device: Any) -> Iterator[tuple[int, Any]]:
    """(index, what was found) of images, in any order: those of one size go together.

    The device works on a batch while the next one is gathered. A batch that does not fit into its
    memory is halved; of an image that does not fit alone None is found.
    """
    with ThreadPoolExecutor(1, "caloric-device") as worker:
        at_work: Future[list[tuple[int, Extracted | None]]] | None = None
        for part in _batches(items):
            if at_work is not None:
                yield from at_work.result()
            at_work = worker.submit(_fitting, part, job, device)
        if at_work is not None:
            yield from at_work.result()


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Full batches as they come, then the rest; of sizes without end, the fullest so far."""
    waiting: dict[tuple[int, ...], list[Item]] = {}
    pixels = 0
    for item in items:
        h, w = item[1].shape
        own = waiting.setdefault((h, w), [])
        own.append(item)
        pixels += h * w
        full = len(own) >= min(AT_ONCE, max(1, _PIXELS // (h * w)))
        if full or pixels > _WAITING:
            size = (h, w) if full else max(waiting, key=lambda s: len(waiting[s]) * s[0] * s[1])
            part = waiting.pop(size)
            pixels -= len(part) * size[0] * size[1]
            yield part
    yield from waiting.values()


def _fitting(part: list[Item], job: Job, device: Any) -> list[tuple[int, Extracted | None]]:
    indices = [index for index, _, _ in part]
    h, w = part[0][1].shape
    if _numbered(h, w, device):
        try:
            return list(zip(indices, _batch(part, job, device), strict=True))
        except torch.OutOfMemoryError:
            pass
    forget()
    if len(part) == 1:
        log.warning("an image of %d x %d does not fit into the device's memory: on the CPU", w, h)
        return [(indices[0], None)]
    half = len(part) // 2
    log.warning(
        "%d images of %d x %d do not fit into the device's memory at once: %d", len(part), w, h,
        half,
    )  # fmt: skip
    return _fitting(part[:half], job, device) + _fitting(part[half:], job, device)


def _stacked(images: Sequence[Pixels | Tensor], device: Any) -> Tensor:
    if all(isinstance(image, torch.Tensor) for image in images):
        return torch.stack([torch.as_tensor(image).to(device) for image in images])
    host = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def _batch(part: list[Item], job: Job, device: Any) -> list[Extracted]:
    with torch.no_grad(), on(device):
        pixels = _stacked([one for _, one, _ in part], device)
        masks = None
        if any(mask is not None for _, _, mask in part):
            every = [np.ones(one.shape, bool) if mask is None else mask for _, one, mask in part]
            masks = torch.from_numpy(np.stack(every)).to(device)
        return to_host(run(pixels, job, masks), (pixels.shape[1], pixels.shape[2]))


_working = RLock()


@contextmanager
def on(device: Any) -> Iterator[None]:
    """Kernels are started on that device, by one thread at a time: recordings have one place for
    what comes out."""
    with _working, torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        yield


def run(pixels: Tensor, job: Job, masks: Tensor | None) -> Batch:
    """:func:`extract`, recorded where that pays, and again with more room where it was crowded.

    The next run of the same kind may write over what comes out.
    """
    batch = replayed(pixels, job) if masks is None else extract(pixels, job, masks)
    more = room((pixels.shape[1], pixels.shape[2]))
    while bool(batch.crowded.any()):
        more *= 4
        batch = extract(pixels, job, masks, more)
    return batch


@dataclass(frozen=True, eq=False)
class _Graph:
    """A recorded extraction: what is copied to ``images`` and replayed ends in ``batch``."""

    graph: Any
    images: Tensor
    batch: Batch


_KEPT = 4  # graphs: each holds the memory of its batch
_graphs: OrderedDict[tuple[Any, ...], _Graph | None] = kept(OrderedDict())


def replayed(images: Tensor, job: Job) -> Batch:
    """:func:`extract` without its hundreds of launches, from the second batch of a kind on.

    What comes out lies where the next batch of this kind will be written.
    """
    if not fusing(images.device) or job.options.max_features is None:
        return extract(images, job)
    key = (tuple(images.shape), images.device, job)
    if key not in _graphs:
        _graphs[key] = None
        return extract(images, job)
    _graphs.move_to_end(key)
    recorded = _graphs[key]
    if recorded is None:
        while sum(g is not None for g in _graphs.values()) >= _KEPT:
            oldest = next(k for k, g in _graphs.items() if g is not None)
            del _graphs[oldest]
        recorded = _graphs[key] = _record(images, job)
    recorded.images.copy_(images)
    recorded.graph.replay()
    return recorded.batch


def forget() -> None:
    """Give the memory of recordings and tables back."""
    once.forget()
    torch.cuda.empty_cache()


def _record(images: Tensor, job: Job) -> _Graph:
    static = images.clone()
    extract(static, job)  # makes all tables: within the recording none can be made
    graph = torch.cuda.CUDAGraph()
    # Other threads go on decoding and copying meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        batch = extract(static, job)
    return _Graph(graph, static, batch)
