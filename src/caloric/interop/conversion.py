"""Conversion of descriptors to the encodings of other tools: unit vectors, or SIFT-like values.

Tools that read descriptors have thresholds for SIFT: non-negative entries, a ratio of distances of
0.8, a maximum distance. The whitened default descriptor has signed entries, and its distances are
too similar for such thresholds. Exports therefore undo the whitening (:func:`sift_like`).
"""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalize, recipes, whitening
from caloric.descriptor.recipes import Descriptor
from caloric.errors import InputError
from caloric.features import Features, offset_of
from caloric.image import reading

LENGTH = float(normalize.UNSIGNED)  # the norm of SIFT descriptors as bytes
# Length of the constant vector that is added to signed descriptors of unknown recipes, whose
# whitening cannot be undone. Ratios of distances are preserved, and few entries are clipped at 0.
SHIFT = 0.93
# Rings of the default layout that are exported, 128 entries in all. Without the second and the
# outermost ring more correct matches of difficult pairs pass a ratio of 0.8.
RINGS = (0, 2, 3, 4)
# Entries of smooth, non-negative descriptors are never near 0, so that all descriptors are similar.
# Subtracting this fraction of the mean, clipped at 0, gives distances in the range of SIFT, for
# which existing code has thresholds: on photographs, the median distance is 180 for correct matches
# and 290 for incorrect ones (OpenCV's SIFT: 200 and 290). The number of correct matches does not
# change.
FLOOR = 0.7


def in_file_axes(features: Features, orientation: int) -> Features:
    """Return the features of an upright image in the coordinates of the stored image.

    Caloric applies the EXIF orientation; COLMAP and hloc ignore it.
    """
    if orientation == 1:
        return features
    to_stored = reading.to_stored(features.image_size, orientation)
    size = reading.stored_size(features.image_size, orientation)
    return replace(features, frames=features.frames.moved(to_stored), image_size=size)


# The norm of the stored descriptors of each encoding.
NORMS = {"unit": 1, "uint8": normalize.UNSIGNED, "uint8+128": normalize.SIGNED}


def unit_descriptors(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) as unit vectors."""
    values = features.descriptors.astype(np.float32)
    if features.encoding == "unit":
        return values
    values -= offset_of(features.encoding)
    return np.asarray(normalize.l2(values), np.float32)


@cache
def _exported(recipe: Descriptor) -> NDArray[np.intp]:
    """Return the indices of the exported entries: all, or :data:`RINGS` of the default layout."""
    if recipe.layout != recipes.descriptor("caloric").layout:
        return np.arange(recipe.layout.dimension)
    radii = np.linalg.norm(recipe.layout.positions(), axis=1).round(6)
    kept = np.isin(np.unique(radii, return_inverse=True)[1], RINGS)
    return np.flatnonzero(np.repeat(kept, recipe.layout.directions))


@cache
def _unwhitening(recipe: Descriptor, fingerprint: str) -> NDArray[np.float32]:
    """Return the matrix (d, D) from whitened descriptors to the D exported entries.

    ``fingerprint`` is that of the whitening matrix, whose file can change.
    """
    assert recipe.whitening is not None
    inverse = np.linalg.pinv(whitening.load(recipe.whitening)[:, : recipe.dimension])
    return np.ascontiguousarray(inverse[:, _exported(recipe)], np.float32)


def _recipe(name: str) -> Descriptor | None:
    """Return the recipe of a descriptor, or None if there is none of that name."""
    try:
        return recipes.descriptor(name)
    except InputError:
        return None


def sift_like(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) as non-negative unit vectors with distances similar to SIFT's.

    The whitening is undone, which gives the entries before it, up to the discarded directions. For
    the default descriptor and its variants, d is 128.
    """
    values, recipe = unit_descriptors(features), _recipe(features.descriptor)
    if recipe is not None and values.shape[1] == recipe.dimension:
        if recipe.whitening is None:
            values = values[:, _exported(recipe)]
        else:
            matrix = _unwhitening(recipe, whitening.fingerprint(recipe.whitening))
            values = whitening.apply(values, matrix)
    elif features.encoding == "uint8+128" or (values < 0).any():
        shift = SHIFT / np.sqrt(values.shape[1])
        values = np.maximum(np.sqrt(1 - SHIFT**2) * values + shift, 0)
        return np.asarray(normalize.l2(values), np.float32)
    values = normalize.l2(np.maximum(values, 0))
    floor = FLOOR * values.mean(1, keepdims=True)
    return np.asarray(normalize.l2(np.maximum(values - floor, 0)), np.float32)


def sift_dimension(recipe: Descriptor) -> int:
    """Return the dimension d of :func:`sift_like` for a descriptor."""
    return len(_exported(recipe))


def sift_floats(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) of :func:`sift_like` in the range of SIFT, of length 512."""
    return np.float32(LENGTH) * sift_like(features)


def sift_bytes(features: Features) -> NDArray[np.uint8]:
    """Return the descriptors (n, 128) of :func:`sift_floats` as bytes."""
    values = sift_like(features)
    if values.shape[1] != 128:
        raise InputError(
            f"COLMAP descriptors have 128 dimensions, {features.descriptor!r} has "
            f"{values.shape[1]}; use caloric or caloric-unlearned"
        )
    return np.asarray(normalize.to_uint8(values))
