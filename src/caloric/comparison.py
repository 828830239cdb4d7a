"""Matching and refining the features of two images, on the CPU or a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError, check_bool
from caloric.features import Features, check_comparable
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import inputs
from caloric.matching import agreement, refinement
from caloric.matching.neighbors import (
    Matches,
    Neighbors,
    check_options,
    checked_neighbors,
    checked_reference,
    one_per_position,
    selected,
)
from caloric.matching.refinement import Refined
from caloric.matching.repetition import Appearance, Described
from caloric.runtime import threads
from caloric.runtime.indexing import select
from caloric.types import FloatArray


def checked_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """Return a list of pairs; raise InputError for anything else."""
    is_list = isinstance(pairs, list | tuple)
    if not is_list or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise InputError("match expects two caloric.Features or arrays, or a list of such pairs")
    return [(a, b) for a, b in pairs]


def checked_pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a pair of features or arrays; raise InputError for two lists of them."""
    for side in (a, b):
        if isinstance(side, list | tuple) and any(
            has_positions(item) or getattr(item, "ndim", 1) == 2 for item in side
        ):
            raise InputError(
                "match compares two images; for several, pass one list of pairs: "
                "match([(a1, b1), (a2, b2), ...]), or match(list(zip(features_a, features_b)))"
            )
    return a, b


@dataclass(frozen=True)
class MatchOptions:
    """How descriptors are matched: the options of :func:`caloric.match`."""

    mutual: bool = True
    ratio: float | None = 0.9
    radius: float = 10.0
    agreement: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise InputError if an option is invalid."""
        check_bool("agreement", self.agreement)
        check_options(self.ratio, self.radius)


# refine(a, b): the second of two frames (m, 2, 3) each, refined
Refine = Callable[[FloatArray, FloatArray], Refined]


def matched(pairs: list[tuple[Any, Any]], options: MatchOptions) -> list[Matches]:
    """Return the matches of each pair of features or arrays (n, d): see :func:`caloric.match`."""
    if options.agreement and not all(
        has_positions(features) for pair in pairs for features in pair
    ):
        raise InputError("agreement=True needs caloric.Features")
    for a, b in pairs:
        if has_positions(a) and has_positions(b):
            check_comparable(metadata(a), metadata(b))
    if options.agreement and options.ratio is not None:
        return _by_agreement(pairs, options, options.ratio)
    matches = [Matches.empty()] * len(pairs)
    radius = None if options.ratio is None else options.radius
    for i, a, b, nearest in _nearest(pairs, radius, options.device):
        kept = selected(nearest, options.mutual, options.ratio)
        matches[i] = kept[_distinct(a, b, kept)]
    return matches


def matched_and_refined(
    pair: tuple[Any, Any], images: Sequence[Any], options: MatchOptions
) -> Matches:
    """Return the refined matches of two sets of features; the images are :func:`prepared`."""
    for name, image, features in zip("ab", images, pair, strict=True):
        size = metadata(features).image_size
        if image.shape != size:
            raise InputError(
                f"images: {name} has shape {image.shape}, but its features are from an image of "
                f"shape {size}"
            )
    on_cpu = isinstance(images[0], refinement.Octaves)
    steps = descent("cpu" if on_cpu else options.device)
    refine = partial(refinement.refine, images[0], images[1], descent=steps)
    if options.agreement and options.ratio is not None and not on_cpu:
        check_comparable(metadata(pair[0]), metadata(pair[1]))
        (matches,) = _by_agreement([pair], options, options.ratio, refine)
        if matches.refined is not None:
            return matches
    else:
        (matches,) = matched([pair], options)
    maps = matched_maps(pair[0].frames.maps, pair[1].frames.maps, matches)
    return _with_refined(matches, refine(*maps))


def _by_agreement(
    pairs: list[tuple[Any, Any]], options: MatchOptions, ratio: float, refine: Refine | None = None
) -> list[Matches]:
    """Return the matches of each pair that pass the ratio test or agree with their neighbors.

    ``refine`` is called with all candidates, on another thread, while their agreement is computed.
    """
    matches = [Matches.empty()] * len(pairs)
    for a, b in pairs:  # features on a device copy their frames now, rather than after the search
        _ = a.frames, b.frames
    for i, a, b, nearest in _nearest(pairs, options.radius, options.device):
        candidates = selected(nearest, options.mutual, None)
        maps = matched_maps(a.frames.maps, b.frames.maps, candidates)
        refining = None if refine is None else threads.begin(partial(refine, *maps))
        rows = candidates.indices[:, 0]
        passed = nearest.first[rows] < ratio * nearest.second[rows]
        agreeing = agreement.scores(*maps, metadata(b).image_size) > agreement.MIN_SCORE
        candidates = replace(candidates, origin=np.where(passed, 0, 1).astype(np.uint8))
        kept = np.flatnonzero(passed | agreeing)
        kept = kept[_distinct(a, b, candidates[kept])]
        matches[i] = candidates[kept]
        if refining is not None:
            matches[i] = _with_refined(matches[i], refining()[kept])
    return matches


def _with_refined(matches: Matches, refined: Refined) -> Matches:
    return replace(matches, refined=refined.maps, covariances=refined.covariances)


def has_positions(features: Any) -> bool:
    """Return whether these are features, on the host or on a device, rather than an array."""
    return isinstance(features, Features) or hasattr(features, "to_host")


def metadata(features: Any) -> Features:
    """Return features, or an empty set like them if they are on a device."""
    result: Features = features if isinstance(features, Features) else features.about
    return result


def _nearest(
    pairs: list[tuple[Any, Any]], radius: float | None, device: str
) -> Iterator[tuple[int, Any, Any, Neighbors]]:
    """Yield the index, both sets and the nearest neighbors of each pair without empty sets."""
    target = devices.resolve(device)
    if target is None:
        yield from _nearest_on_cpu(pairs, radius)
        return
    from caloric.gpu import matching as on_device

    nearest = on_device.nearest_of_pairs(pairs, radius, target)
    for i, (pair, result) in enumerate(zip(pairs, nearest, strict=True)):
        if result is not None:
            yield i, *pair, result


def _nearest_on_cpu(
    pairs: list[tuple[Any, Any]], radius: float | None
) -> Iterator[tuple[int, Any, Any, Neighbors]]:
    """Yield the same as :func:`_nearest`.

    Pairs with the same second set follow each other: it is prepared once and stays in the cache.
    """
    by_second: dict[int, list[int]] = {}
    for i, (_, b) in enumerate(pairs):
        by_second.setdefault(id(b), []).append(i)
    for indices in by_second.values():
        b = on_host(pairs[indices[0]][1])
        is_features = isinstance(b, Features)
        reference = (
            checked_reference(b.descriptors, b.frames.xy)
            if is_features
            else checked_reference(b, None)
        )
        for i in indices:
            a = on_host(pairs[i][0])
            both = is_features and isinstance(a, Features)
            descriptors = a.descriptors if isinstance(a, Features) else a
            nearest = checked_neighbors(descriptors, reference, radius if both else None)
            if nearest is not None:
                yield i, a, b, nearest


def on_host(features: Any) -> Any:
    """Return features, which may be on a device, or an array on the host."""
    return features.to_host() if hasattr(features, "to_host") else features


def appearance(
    features: tuple[Any, Any], indices: NDArray[np.integer], frames: tuple[FloatArray, FloatArray]
) -> Appearance:
    """Return the appearance of matched frames (m, 2, 3); ``indices`` (m, 2) are their features."""

    def described() -> tuple[Described, Described]:
        a, b = (on_host(side) for side in features)
        return Described(a.descriptors, a.frames.xy), Described(b.descriptors, b.frames.xy)

    return Appearance(described, indices, frames)


def _distinct(a: Any, b: Any, matches: Matches) -> Any:
    """Return an index of one match per pair of positions if features are from simulated views."""
    are_features = has_positions(a) and has_positions(b)
    if not are_features or max(metadata(a).views, metadata(b).views) == 1:
        return slice(None)
    return one_per_position(matches, a.frames.xy, b.frames.xy)


def descent(device: str) -> refinement.Descent:
    """Return the function that computes the steps of refinement on a device."""
    target = devices.resolve(device)
    if target is None:
        return refinement.descend
    from caloric.gpu import descent as on_device

    return partial(on_device.descend, device=target)


def prepared(images: Sequence[Any], device: str, names: Sequence[str] | None = None) -> list[Any]:
    """Return images, or grayscale arrays (h, w), prepared for :func:`matched_and_refined`.

    They are on the device if it has enough memory, otherwise on the CPU. Errors start with the
    name of an image, by default that of its file.
    """
    names = [inputs.label(image, "image") for image in images] if names is None else names
    target = devices.resolve(device)
    if target is not None:
        from caloric.gpu import descent as on_device

        octaves = on_device.prepared_images(images, names, target)
        if octaves is not None:
            return octaves

    def on_cpu(item: tuple[Any, str]) -> Any:
        image, name = item
        gray = inputs.gray(image, name)
        return refinement.prepared(gray) if min(gray.shape) >= 2 else gray

    return threads.each(on_cpu, zip(images, names, strict=True))


def matched_maps(
    maps_a: FloatArray, maps_b: FloatArray, matches: Matches
) -> tuple[FloatArray, FloatArray]:
    """Return the frames (m, 2, 3) of matches in both images, refined if the matches are."""
    for maps, column in ((maps_a, 0), (maps_b, 1)):
        used = matches.indices[:, column]
        if len(used) and not 0 <= used.min() <= used.max() < len(maps):
            raise InputError(
                "matches refer to features that do not exist; are they from another image pair?"
            )
    second = matches.refined
    if second is None:
        second = select(maps_b, matches.indices[:, 1])
    return select(maps_a, matches.indices[:, 0]), second


def maps_of(frames: Any, which: str, sigma: float) -> FloatArray:
    """Return the maps (m, 2, 3) of frames, keypoints or points."""
    if has_positions(frames):
        frames = frames.frames
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
            f"{which}: expected Frames, OpenCV keypoints, or an array (m, 2) or (m, 2, 3)"
        ) from None
    if array.shape == (0,):
        array = array.reshape(0, 2)
    if array.shape[1:] == (2, 3):
        return Frames(array, np.zeros(len(array), np.float32)).maps
    if array.shape[1:] != (2,):
        raise InputError(
            f"{which}: expected Frames, OpenCV keypoints, or an array (m, 2) or (m, 2, 3), got "
            f"{array.shape}"
        )
    return Frames.from_xysa(array[:, 0], array[:, 1], np.full(len(array), sigma)).maps
