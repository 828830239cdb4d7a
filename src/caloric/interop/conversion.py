"""Descriptors in the forms that other tools compare: unit floats, or bytes as SIFT's are.

Caloric stores whitened descriptors, which have signs, as bytes with an offset of 128. A reader that
takes such bytes for SIFT's (non-negative, of length 512) finds no matches: COLMAP's matcher, for
example, compares angles from dot products.
"""

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalise, recipes
from caloric.errors import InputError
from caloric.features import Features

LENGTH = float(normalise.UNSIGNED)  # of SIFT's bytes
# Signed entries are shifted up by this before they are scaled to that length. Distances between
# descriptors then keep their ratios, and few entries are cut off at 0.
SHIFT = 42.0


def is_signed(features: Features) -> bool:
    """Return whether bytes of these features have the offset of whitened descriptors."""
    return recipes.descriptor(features.descriptor).whitening is not None


def unit_descriptors(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) as floats of unit length."""
    values = features.descriptors.astype(np.float32)
    if features.descriptors.dtype != np.uint8:
        return values
    if is_signed(features):
        values -= normalise.OFFSET
    return np.asarray(normalise.l2(values), np.float32)


def length(features: Features) -> float:
    """Return the length of the stored descriptors, by which their distances are larger."""
    if features.descriptors.dtype != np.uint8:
        return 1.0
    return float(normalise.SIGNED if is_signed(features) else normalise.UNSIGNED)


def sift_bytes(features: Features) -> NDArray[np.uint8]:
    """Return the descriptors (n, 128) as non-negative bytes of length 512, as SIFT's are."""
    if features.descriptors.shape[1] != 128:
        raise InputError(
            f"COLMAP's descriptors have 128 dimensions, {features.descriptor!r} has "
            f"{features.descriptors.shape[1]}; use caloric or caloric-unlearned"
        )
    unit = unit_descriptors(features)
    if is_signed(features):
        scale = np.sqrt(LENGTH**2 - 128 * SHIFT**2)
        unit = np.asarray(normalise.l2(np.maximum(scale * unit + SHIFT, 0)), np.float32)
    return normalise.to_uint8(unit)
