"""The features of two images compared: neighbors on the CPU or a device, and refined matches."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caloric.errors import InputError
from caloric.features import Features, check_comparable
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image.pixels import to_gray
from caloric.matching import refinement
from caloric.matching.neighbors import Matches, check_options, match_descriptors, one_per_position
from caloric.types import FloatArray


def checked_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """Return a list of pairs, or raise an error if it is something else."""
    is_list = isinstance(pairs, list | tuple)
    if not is_list or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise InputError("match takes two caloric.Features or arrays, or one list of such pairs")
    return [(a, b) for a, b in pairs]


def match_pairs(
    pairs: list[tuple[Any, Any]], mutual: bool, ratio: float | None, radius: float, device: str
) -> list[Matches]:
    """Return the matches of each pair of features or arrays (n, d): see :func:`caloric.match`."""
    target = devices.resolve(device)
    check_options(ratio, radius)
    for a, b in pairs:
        if _described(a) and _described(b):
            check_comparable(_about(a), _about(b))
    if target is None:
        return [_match_on_cpu(a, b, mutual, ratio, radius) for a, b in pairs]
    from caloric.gpu import matching as on_device

    matches = on_device.match(pairs, mutual, ratio, radius, target)
    return [_once_per_place(a, b, m) for (a, b), m in zip(pairs, matches, strict=True)]


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
    return matches[one_per_position(matches, a.frames.xy, b.frames.xy)]


def descent(device: str) -> refinement.Descent:
    """Return the function that makes the steps of a refinement on a device."""
    target = devices.resolve(device)
    if target is None:
        return refinement.descend
    from caloric.gpu import refinement as on_device

    return partial(on_device.descend, device=target)


def refined(
    a: Features, b: Features, matches: Matches, images: tuple[ArrayLike, ArrayLike], device: str
) -> Matches:
    """Return matches with refined frames and covariances; raise InputError for other images."""
    pixels = [to_gray(image) for image in images]
    for name, gray, features in zip("ab", pixels, (a, b), strict=True):
        if gray.shape != features.image_size:
            raise InputError(
                f"images: {name} has shape {gray.shape}, its features are of {features.image_size}"
            )
    maps_a, maps_b = a.frames.maps[matches.indices[:, 0]], b.frames.maps[matches.indices[:, 1]]
    moved = refinement.refine(pixels[0], pixels[1], maps_a, maps_b, descent(device))
    return replace(matches, refined=moved.maps, covariances=moved.covariances)


def matched_maps(
    features_a: Features | Frames, features_b: Features | Frames, matches: Matches
) -> tuple[FloatArray, FloatArray]:
    """Return the frames (m, 2, 3) of matches in both images; refined ones where there are any."""
    a, b = (f.frames if isinstance(f, Features) else f for f in (features_a, features_b))
    for frames, column in ((a, 0), (b, 1)):
        used = matches.indices[:, column]
        if len(used) and not 0 <= used.min() <= used.max() < len(frames):
            raise InputError("matches refer to features that do not exist; are they of this pair?")
    second = matches.refined
    if second is None:
        second = b.maps[matches.indices[:, 1]]
    return a.maps[matches.indices[:, 0]], second


def maps_of(frames: Any, which: str, sigma: float) -> FloatArray:
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
