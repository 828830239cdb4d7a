"""The one pipeline: image, frames, density, table, descriptor; then matches and geometry."""

import json
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from caloric.descriptor import density, normalise, pooling, whitening
from caloric.descriptor.layout import Layout
from caloric.descriptor.normalise import Normalisation
from caloric.descriptor.recipes import Descriptor, descriptor
from caloric.descriptor.sampling import SquarePatch
from caloric.detector import detection, extrema
from caloric.detector.detection import Detector, Options, Strongest
from caloric.detector.extrema import Extrema, joined
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import scalespace, tiles
from caloric.image.pixels import Source, as_array, as_unit_range, several, source, to_grey
from caloric.kernels import Kernel
from caloric.matching import geometry, refinement
from caloric.matching.geometry import Geometry, Model
from caloric.matching.neighbours import Finder, Matches, match_descriptors, neighbours
from caloric.runtime import threads
from caloric.runtime.files import replacing
from caloric.theory.gaussians import FloatArray

R = TypeVar("R")

_BLOCK = 256
_FORMAT = 2


@dataclass(frozen=True, eq=False)
class Features:
    """What an image is known by: frames, a descriptor of each (n, d), and the image's (h, w).

    ``descriptor`` is the name of what they were described by, ``recipe`` the fingerprint of all its
    parameters: only features of one recipe can be compared.
    """

    frames: Frames
    descriptors: NDArray[np.generic]
    image_size: tuple[int, int]
    descriptor: str
    recipe: str

    def __post_init__(self) -> None:
        """As many descriptors as frames."""
        if self.descriptors.ndim != 2 or len(self.descriptors) != len(self.frames):
            raise InputError(
                f"features: {len(self.frames)} frames but descriptors of shape "
                f"{self.descriptors.shape}"
            )

    def __repr__(self) -> str:
        """In one line."""
        h, w = self.image_size
        kind = f"{self.descriptors.shape[1]}-d {self.descriptors.dtype}"
        return f"Features({len(self)} of {self.descriptor!r}, {kind}, image {w} x {h})"

    def __len__(self) -> int:
        """The number of features."""
        return len(self.frames)

    @property
    def scores(self) -> NDArray[np.float32]:
        """The strength of each frame."""
        return self.frames.scores

    def save(self, path: str | Path) -> None:
        """Write an .npz file: whole, or not at all."""
        about = json.dumps(
            {
                "format": _FORMAT,
                "descriptor": self.descriptor,
                "recipe": self.recipe,
                "size": self.image_size,
            }
        )
        with replacing(Path(path)) as file:
            np.savez(
                file,
                maps=self.frames.maps,
                scores=self.scores,
                descriptors=self.descriptors,
                about=np.frombuffer(about.encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: str | Path) -> "Features":
        """Read what :meth:`save` wrote. Nothing in the file is executed."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                about = json.loads(bytes(stored["about"]))
                frames = Frames(stored["maps"], stored["scores"])
                values = np.asarray(stored["descriptors"])
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']}, this version reads {_FORMAT}")
            size = (int(about["size"][0]), int(about["size"][1]))
            return cls(frames, values, size, str(about["descriptor"]), str(about["recipe"]))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except Exception as error:
            # NumPy's advice to load what it does not know as a pickle is bad advice.
            reason = "unknown format" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a file of features ({reason})") from None


def _recipe(
    name: str | Descriptor | Kernel,
    layout: Layout | None,
    normalisation: Normalisation | None,
    parameters: dict[str, float],
) -> Descriptor:
    recipe = descriptor(name, **parameters)
    if layout is not None:
        if not isinstance(layout, Layout):
            raise InputError(f"layout must be a Grid or Rings, got {layout!r}")
        # What was learned was learned for the recipe as it is.
        recipe = replace(recipe, layout=layout, whitening=None, dimensions=None)
    if normalisation is None or normalisation == recipe.normalisation:
        return recipe
    return replace(recipe, normalisation=normalisation, whitening=None, dimensions=None)


def _output(dtype: DTypeLike, recipe: Descriptor) -> str:
    """The name of the output's type, checked."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in ("float32", "float64", "uint8"):
        raise InputError(f"dtype must be float32, float64 or uint8, got {dtype!r}")
    if name == "uint8" and recipe.normalisation == "none":
        raise InputError("uint8 needs a normalised descriptor: use l2, clip or root")
    return name


def _finish(raw: density.Floats, recipe: Descriptor, output: str) -> NDArray[np.generic]:
    """Normalised, whitened, of the type asked for; in blocks, on several threads."""
    whiten = None
    if recipe.whitening is not None:
        whiten = whitening.by(whitening.load(recipe.whitening)[:, : recipe.dimension])

    def block(rows: range) -> NDArray[np.generic]:
        result = normalise.normalise(raw[rows.start : rows.stop], recipe.normalisation)
        if whiten is not None:
            result = whiten(result)
        if output == "uint8":
            return normalise.to_uint8(result, signed=whiten is not None)
        return result.astype(output, copy=False)

    parts = threads.each(block, threads.strips(len(raw), 2 * _BLOCK))
    return np.concatenate(parts) if parts else np.zeros((0, recipe.dimension), output)


def _patches(patches: object, dtype: str) -> NDArray[np.floating]:
    array = as_array(patches, "patches")
    if array.ndim != 3:
        raise InputError(f"patches: expected shape (n, S, S), got {array.shape}")
    if array.shape[1] != array.shape[2]:
        raise InputError(
            f"patches: expected squares, got {array.shape[1]} rows of {array.shape[2]} pixels"
        )
    if array.shape[1] < 4:
        raise InputError(f"patches: at least 4 x 4 pixels are needed, got {array.shape[1:]}")
    return as_unit_range(patches, "patches", dtype)


def _check_range(pixels: NDArray[np.floating], kernel: Kernel) -> None:
    if kernel.feature == "intensity" and 0 not in pixels.shape:
        low, high = float(pixels.min()), float(pixels.max())
        if low < -1e-3 or high > 1.001:
            raise InputError(
                f"{kernel.name} needs intensities in [0, 1], got {low:g} to {high:g}; rescale them"
            )


def _checked(read: tiles.Read, kernel: Kernel) -> tiles.Read:
    """The same, with intensities that the kernel can use, or an error."""

    def checked(rows: slice, columns: slice) -> NDArray[np.float32]:
        pixels = read(rows, columns)
        _check_range(pixels, kernel)
        return pixels

    return checked


@threads.ours
def describe_patches(
    patches: ArrayLike,
    descriptor: str | Descriptor | Kernel = "heat",
    *,
    layout: Layout | None = None,
    normalisation: Normalisation | None = None,
    dtype: DTypeLike = "float32",
    **parameters: float,
) -> NDArray[np.generic]:
    """Descriptors (n, d) of square grey patches (n, S, S).

    ``descriptor`` is one of :func:`descriptors`, a recipe of your own or a kernel; ``layout``,
    ``normalisation`` ("none", "l2", "clip", "root") and kernel ``parameters`` such as ``sigma_d``
    replace the recipe's. With ``"none"`` the values are those of the integral h(β, x), gradients
    and lengths in patch coordinates [-1, 1]. A patch without gradient has descriptor 0 (the
    distribution fields, which need none, do not). The first call with a recipe makes its table,
    which grows with S² and with narrow kernels.
    """
    recipe = _recipe(descriptor, layout, normalisation, parameters)
    if not isinstance(recipe.sampling, SquarePatch):
        raise InputError(
            "this descriptor samples rings beyond any patch; describe(image, frames) computes it"
        )
    output = _output(dtype, recipe)
    working = "float64" if output == "float64" else "float32"
    pixels = _patches(patches, working)
    _check_range(pixels, recipe.kernel)
    sampling = SquarePatch(pixels.shape[1])
    table = pooling.tabulate(recipe.kernel, recipe.layout, sampling, working, recipe.harmonics)
    raw = np.empty((len(pixels), recipe.layout.dimension), working)
    for start in range(0, len(pixels), _BLOCK):
        part = density.measure(pixels[start : start + _BLOCK], recipe.kernel)
        raw[start : start + _BLOCK] = pooling.pool(part, table)
    return _finish(raw, recipe, output)


def response_map(
    patch: ArrayLike,
    descriptor: str | Descriptor | Kernel = "heat",
    *,
    beta: ArrayLike | None = None,
    size: int | None = None,
    **parameters: float,
) -> FloatArray:
    """h(β, ·) over a whole patch (S, S), as in the paper's figures: (len(beta), size, size).

    ``beta`` are directions, or levels for the distribution fields; by default the recipe's. The sum
    over pixels is exact, with the kernel at every pair of points, so its cost grows with
    (S · size)²: a second for 32 x 32, minutes for 128 x 128.
    """
    recipe = _recipe(descriptor, None, None, parameters)
    array = as_array(patch, "patch")
    if array.ndim != 2:
        raise InputError(f"patch: expected shape (S, S), got {array.shape}")
    pixels = _patches(array[None], "float64")
    _check_range(pixels, recipe.kernel)
    if beta is None:
        angles = recipe.layout.bins(recipe.kernel)
    else:
        angles = np.atleast_1d(np.asarray(beta, np.float64)).ravel()
    if len(angles) == 0 or not np.isfinite(angles).all():
        raise InputError("beta must be one or more finite numbers")
    side = pixels.shape[1] if size is None else size
    if not isinstance(side, int | np.integer) or side < 1:
        raise InputError(f"size must be a whole number from 1, got {size!r}")
    part = density.measure(pixels, recipe.kernel)
    points = SquarePatch(pixels.shape[1]).points()
    maps = pooling.direct_sum(recipe.kernel, angles, SquarePatch(int(side)).points(), part, points)
    return maps.T.reshape(len(angles), side, side)


def _mask(mask: ArrayLike | None, size: tuple[int, int]) -> NDArray[np.bool_] | None:
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.shape != size:
        raise InputError(f"mask: shape {array.shape} is not the image's {size}")
    return np.asarray(array != 0)


def _allowed(xy: FloatArray, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    h, w = mask.shape
    column = np.clip(np.rint(xy[:, 0]).astype(int), 0, w - 1)
    row = np.clip(np.rint(xy[:, 1]).astype(int), 0, h - 1)
    return np.asarray(mask[row, column])


def _memory(memory: int) -> int:
    number = isinstance(memory, numbers.Real) and not isinstance(memory, bool)
    if not number or not 0 < memory < np.inf:
        raise InputError(f"memory must be a number of bytes, got {memory!r}")
    return int(memory)


@dataclass(frozen=True, eq=False)
class _Part:
    """The features of a tile: the extremum of each, its frame and its descriptor."""

    extrema: Extrema
    maps: FloatArray
    values: NDArray[np.generic]


def _find(
    image: Source,
    mask: NDArray[np.bool_] | None,
    options: Options,
    farthest: float,
    describe: Callable[[scalespace.Ladder, FloatArray], NDArray[np.generic]],
    memory: int,
) -> tuple[Frames, NDArray[np.generic]]:
    """The features of an image, tile by tile; the same for any tiles.

    ``farthest`` is the sampling's, for ``describe`` to read as far as it does.
    """
    farthest = max(farthest * options.stretch, options.farthest)
    strongest = Strongest(options.max_features)
    whole = None
    if options.detector == "opencv":
        whole = detection.by_opencv(image.read(*(slice(0, n) for n in image.size)), options)
    parts = []
    for tile, space in tiles.spaces(image.read, image.size, tiles.halo(farthest), memory):
        found = whole
        if found is None:
            found = extrema.extrema(space, options.contrast, options.edge)
        found = found[tile.owns(found.xy)]
        if mask is not None:
            found = found[_allowed(found.xy, mask)]
        found = strongest.of(found)
        ladder = space.ladder()
        maps, rows = detection.frames(ladder, found, options)
        parts.append(_Part(found[rows], maps, describe(ladder, maps)))
        del space, ladder  # the next tile takes their memory
    return _merged(parts, options.max_features)


def _merged(parts: list[_Part], most: int | None) -> tuple[Frames, NDArray[np.generic]]:
    """The strongest of all tiles; those of one are in order already."""
    if len(parts) == 1:
        part, scores = parts[0], parts[0].extrema.response[:most].astype(np.float32)
        return Frames(part.maps[:most], scores), part.values[:most]
    found = joined([part.extrema for part in parts])
    order = found.order()[:most]
    # Straight to where they belong: of a large image the descriptors are most of the memory.
    place = np.full(len(found), -1)
    place[order] = np.arange(len(order))
    maps = np.empty((len(order), 2, 3))
    values = np.empty((len(order), *parts[0].values.shape[1:]), parts[0].values.dtype)
    for part in parts:
        mine, place = place[: len(part.maps)], place[len(part.maps) :]
        maps[mine[mine >= 0]] = part.maps[mine >= 0]
        values[mine[mine >= 0]] = part.values[mine >= 0]
    return Frames(maps, found.response[order].astype(np.float32)), values


@threads.ours
def detect(
    image: ArrayLike,
    *,
    max_features: int | None = None,
    mask: ArrayLike | None = None,
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float = extrema.CONTRAST,
    edge: float = extrema.EDGE,
    memory: int = tiles.MEMORY,
) -> Frames:
    """Frames of an image, strongest first: extrema of the difference of Gaussians.

    Each has one or more dominant orientations, unless ``upright``; ``affine`` adapts its shape to
    the gradients inside it, and leaves round what does not settle. ``mask`` (h, w) is non-zero
    where features may be. ``detector="opencv"`` takes the extrema that OpenCV's SIFT finds.
    ``contrast`` is the least response times three, as OpenCV counts it: lower it for faint texture;
    ``edge`` is the largest ratio of the two curvatures. An image whose scale space takes more than
    ``memory`` bytes is worked on in tiles, with the same result: to the byte by the compiled core,
    to rounding without it and for ``affine``.
    """
    options = Options(max_features, affine, upright, detector, contrast, edge)
    pixels, memory = source(image), _memory(memory)
    if 0 in pixels.size:
        return Frames.empty()
    return _find(
        pixels,
        _mask(mask, pixels.size),
        options,
        0.0,
        lambda ladder, maps: np.zeros((len(maps), 0)),
        memory,
    )[0]


def _sizes(domain_sizes: int | Sequence[float] | None) -> tuple[float, ...]:
    """Relative sizes of the domain; a number n means COLMAP's: n from 1/6, up to but not 3."""
    if domain_sizes is None:
        return (1.0,)
    if isinstance(domain_sizes, int | np.integer):
        if isinstance(domain_sizes, bool) or domain_sizes < 2:
            raise InputError(f"domain_sizes must be 2 or more sizes, got {domain_sizes}")
        return tuple((1 / 6 + i * (3 - 1 / 6) / domain_sizes) for i in range(domain_sizes))
    if not isinstance(domain_sizes, Sequence | np.ndarray) or isinstance(domain_sizes, str):
        raise InputError(f"domain_sizes must be a whole number or sizes, got {domain_sizes!r}")
    try:
        sizes = tuple(float(size) for size in domain_sizes)
    except (TypeError, ValueError):
        raise InputError(f"domain_sizes must be numbers, got {domain_sizes!r}") from None
    if not sizes or not all(0 < size < np.inf for size in sizes):
        raise InputError(f"domain_sizes must be positive numbers, got {domain_sizes!r}")
    return sizes


def describe_levels(
    ladder: scalespace.Ladder,
    maps: FloatArray,
    recipe: Descriptor,
    sizes: tuple[float, ...] = (1.0,),
    output: str = "float32",
) -> NDArray[np.generic]:
    """Descriptors (n, d) of frames ``maps`` (n, 2, 3), read from levels that are there already."""
    table = pooling.tabulate(recipe.kernel, recipe.layout, recipe.sampling, most=recipe.harmonics)

    def pooled(size: float) -> density.Floats:
        sized = maps.copy()
        sized[:, :, :2] *= size
        return pooling.pool_frames(
            ladder, sized, recipe.sampling, recipe.kernel, table, recipe.power
        )

    raw = pooled(sizes[0])
    if len(sizes) > 1:
        # As DSP-SIFT has it: each size is normalised and clipped on its own, then averaged.
        raw = normalise.clip(raw) / len(sizes)
        for size in sizes[1:]:
            raw += normalise.clip(pooled(size)) / len(sizes)
    return _finish(raw, recipe, output)


@threads.ours
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
    """Descriptors (n, d) of an image at frames from anybody: ``Frames.from_opencv(keypoints)``.

    ``domain_sizes`` is DSP-SIFT by resampling, for any descriptor: each frame is described at
    several relative sizes, and the mean is taken; a number n stands for COLMAP's n sizes from 1/6
    to 3 (its own default is 10).
    """
    recipe = _recipe(descriptor, layout, normalisation, parameters)
    output, sizes = _output(dtype, recipe), _sizes(domain_sizes)
    target = devices.resolve(device)
    if not isinstance(frames, Frames):
        raise InputError("frames must be caloric.Frames; see Frames.from_opencv and its siblings")
    pixels, memory = source(image), _memory(memory)
    if 0 in pixels.size or len(frames) == 0:
        return np.zeros((len(frames), recipe.dimension), output)
    if target is not None:
        from caloric.gpu import pipeline

        job = pipeline.Job(recipe, Options(), sizes, output)
        whole = _checked(pixels.read, recipe.kernel)(*(slice(0, n) for n in pixels.size))
        there = pipeline.describe_frames(whole, frames.maps, job, target)
        if there is not None:
            return there.astype(output, copy=False)
    result = np.zeros((len(frames), recipe.dimension), output)
    stretch = float((np.linalg.norm(frames.maps[:, :, :2], 2, (1, 2)) / frames.sigma).max())
    around = tiles.halo(recipe.sampling.farthest() * stretch)
    read = _checked(pixels.read, recipe.kernel)

    def wanted(tile: tiles.Tile) -> bool:
        return bool(tile.owns(frames.xy).any())

    for tile, space in tiles.spaces(read, pixels.size, around, memory, wanted):
        mine = tile.owns(frames.xy)
        result[mine] = describe_levels(space.ladder(), frames.maps[mine], recipe, sizes, output)
        del space  # the next tile takes its memory
    return result


@overload
def extract(
    image: list[Any] | tuple[Any, ...], descriptor: str | Descriptor | Kernel = ..., **options: Any
) -> list[Features]: ...


@overload
def extract(
    image: ArrayLike, descriptor: str | Descriptor | Kernel = ..., **options: Any
) -> Features: ...


@threads.ours
def extract(
    image: Any,
    descriptor: str | Descriptor | Kernel = "caloric",
    *,
    max_features: int | None = None,
    mask: Any = None,
    device: str = "cpu",
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float = extrema.CONTRAST,
    edge: float = extrema.EDGE,
    layout: Layout | None = None,
    normalisation: Normalisation | None = None,
    dtype: DTypeLike = "float32",
    domain_sizes: int | Sequence[float] | None = None,
    memory: int = tiles.MEMORY,
    **parameters: float,
) -> Features | list[Features]:
    """Detect and describe, over one scale space. The options are those of the two.

    Of a list of images, or a tensor (b, c, h, w), a list, with a list of masks if any. ``device``
    is "cpu", "cuda", "cuda:1", "auto" or "torch:cpu"; on a GPU images of one size go together.
    """
    recipe = _recipe(descriptor, layout, normalisation, parameters)
    options = Options(max_features, affine, upright, detector, contrast, edge)
    plan = Plan.of(descriptor, recipe, options, domain_sizes, dtype)
    many = several(image)
    images, masks = ([image], [mask]) if many is None else (many, _each_mask(mask, len(many)))
    found: dict[int, Features] = {}
    for index, one in extract_each(zip(images, masks, strict=True), plan, device, _memory(memory)):
        if isinstance(one, InputError):
            raise one
        found[index] = one
    return [found[i] for i in range(len(images))] if many is not None else found[0]


@dataclass(frozen=True)
class Plan:
    """What is to be extracted, checked."""

    recipe: Descriptor
    options: Options
    sizes: tuple[float, ...]
    output: str
    name: str

    @classmethod
    def of(
        cls,
        name: str | Descriptor | Kernel,
        recipe: Descriptor,
        options: Options,
        domain_sizes: int | Sequence[float] | None = None,
        dtype: DTypeLike = "float32",
    ) -> "Plan":
        """With what was asked for by ``name``."""
        known = name if isinstance(name, str) else recipe.kernel.name
        return cls(recipe, options, _sizes(domain_sizes), _output(dtype, recipe), known)

    def features(self, frames: Frames, values: NDArray[Any], size: tuple[int, int]) -> Features:
        """With what they were made by."""
        return Features(frames, values, size, self.name, self.recipe.fingerprint(self.sizes))

    def nothing(self, size: tuple[int, int]) -> Features:
        """Of an image that has no pixels."""
        empty = np.zeros((0, self.recipe.dimension), self.output)
        return self.features(Frames.empty(), empty, size)


def _each_mask(mask: Any, count: int) -> list[Any]:
    if mask is None:
        return [None] * count
    if not isinstance(mask, list | tuple) or len(mask) != count:
        raise InputError(f"mask: of {count} images a list of {count} masks is needed, or None")
    return list(mask)


def _extracted(image: Any, mask: Any, plan: Plan, memory: int) -> Features:
    pixels = source(image)
    if 0 in pixels.size:
        return plan.nothing(pixels.size)
    recipe = plan.recipe
    frames, values = _find(
        replace(pixels, read=_checked(pixels.read, recipe.kernel)),
        _mask(mask, pixels.size),
        plan.options,
        recipe.sampling.farthest(),
        lambda ladder, maps: describe_levels(ladder, maps, recipe, plan.sizes, plan.output),
        memory,
    )
    return plan.features(frames, values, pixels.size)


def extract_each(
    images: Iterable[tuple[Any, Any]], plan: Plan, device: str, memory: int
) -> Iterator[tuple[int, Features | InputError]]:
    """(index, features) of images with their masks or None, or why there are none; as they come.

    On a device they go in batches, those of one size together, and in any order; an image that does
    not fit there alone is worked on here. An image may be an error already.
    """
    target = devices.resolve(device)
    if target is not None:
        yield from _extracted_on(target, images, plan, memory)
        return
    for index, (image, mask) in enumerate(images):
        yield index, _or_error(image, partial(_extracted, image, mask, plan, memory))


def _or_error(image: Any, work: Callable[[], R]) -> R | InputError:
    try:
        return image if isinstance(image, InputError) else work()
    except InputError as error:
        return error
    except MemoryError:
        return InputError("not enough memory")


def _extracted_on(
    device: Any, images: Iterable[tuple[Any, Any]], plan: Plan, memory: int
) -> Iterator[tuple[int, Features | InputError]]:
    from caloric.gpu import pipeline

    if plan.options.detector != "dog":
        raise InputError(f"detector {plan.options.detector!r} needs device='cpu'")
    job = pipeline.Job(plan.recipe, plan.options, plan.sizes, plan.output)
    known: dict[int, tuple[Any, Any]] = {}  # on their way: what does not fit is needed again
    early: list[tuple[int, Features | InputError]] = []

    def items() -> Iterator[tuple[int, Any, Any]]:
        for index, (image, mask) in enumerate(images):
            ready = _or_error(image, partial(_ready, image, mask, plan, device))
            if isinstance(ready, InputError):
                early.append((index, ready))
            elif 0 in ready[0].shape:
                early.append((index, plan.nothing((ready[0].shape[0], ready[0].shape[1]))))
            else:
                known[index] = (image, mask)
                yield index, *ready

    for index, one in pipeline.extract_all(items(), job, device):
        yield from early
        early.clear()
        image, mask = known.pop(index)
        if one is None:
            yield index, _or_error(image, partial(_extracted, image, mask, plan, memory))
        else:
            values = one.descriptors.astype(plan.output, copy=False)
            yield index, plan.features(Frames(one.maps, one.strengths), values, one.size)
    yield from early


def _ready(image: Any, mask: Any, plan: Plan, device: Any) -> tuple[Any, NDArray[np.bool_] | None]:
    """The grey pixels, on the device if they were, and the mask: checked."""
    from caloric.gpu import pipeline

    grey = pipeline.pixels(image, device)
    _check_range(grey, plan.recipe.kernel)
    return grey, _mask(mask, (grey.shape[0], grey.shape[1]))


@threads.ours
def match(
    features_a: Features | ArrayLike,
    features_b: Features | ArrayLike,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    radius: float = 10.0,
    refine: bool = False,
    images: tuple[ArrayLike, ArrayLike] | None = None,
    device: str = "cpu",
) -> Matches:
    """Exact nearest neighbours, mutual and with a ratio test unless told otherwise.

    Between two :class:`Features` the ratio is to the nearest descriptor that is not within
    ``radius`` pixels of the first; where one is a bare array (n, d), to the second nearest.
    ``refine=True`` moves the second frame of each match to sub-pixel, affine-corrected agreement
    with the first, which needs the two ``images``: ``matches.refined``, which :func:`verify` uses.
    ``device`` is where neighbours are looked for: "cpu", "cuda", "auto".
    """
    find = _finder(device)
    both = isinstance(features_a, Features) and isinstance(features_b, Features)
    if refine and (not both or images is None or len(images) != 2):
        raise InputError("refine=True needs two caloric.Features and images=(image_a, image_b)")
    if isinstance(features_a, Features) and isinstance(features_b, Features):
        _comparable(features_a, features_b)
        found = match_descriptors(
            features_a.descriptors,
            features_b.descriptors,
            mutual=mutual,
            ratio=ratio,
            xy_b=features_b.frames.xy,
            radius=radius,
            find=find,
        )
        if not refine or images is None:
            return found
        return _refined(features_a, features_b, found, images)
    a, b = (f.descriptors if isinstance(f, Features) else f for f in (features_a, features_b))
    return match_descriptors(a, b, mutual=mutual, ratio=ratio, find=find)


def _finder(device: str) -> Finder:
    target = devices.resolve(device)
    if target is None:
        return neighbours
    from caloric.gpu import neighbours as on_device

    return partial(on_device.neighbours, device=target)


def _refined(
    a: Features, b: Features, found: Matches, images: tuple[ArrayLike, ArrayLike]
) -> Matches:
    pixels = [to_grey(image) for image in images]
    for which, grey, own in zip("ab", pixels, (a, b), strict=True):
        if grey.shape != own.image_size:
            raise InputError(
                f"images: {which} has shape {grey.shape}, its features are of {own.image_size}"
            )
    maps_a, maps_b = a.frames.maps[found.indices[:, 0]], b.frames.maps[found.indices[:, 1]]
    moved = refinement.refine(pixels[0], pixels[1], maps_a, maps_b)
    return replace(found, refined=moved.maps)


def _comparable(a: Features, b: Features) -> None:
    what = None
    if a.descriptor != b.descriptor:
        what = f"{a.descriptor!r} and of {b.descriptor!r}"
    elif a.recipe != b.recipe:
        what = f"{a.descriptor!r} with other parameters"
    elif (a.descriptors.dtype == np.uint8) != (b.descriptors.dtype == np.uint8):
        what = f"{a.descriptors.dtype} and of {b.descriptors.dtype}"
    if what is not None:
        raise InputError(
            f"features of {what} cannot be compared; describe both images the same way"
        )


def verify(
    features_a: Features | Frames,
    features_b: Features | Frames,
    matches: Matches,
    *,
    model: Model = "homography",
    seed: int = 0,
    threshold: float = 2.0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """The geometry that most matches agree on: see :func:`caloric.matching.geometry.estimate`."""
    if not isinstance(matches, Matches):
        raise InputError("matches must be what caloric.match returns; points: geometry.estimate")
    a, b = (f.frames if isinstance(f, Features) else f for f in (features_a, features_b))
    for frames, column in ((a, 0), (b, 1)):
        used = matches.indices[:, column]
        if len(used) and not 0 <= used.min() <= used.max() < len(frames):
            raise InputError("matches refer to features that are not there; are they of this pair?")
    points = b.xy[matches.indices[:, 1]] if matches.refined is None else matches.refined[:, :, 2]
    return geometry.estimate(
        a.xy[matches.indices[:, 0]],
        points,
        model=model,
        seed=seed,
        threshold=threshold,
        intrinsics=intrinsics,
    )
