"""The one way through the stages: image, frames, densities, descriptors, matches, geometry."""

import logging
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from caloric.descriptor.engine import check_range, describe_levels, output_type, recipe_from
from caloric.descriptor.layout import Layout
from caloric.descriptor.recipes import Descriptor
from caloric.detector import detection, extrema
from caloric.detector.detection import Options, Strongest
from caloric.detector.extrema import Extrema, joined
from caloric.errors import InputError, known_options
from caloric.features import Failure, Features, check_comparable
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image import views as simulated
from caloric.image.pixels import Source, low_contrast, several, source, to_grey, unused_range
from caloric.image.scalespace import Ladder
from caloric.image.views import View
from caloric.kernels import Kernel
from caloric.matching import geometry, refinement
from caloric.matching.geometry import Geometry
from caloric.matching.neighbours import (
    Matches,
    check_options,
    match_descriptors,
    one_per_place,
)
from caloric.matching.refinement import Refined
from caloric.plan import Plan, relative_sizes
from caloric.runtime import threads
from caloric.types import Detector, FloatArray, GeometryModel, Normalisation

R = TypeVar("R")
Allowed = Callable[[FloatArray], NDArray[np.bool_]]
_log = logging.getLogger(__name__)
_FEW = 100  # fewer features than this may be a sign of a wrong range


@known_options
@threads.single_threaded_blas
def detect(
    image: ArrayLike,
    *,
    max_features: int | None = detection.FEATURES,
    mask: ArrayLike | None = None,
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float | None = None,
    edge: float = extrema.EDGE,
    memory: int = tiles.MEMORY,
) -> Frames:
    """Detect frames: extrema of the difference of Gaussians, with orientations.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4)
        uint8, uint16, bool, or floats in [0, 1]; colours in RGB order.
    max_features : int or None
        Keep this many frames, the strongest. None for all that reach the contrast.
    mask : array (h, w), optional
        Non-zero where features may be.
    affine : bool
        Adapt the shape of each frame to the gradients inside it, part of the way. A frame whose
        shape does not converge stays round.
    upright : bool
        Do not estimate orientations. Otherwise an extremum with several dominant orientations gives
        several frames.
    detector : "dog" or "opencv"
        "opencv" takes the extrema that OpenCV's SIFT finds.
    contrast : float, optional
        The smallest response, times three, as in OpenCV. By default 0.04; if ``max_features`` are
        asked for and there are fewer, down to 0.005, so that images of low contrast get theirs
        (not with ``detector="opencv"``).
    edge : float
        The largest ratio of the two principal curvatures.
    memory : int
        Bytes to work in. A larger image is processed in tiles, with the same result: to the byte
        with the compiled core, to rounding without it and for ``affine``.

    Returns
    -------
    Frames
        n frames, strongest first.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> len(caloric.detect(image, max_features=50))
    50
    """
    options = Options(max_features, affine, upright, detector, contrast, edge)
    pixels, memory = source(image), _checked_memory(memory)
    if 0 in pixels.size:
        return Frames.empty()
    frames, _ = _find(
        pixels,
        _allowed(_checked_mask(mask, pixels.size)),
        options,
        0.0,
        lambda ladder, maps: np.zeros((len(maps), 0)),
        memory,
    )
    _advise(image, len(frames), options)
    return frames


@threads.single_threaded_blas
def describe(
    image: ArrayLike,
    frames: Frames,
    descriptor: str | Descriptor | Kernel = "caloric",
    *,
    device: str = "cpu",
    layout: Layout | None = None,
    normalisation: Normalisation | None = None,
    dtype: DTypeLike = "float32",
    domain_sizes: int | Sequence[float] | None = None,
    memory: int = tiles.MEMORY,
    **parameters: float,
) -> NDArray[np.generic]:
    """Describe an image at given frames, from any detector.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4)
        uint8, uint16, bool, or floats in [0, 1]; colours in RGB order.
    frames : Frames
        n frames; see ``Frames.from_opencv``, ``from_colmap``, ``from_laf``.
    descriptor : str, Descriptor or Kernel
        One of :func:`descriptors`, a recipe of your own, or a kernel.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    layout : Grid or Rings, optional
        Replaces the recipe's layout.
    normalisation : "none", "l2", "clip" or "root", optional
        Replaces the recipe's normalisation.
    dtype : "float32", "float64" or "uint8"
        The type of the descriptors, which are computed in float32.
    domain_sizes : int or sequence of float, optional
        DSP-SIFT by resampling, for any descriptor: each frame is described at several relative
        sizes and the mean is taken. A number n stands for COLMAP's n sizes from 1/6 to 3 (COLMAP's
        default is 10).
    memory : int
        Bytes to work in on the CPU, where a larger image is processed in tiles. A device takes an
        image as a whole, and one that does not fit goes to the CPU.
    **parameters : float
        Parameters of the kernel that replace the recipe's, such as ``sigma_d``.

    Returns
    -------
    ndarray (n, d)
        One descriptor per frame.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> frames = caloric.detect(image, max_features=50)
    >>> caloric.describe(image, frames).shape
    (50, 128)
    """
    recipe = recipe_from(descriptor, layout, normalisation, parameters, describe)
    output, sizes = output_type(dtype, recipe), relative_sizes(domain_sizes)
    target = devices.resolve(device)
    if not isinstance(frames, Frames):
        raise InputError("frames must be caloric.Frames; see Frames.from_opencv and its siblings")
    pixels, memory = source(image), _checked_memory(memory)
    if 0 in pixels.size or len(frames) == 0:
        return np.zeros((len(frames), recipe.dimension), output)
    read = _with_checked_range(pixels.read, recipe.kernel)
    if target is not None:
        from caloric.gpu import batches

        plan = Plan(recipe, sizes=sizes, output=output)
        whole = read(*(slice(0, n) for n in pixels.size))
        on_device = batches.describe_frames(whole, frames.maps, plan, target)
        if on_device is not None:
            return on_device.astype(output, copy=False)
    result = np.zeros((len(frames), recipe.dimension), output)
    stretch = float((np.linalg.norm(frames.maps[:, :, :2], 2, (1, 2)) / frames.sigma).max())
    margin = tiles.halo(recipe.sampling.farthest() * stretch)

    def has_frames(tile: tiles.Tile) -> bool:
        return bool(tile.owns(frames.xy).any())

    for tile, space in tiles.spaces(read, pixels.size, margin, memory, has_frames):
        rows = tile.owns(frames.xy)
        result[rows] = describe_levels(space.ladder(), frames.maps[rows], recipe, sizes, output)
        del space  # the next tile takes its memory
    return result


@overload
def extract(
    image: list[Any] | tuple[Any, ...],
    descriptor: str | Descriptor | Kernel = ...,
    *,
    max_features: int | None = ...,
    mask: Any = ...,
    device: str = ...,
    affine: bool = ...,
    upright: bool = ...,
    detector: Detector = ...,
    contrast: float | None = ...,
    edge: float = ...,
    layout: Layout | None = ...,
    normalisation: Normalisation | None = ...,
    dtype: DTypeLike = ...,
    domain_sizes: int | Sequence[float] | None = ...,
    views: int | None = ...,
    on_device: bool = ...,
    memory: int = ...,
    **parameters: float,
) -> list[Features]: ...


@overload
def extract(
    image: ArrayLike,
    descriptor: str | Descriptor | Kernel = ...,
    *,
    max_features: int | None = ...,
    mask: Any = ...,
    device: str = ...,
    affine: bool = ...,
    upright: bool = ...,
    detector: Detector = ...,
    contrast: float | None = ...,
    edge: float = ...,
    layout: Layout | None = ...,
    normalisation: Normalisation | None = ...,
    dtype: DTypeLike = ...,
    domain_sizes: int | Sequence[float] | None = ...,
    views: int | None = ...,
    on_device: bool = ...,
    memory: int = ...,
    **parameters: float,
) -> Features: ...


@threads.single_threaded_blas
def extract(
    image: Any,
    descriptor: str | Descriptor | Kernel = "caloric",
    *,
    max_features: int | None = detection.FEATURES,
    mask: Any = None,
    device: str = "cpu",
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float | None = None,
    edge: float = extrema.EDGE,
    layout: Layout | None = None,
    normalisation: Normalisation | None = None,
    dtype: DTypeLike = "float32",
    domain_sizes: int | Sequence[float] | None = None,
    views: int | None = None,
    on_device: bool = False,
    memory: int = tiles.MEMORY,
    **parameters: float,
) -> Features | list[Features]:
    """Detect frames and describe them, over one scale space.

    Parameters
    ----------
    image : array, or list of arrays, or tensor (b, c, h, w)
        See :func:`detect`. A list or a batch gives a list of features; on a GPU images of one size
        are processed together.
    descriptor : str, Descriptor or Kernel
        See :func:`describe`.
    max_features : int or None
        Keep this many features per image, the strongest. None for all that reach the contrast.
    mask : array (h, w), or list of arrays, optional
        Non-zero where features may be; for several images a list with one mask or None for each.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    affine, upright, detector, contrast, edge
        See :func:`detect`.
    layout, normalisation, dtype, domain_sizes, **parameters
        See :func:`describe`.
    views : 2, 4 or 8, optional
        Also take features from simulated views with tilts up to this number, so that planes seen
        from aside can be matched. Each view adds up to 1,500 features divided by its tilt, fewer if
        ``max_features`` is less, and as many as there are if it is None; all are in the coordinates
        of the image, those of the image itself first. Not with ``upright``.
    on_device : bool
        Leave the features on the device, as :class:`caloric.interop.torch.DeviceFeatures`, which
        :func:`match` takes as well. Not with ``views``.
    memory : int
        Bytes to work in on the CPU, where a larger image is processed in tiles. A device takes an
        image as a whole, and one that does not fit goes to the CPU.

    Returns
    -------
    Features, or list of Features
        Frames and descriptors (n, d) of each image, strongest first. From a device, descriptors of
        up to eight images of a list share memory, which is free when none of them is used any more.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> features = caloric.extract(image, max_features=50)
    >>> features.descriptors.shape, features.frames.xy.shape
    ((50, 128), (50, 2))
    """
    recipe = recipe_from(descriptor, layout, normalisation, parameters, extract)
    options = Options(max_features, affine, upright, detector, contrast, edge)
    tilt = simulated.largest_tilt(views)
    plan = Plan.of(descriptor, recipe, options, domain_sizes, dtype, tilt)
    many = several(image)
    images, masks = ([image], [mask]) if many is None else (many, _each_mask(mask, len(many)))
    results: dict[int, Features] = {}
    memory, pairs = _checked_memory(memory), zip(images, masks, strict=True)
    each = (
        _extract_to_stay(pairs, plan, device, memory)
        if on_device
        else extract_each(pairs, plan, device, memory)
    )
    for index, result in each:
        if isinstance(result, Failure):
            raise InputError(result.reason)
        results[index] = result
    return [results[i] for i in range(len(images))] if many is not None else results[0]


def extract_each(
    images: Iterable[tuple[Any, Any]], plan: Plan, device: str, memory: int
) -> Iterator[tuple[int, Features | Failure]]:
    """Yield (index, features) of images with their masks, or why there are none.

    ``images`` yields (image, mask or None); an image that could not be read is a
    :class:`Failure`, which is passed on. On a device images of one size go together, so results
    come in any order; an image that does not fit into the device's memory is processed on the CPU.
    """
    target = devices.resolve(device)
    if plan.views > 1:
        yield from _extract_views(images, plan, device, memory)
        return
    if target is not None:
        yield from _extract_on_device(target, images, plan, memory)
        return
    for index, (image, mask) in enumerate(images):
        result = _or_failure(image, partial(_extract_one, image, mask, plan, memory))
        if isinstance(result, Features):
            _advise(image, len(result), plan.options)
        yield index, result


def _extract_to_stay(
    images: Iterable[tuple[Any, Any]], plan: Plan, device: str, memory: int
) -> Iterator[tuple[int, Any]]:
    """Yield features that stay on a device."""
    target = devices.resolve(device)
    if target is None or plan.views > 1:
        raise InputError("on_device=True needs a device, such as 'cuda', and no views")
    yield from _extract_on_device(target, images, plan, memory, stay=True)


def _extract_views(
    images: Iterable[tuple[Any, Any]], plan: Plan, device: str, memory: int
) -> Iterator[tuple[int, Features | Failure]]:
    """Yield the features of all views of each image; a device works on the next one meanwhile."""

    def finished(index: int, image: Any, begun: Any) -> tuple[int, Features | Failure]:
        result = begun if isinstance(begun, Failure) else _or_failure(image, begun)
        if isinstance(result, Features):
            _advise(image, len(result), plan.options)
        return index, result

    tilts = (1, *plan.tilts)
    last = None
    for index, (image, mask) in enumerate(images):
        begin = partial(begin_views, image, mask, plan, tilts, device, memory)
        begun = index, image, _or_failure(image, begin)
        if last is not None:
            yield finished(*last)
        last = begun
    if last is not None:
        yield finished(*last)


def begin_views(
    image: Any, mask: Any, plan: Plan, tilts: Sequence[int], device: str, memory: int
) -> Callable[[], Features]:
    """Begin to extract all views of an image with these tilts; 1 is the image itself.

    The result returns their features. A device works meanwhile, the CPU begins only then.
    """
    target = devices.resolve(device)
    on_device = None if target is None else _begin_on_device(target, image, mask, plan, tilts)

    def features() -> Features:
        parts, left = ([], tilts) if on_device is None else on_device()
        if left:
            others = _views(image, mask, plan, left, memory)
            parts = others + parts if 1 in left else parts + others  # the image itself is first
        return joined_features(parts)

    return features


@threads.single_threaded_blas
def _views(image: Any, mask: Any, plan: Plan, tilts: Sequence[int], memory: int) -> list[Features]:
    pixels = source(image)
    if 0 in pixels.size:
        return [plan.empty(pixels.size)]
    allowed = _allowed(_checked_mask(mask, pixels.size))
    pixels = replace(pixels, read=_with_checked_range(pixels.read, plan.recipe.kernel))
    parts = []
    if 1 in tilts:
        parts.append(plan.features(*_found(pixels, allowed, plan, memory), pixels.size))
    factor = simulated.reduction(pixels.size)
    small = simulated.reduced(pixels, factor)
    views = [view for tilt in tilts if tilt > 1 for view in simulated.turns(tilt, small.size)]
    if not views:
        return parts or [plan.empty(pixels.size)]
    # All views read it, so that it is reduced once, in strips: the image itself may not fit.
    h, w = small.size
    grey = np.concatenate(
        [small.read(slice(r.start, r.stop), slice(0, w)) for r in threads.strips(h)]
    )
    small = Source(small.size, lambda rows, columns: grey[rows, columns])
    share = memory // min(threads.count(), len(views))

    def of_view(view: View) -> Features:
        found = _of_view(small, factor, pixels.size, allowed, plan.of_tilt(view.tilt), view, share)
        return plan.features(*found, pixels.size)

    return parts + threads.each(of_view, views)


def _of_view(
    image: Source,
    factor: int,
    size: tuple[int, int],
    allowed: Allowed | None,
    plan: Plan,
    view: View,
    memory: int,
) -> tuple[Frames, NDArray[np.generic]]:
    """Return what is found in a view of a reduced image, in coordinates of that of ``size``."""
    back = simulated.enlarged(view.to_image(image.size), factor)

    def visible(xy: FloatArray) -> NDArray[np.bool_]:
        xy = xy @ back[:, :2].T + back[:, 2]
        inside = simulated.inside(xy, size)
        return inside if allowed is None else inside & allowed(xy)

    frames, values = _found(simulated.seen(image, view), visible, plan, memory)
    return frames.moved(back), values


def _begin_on_device(
    device: Any, image: Any, mask: Any, plan: Plan, tilts: Sequence[int]
) -> Callable[[], tuple[list[Features], list[int]]]:
    """Begin with the views of an image.

    The result returns their features, and the tilts of those that do not fit into the device.
    """
    from caloric.gpu import upload
    from caloric.gpu import views as on_device

    prepared = upload.prepared(image)
    size = upload.Kind.of(prepared).size
    wanted = _checked_mask(mask, size)
    if 0 in size:
        return lambda: ([plan.empty(size)], [])
    sent = on_device.uploaded(prepared, wanted, plan.recipe.kernel, device)
    if sent is None:
        return lambda: ([], list(tilts))
    factor = simulated.reduction(size)
    begun = []
    for tilt in tilts:
        by = 1 if tilt == 1 else factor
        turns = simulated.turns(tilt, (size[0] // by, size[1] // by))
        if turns:
            begun.append((tilt, on_device.begin(*sent, by, turns, plan.of_tilt(tilt), device)))

    def features() -> tuple[list[Features], list[int]]:
        parts, left = [], []
        for tilt, running in begun:
            found = None if running is None else running.features(size)
            if found is None:
                left.append(tilt)
            else:
                parts.append(found)
        return parts or ([] if left else [plan.empty(size)]), left

    return features


def joined_features(parts: Sequence[Features]) -> Features:
    """Return the features of several views of one image.

    All of the first are kept, and of others that are alike in place and shape one.
    """
    maps = np.concatenate([part.frames.maps for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    rows = simulated.new_shapes(maps, len(parts[0]))
    descriptors = np.empty((len(rows), parts[0].descriptors.shape[1]), parts[0].descriptors.dtype)
    begins = np.cumsum([0, *map(len, parts)])
    cuts = np.searchsorted(rows, begins)

    def copy(part: tuple[int, range]) -> None:
        number, some = part
        chosen = rows[some.start : some.stop] - begins[number]
        to = descriptors[some.start : some.stop]
        np.take(parts[number].descriptors, chosen, axis=0, out=to, mode="clip")

    strips = [
        (number, range(cuts[number] + strip.start, cuts[number] + strip.stop))
        for number in range(len(parts))
        for strip in threads.strips(int(cuts[number + 1] - cuts[number]), 2048)
    ]
    threads.each(copy, strips)
    views = max(part.views for part in parts)
    frames = Frames.unchecked(maps[rows], scores[rows])
    return replace(parts[0], frames=frames, descriptors=descriptors, views=views)


def _advise(image: Any, found: int, options: Options) -> None:
    """Log a line if there are few features because the image uses little of its range."""
    why = None
    if found < max(_FEW, (options.max_features or 0) // 2):
        why = unused_range(image)
    if why is None and found < _FEW:
        why = low_contrast(image)
    if why is not None:
        size = " x ".join(map(str, np.shape(image)[1::-1]))
        _log.warning("only %d features in an image of %s: %s", found, size, why)


def _extract_one(image: Any, mask: Any, plan: Plan, memory: int) -> Features:
    (features,) = _views(image, mask, plan, (1,), memory)
    return features


def _found(
    image: Source, allowed: Allowed | None, plan: Plan, memory: int
) -> tuple[Frames, NDArray[np.generic]]:
    recipe = plan.recipe
    return _find(
        image,
        allowed,
        plan.options,
        recipe.sampling.farthest(),
        lambda ladder, maps: describe_levels(ladder, maps, recipe, plan.sizes, plan.output),
        memory,
    )


def _extract_on_device(
    device: Any, images: Iterable[tuple[Any, Any]], plan: Plan, memory: int, stay: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yield (index, features) of images; with ``stay`` features stay on the device."""
    from caloric.gpu import batches
    from caloric.gpu import upload as on_device
    from caloric.gpu.download import sent

    if plan.options.detector != "dog":
        raise InputError(f"detector {plan.options.detector!r} needs device='cpu'")
    pending: dict[int, tuple[Any, Any]] = {}  # an image that does not fit is needed again
    early: list[tuple[int, Any]] = []

    def checked(image: Any, mask: Any) -> batches.Item:
        pixels = on_device.prepared(image)
        return pixels, _checked_mask(mask, on_device.Kind.of(pixels).size)

    def items() -> Iterator[tuple[int, batches.Item]]:
        for index, (image, mask) in enumerate(images):
            item = _or_failure(image, partial(checked, image, mask))
            if isinstance(item, Failure):
                early.append((index, item))
            elif 0 in item[0].shape:
                early.append((index, placed(plan.empty(on_device.Kind.of(item[0]).size))))
            else:
                pending[index] = (image, mask)
                yield index, item

    def placed(result: Features | Failure) -> Any:
        return sent(result, device) if stay and isinstance(result, Features) else result

    for index, result in batches.extract_all(items(), plan, device, stay):
        yield from early
        early.clear()
        image, mask = pending.pop(index)
        if result is None:
            result = _or_failure(image, partial(_extract_one, image, mask, plan, memory))
            result = placed(result)
        if isinstance(result, Features):
            _advise(image, len(result), plan.options)
        yield index, result
    yield from early


def _or_failure(image: Any, work: Callable[[], R]) -> R | Failure:
    if isinstance(image, Failure):
        return image
    try:
        return work()
    except InputError as error:
        return Failure(str(error))
    except MemoryError:
        return Failure("not enough memory")


@dataclass(frozen=True, eq=False)
class _Part:
    """The features of a tile: the extremum of each, its frame and its descriptor."""

    extrema: Extrema
    maps: FloatArray
    values: NDArray[np.generic]


def _find(
    image: Source,
    allowed: Allowed | None,
    options: Options,
    farthest: float,
    describe: Callable[[Ladder, FloatArray], NDArray[np.generic]],
    memory: int,
) -> tuple[Frames, NDArray[np.generic]]:
    """Return frames and descriptors of an image, computed tile by tile; the same for any tiles.

    ``farthest`` is how far ``describe`` reads around a frame: see Sampling.farthest.
    """
    farthest = max(farthest * options.stretch, options.farthest)
    strongest = Strongest(options.max_features)
    whole = None
    if options.detector == "opencv":
        whole = detection.by_opencv(image.read(*(slice(0, n) for n in image.size)), options)
    parts = []
    for tile, space in tiles.spaces(image.read, image.size, tiles.halo(farthest), memory):
        peaks = extrema.extrema(space, options.lowest, options.edge) if whole is None else whole
        peaks = peaks[tile.owns(peaks.xy)]
        if allowed is not None:
            peaks = peaks[allowed(peaks.xy)]
        peaks = strongest.select(peaks)
        ladder = space.ladder()
        maps, rows = detection.frames(ladder, peaks, options)
        parts.append(_Part(peaks[rows], maps, describe(ladder, maps)))
        del space, ladder  # the next tile takes their memory
    return _merged(parts, options.max_features)


def _merged(parts: list[_Part], most: int | None) -> tuple[Frames, NDArray[np.generic]]:
    """Return the strongest features of all tiles; those of one tile are in order already."""
    if len(parts) == 1:
        part, scores = parts[0], parts[0].extrema.response[:most].astype(np.float32)
        return Frames(part.maps[:most], scores), part.values[:most]
    peaks = joined([part.extrema for part in parts])
    order = peaks.order()[:most]
    # Straight to their places: the descriptors of a large image are most of the memory.
    place = np.full(len(peaks), -1)
    place[order] = np.arange(len(order))
    maps = np.empty((len(order), 2, 3))
    values = np.empty((len(order), *parts[0].values.shape[1:]), parts[0].values.dtype)
    for part in parts:
        rows, place = place[: len(part.maps)], place[len(part.maps) :]
        maps[rows[rows >= 0]] = part.maps[rows >= 0]
        values[rows[rows >= 0]] = part.values[rows >= 0]
    return Frames(maps, peaks.response[order].astype(np.float32)), values


def _checked_mask(mask: ArrayLike | None, size: tuple[int, int]) -> NDArray[np.bool_] | None:
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.shape != size:
        raise InputError(f"mask: shape {array.shape} is not the image's {size}")
    return np.asarray(array != 0)


def _each_mask(mask: Any, count: int) -> list[Any]:
    if mask is None:
        return [None] * count
    if not isinstance(mask, list | tuple) or len(mask) != count:
        raise InputError(f"mask: {count} images need a list of {count} masks, or None")
    return list(mask)


def _allowed(mask: NDArray[np.bool_] | None) -> Allowed | None:
    """Return which places (n, 2) a mask allows, as a function of them."""
    if mask is None:
        return None
    h, w = mask.shape

    def allowed(xy: FloatArray) -> NDArray[np.bool_]:
        column = np.clip(np.rint(xy[:, 0]).astype(int), 0, w - 1)
        row = np.clip(np.rint(xy[:, 1]).astype(int), 0, h - 1)
        return np.asarray(mask[row, column])

    return allowed


def _checked_memory(memory: int) -> int:
    number = isinstance(memory, numbers.Real) and not isinstance(memory, bool)
    if not number or not 0 < memory < np.inf:
        raise InputError(f"memory must be a number of bytes, got {memory!r}")
    return int(memory)


def _with_checked_range(read: tiles.Read, kernel: Kernel) -> tiles.Read:
    """Return ``read`` with an error for intensities that the kernel cannot use."""

    def checked(rows: slice, columns: slice) -> NDArray[np.float32]:
        pixels = read(rows, columns)
        check_range(pixels, kernel)
        return pixels

    return checked


@overload
def match(
    features_a: Sequence[tuple[Any, Any]],
    features_b: None = ...,
    *,
    mutual: bool = ...,
    ratio: float | None = ...,
    radius: float = ...,
    device: str = ...,
) -> list[Matches]: ...


@overload
def match(
    features_a: Any,
    features_b: Any,
    *,
    mutual: bool = ...,
    ratio: float | None = ...,
    radius: float = ...,
    refine: bool = ...,
    images: tuple[ArrayLike, ArrayLike] | None = ...,
    device: str = ...,
) -> Matches: ...


@known_options
@threads.single_threaded_blas
def match(
    features_a: Any,
    features_b: Any = None,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    radius: float = 10.0,
    refine: bool = False,
    images: tuple[ArrayLike, ArrayLike] | None = None,
    device: str = "cpu",
) -> Matches | list[Matches]:
    """Match the descriptors of two images by exact nearest neighbours.

    Of features from simulated views one match is kept per place.

    Parameters
    ----------
    features_a, features_b : Features, or array (n, d)
        What to match. Or a list of pairs of them in place of the first, which gives a list of
        matches: a device searches them together, and gets the features of each image once.
    mutual : bool
        Keep a match only if each is the nearest of the other.
    ratio : float, optional
        Keep a match only if its distance is below this share of the distance to the nearest other
        descriptor. Between two :class:`Features` "other" means farther than ``radius`` pixels from
        the first; where one is a bare array, it is the second nearest. None keeps all.
    radius : float
        See ``ratio``.
    refine : bool
        Move the second frame of each match to sub-pixel, affine-corrected agreement with the first:
        ``Matches.refined``, which :func:`verify` uses. Needs ``images``. Not for a list of pairs.
    images : (image_a, image_b), optional
        The two images, for ``refine``.
    device : str
        Where to search for neighbours and to refine: "cpu", "cuda", "cuda:1" or "auto".

    Returns
    -------
    Matches, or list of Matches
        ``indices`` (m, 2), ``distances`` (m,) and, if refined, ``refined`` (m, 2, 3) and
        ``covariances`` (m, 2, 2).

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a = caloric.extract(image, max_features=50)
    >>> b = caloric.extract(image[:, ::-1], max_features=50)
    >>> caloric.match(a, b).indices.shape[1]
    2
    >>> len(caloric.match([(a, b), (b, a), (a, a)]))
    3
    """
    if features_b is None:
        if refine:
            raise InputError("refine=True takes one pair at a time")
        return _match_pairs(_checked_pairs(features_a), mutual, ratio, radius, device)
    pair = features_a, features_b
    both = all(isinstance(features, Features) for features in pair)
    if refine and (not both or images is None or len(images) != 2):
        raise InputError("refine=True needs two caloric.Features and images=(image_a, image_b)")
    (matches,) = _match_pairs([pair], mutual, ratio, radius, device)
    if not refine or images is None:
        return matches
    return _refined(features_a, features_b, matches, images, device)


def _checked_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """Return a list of pairs, or raise an error if it is something else."""
    several = isinstance(pairs, list | tuple)
    if not several or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise InputError("match takes two caloric.Features or arrays, or one list of such pairs")
    return [(a, b) for a, b in pairs]


def _match_pairs(
    pairs: list[tuple[Any, Any]], mutual: bool, ratio: float | None, radius: float, device: str
) -> list[Matches]:
    target = devices.resolve(device)
    check_options(ratio, radius)
    for a, b in pairs:
        if _described(a) and _described(b):
            check_comparable(_about(a), _about(b))
    if target is None:
        return [_match_on_cpu(a, b, mutual, ratio, radius) for a, b in pairs]
    from caloric.gpu import matching as on_device

    found = on_device.match(pairs, mutual, ratio, radius, target)
    return [_once_per_place(a, b, m) for (a, b), m in zip(pairs, found, strict=True)]


def _described(features: Any) -> bool:
    """Return whether these are features with places, on the host or on a device."""
    return isinstance(features, Features) or hasattr(features, "to_host")


def _about(features: Any) -> Features:
    about: Features = features if isinstance(features, Features) else features.about
    return about


def _match_on_cpu(a: Any, b: Any, mutual: bool, ratio: float | None, radius: float) -> Matches:
    a, b = (f.to_host() if hasattr(f, "to_host") else f for f in (a, b))
    both = isinstance(a, Features) and isinstance(b, Features)
    left, right = (f.descriptors if isinstance(f, Features) else f for f in (a, b))
    xy_b = b.frames.xy if both else None
    matches = match_descriptors(left, right, mutual=mutual, ratio=ratio, xy_b=xy_b, radius=radius)
    return _once_per_place(a, b, matches)


def _once_per_place(a: Any, b: Any, matches: Matches) -> Matches:
    """Return one match per place if features are from simulated views."""
    if not (isinstance(a, Features) and isinstance(b, Features)) or max(a.views, b.views) == 1:
        return matches
    return matches[one_per_place(matches, a.frames.xy, b.frames.xy)]


def _descent(device: str) -> refinement.Descent:
    target = devices.resolve(device)
    if target is None:
        return refinement.descend
    from caloric.gpu import refinement as on_device

    return partial(on_device.descend, device=target)


def _refined(
    a: Features,
    b: Features,
    matches: Matches,
    images: tuple[ArrayLike, ArrayLike],
    device: str,
) -> Matches:
    pixels = [to_grey(image) for image in images]
    for name, grey, features in zip("ab", pixels, (a, b), strict=True):
        if grey.shape != features.image_size:
            raise InputError(
                f"images: {name} has shape {grey.shape}, its features are of {features.image_size}"
            )
    maps_a, maps_b = a.frames.maps[matches.indices[:, 0]], b.frames.maps[matches.indices[:, 1]]
    moved = refinement.refine(pixels[0], pixels[1], maps_a, maps_b, _descent(device))
    return replace(matches, refined=moved.maps, covariances=moved.covariances)


POINT_SIGMA = 2.5  # pixels, of points that have no scale


@known_options
@threads.single_threaded_blas
def refine(
    image_a: ArrayLike,
    image_b: ArrayLike,
    frames_a: Features | Frames | ArrayLike | Sequence[Any],
    frames_b: Features | Frames | ArrayLike | Sequence[Any],
    *,
    sigma: float = POINT_SIGMA,
    device: str = "cpu",
) -> Refined:
    """Move the second of matched frames or points to sub-pixel agreement with the first.

    For anyone's matches: row i of ``frames_a`` was matched to row i of ``frames_b``. The template
    of a match is the gradient field around its first frame; the second frame is moved, turned and
    stretched until its field agrees.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4)
        The upload.
    frames_a, frames_b : Frames, Features, keypoints of OpenCV, or array (m, 2) or (m, 2, 3)
        As many in both. Points (m, 2) get round, upright frames.
    sigma : float
        σ of the frames of points, in pixels.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".

    Returns
    -------
    Refined
        ``xy`` (m, 2) and ``maps`` (m, 2, 3) in the second image, ``moved`` (m,), and
        ``covariances`` (m, 2, 2). A frame is left as it was if it would move by more than its σ, be
        stretched by more than 1.7 or agree less than before, or if the place is flat.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from scipy.ndimage import gaussian_filter
    >>> image = gaussian_filter(np.random.default_rng(0).random((80, 90)), 2)
    >>> image = (image - image.min()) / np.ptp(image)
    >>> found = caloric.refine(image, image[:, 5:], [[40.0, 30.0]], [[35.6, 29.5]], sigma=3)
    >>> np.abs(found.xy - [35, 30]).max() < 0.05
    np.True_
    """
    if not (isinstance(sigma, numbers.Real) and 0 < sigma < np.inf):
        raise InputError(f"sigma must be a positive number of pixels, got {sigma!r}")
    a, b = (
        _maps_of(frames, which, float(sigma))
        for frames, which in ((frames_a, "frames_a"), (frames_b, "frames_b"))
    )
    if len(a) != len(b):
        raise InputError(f"{len(a)} frames_a but {len(b)} frames_b: row i matches row i")
    descent = _descent(device)
    return refinement.refine(to_grey(image_a), to_grey(image_b), a, b, descent)


def _maps_of(frames: Any, which: str, sigma: float) -> FloatArray:
    """Return the maps (m, 2, 3) of frames, keypoints or points."""
    if isinstance(frames, Features):
        return frames.frames.maps
    if isinstance(frames, Frames):
        return frames.maps
    if isinstance(frames, np.ndarray) and frames.dtype == object:
        frames = frames.tolist()
    if isinstance(frames, list | tuple) and frames and hasattr(frames[0], "pt"):
        return Frames.from_opencv(frames).maps
    try:
        array = np.asarray(frames, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{which}: expected Frames, OpenCV's keypoints, or numbers (m, 2) or (m, 2, 3)"
        ) from None
    if array.shape == (0,):
        array = array.reshape(0, 2)
    if array.shape[1:] == (2, 3):
        return Frames(array, np.zeros(len(array), np.float32)).maps
    if array.shape[1:] != (2,):
        raise InputError(
            f"{which}: expected Frames, OpenCV's keypoints, (m, 2) or (m, 2, 3), got {array.shape}"
        )
    return Frames.from_xysa(array[:, 0], array[:, 1], np.full(len(array), sigma)).maps


@known_options
def verify(
    features_a: Features | Frames,
    features_b: Features | Frames,
    matches: Matches,
    *,
    model: GeometryModel = "homography",
    seed: int = 0,
    threshold: float = 2.0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """Estimate the geometry that most matches agree on.

    Parameters
    ----------
    features_a, features_b : Features or Frames
        What was matched.
    matches : Matches
        The result of :func:`match`; refined places are used if there are any, and weighed by their
        covariances.
    model : "homography", "affine", "fundamental" or "essential"
        What maps points of the first image to points or lines of the second.
    seed : int
        Seed of the random sampling.
    threshold : float
        The largest residual of an inlier, in pixels.
    intrinsics : (K_a, K_b), optional
        Calibration matrices (3, 3), which "essential" needs.

    Returns
    -------
    Geometry
        ``matrix`` (3, 3) or None, ``inliers`` (m,), ``residuals`` (m,) and ``confidence``. It is
        true in a condition if it is more likely right than not.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a, b = caloric.extract([image, image])
    >>> geometry = caloric.verify(a, b, caloric.match(a, b))
    >>> np.allclose(geometry.matrix / geometry.matrix[2, 2], np.eye(3), atol=1e-3)
    True
    """
    if not isinstance(matches, Matches):
        raise InputError("matches must be what caloric.match returns; points: geometry.estimate")
    a, b = (f.frames if isinstance(f, Features) else f for f in (features_a, features_b))
    for frames, column in ((a, 0), (b, 1)):
        used = matches.indices[:, column]
        if len(used) and not 0 <= used.min() <= used.max() < len(frames):
            raise InputError("matches refer to features that do not exist; are they of this pair?")
    first, second = a.maps[matches.indices[:, 0]], matches.refined
    if second is None:
        second = b.maps[matches.indices[:, 1]]
    return geometry.estimate(
        first[:, :, 2],
        second[:, :, 2],
        model=model,
        seed=seed,
        threshold=threshold,
        intrinsics=intrinsics,
        size=features_b.image_size if isinstance(features_b, Features) else None,
        size_a=features_a.image_size if isinstance(features_a, Features) else None,
        covariances=matches.covariances,
        frames=(first, second),
    )
