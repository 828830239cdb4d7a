"""Descriptors in the forms that other tools compare: unit floats, or bytes as SIFT's are.

Caloric stores whitened descriptors, which have signs, as bytes with an offset of 128. A reader that
takes such bytes for SIFT's (non-negative, of length 512) finds no matches: COLMAP's matcher, for
example, compares angles from dot products.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalize
from caloric.errors import InputError
from caloric.features import Features
from caloric.image import reading

LENGTH = float(normalize.UNSIGNED)  # of SIFT's bytes
# Signed entries are shifted up by this before they are scaled to that length. Distances between
# descriptors then keep their ratios, and few entries are cut off at 0.
SHIFT = 42.0
# Entries of smooth, non-negative descriptors are never near 0, so that all of them are similar.
# Less this share of their mean, cut off at 0, their distances are those of SIFT, of which code
# knows what is near: on photographs, half of the right matches are within 180 and half of the wrong
# ones within 290 (OpenCV's SIFT: 200 and 290). As many matches are right as before.
FLOOR = 0.7


def in_file_axes(features: Features, orientation: int) -> Features:
    """Return the features of an upright image in the axes of its file.

    Caloric turns images as EXIF says; COLMAP and hloc open the pixels as they are stored.
    """
    if orientation == 1:
        return features
    turn = reading.to_stored(features.image_size, orientation)
    size = reading.stored_size(features.image_size, orientation)
    return replace(features, frames=features.frames.moved(turn), image_size=size)


# The norm of stored descriptors, by which distances between them are larger.
NORMS = {"unit": 1, "uint8": normalize.UNSIGNED, "uint8+128": normalize.SIGNED}


def unit_descriptors(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) as floats of unit length."""
    values = features.descriptors.astype(np.float32)
    if features.encoding == "unit":
        return values
    if features.encoding == "uint8+128":
        values -= normalize.OFFSET
    return np.asarray(normalize.l2(values), np.float32)


def sift_floats(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) as SIFT's are: non-negative floats of length 512."""
    unit = unit_descriptors(features)
    # Floats are stored as they are, so that their signs are seen; bytes are not.
    if features.encoding == "uint8+128" or (features.encoding == "unit" and (unit < 0).any()):
        scale = np.sqrt(LENGTH**2 - unit.shape[1] * SHIFT**2)
        unit = np.maximum(scale * unit + SHIFT, 0)
    else:
        unit = np.maximum(unit - FLOOR * unit.mean(1, keepdims=True), 0)
    return np.asarray(LENGTH * normalize.l2(unit), np.float32)


def sift_bytes(features: Features) -> NDArray[np.uint8]:
    """Return the descriptors (n, 128) of :func:`sift_floats` as bytes."""
    if features.descriptors.shape[1] != 128:
        raise InputError(
            f"COLMAP's descriptors have 128 dimensions, {features.descriptor!r} has "
            f"{features.descriptors.shape[1]}; use caloric or caloric-unlearned"
        )
    return np.asarray(normalize.to_uint8(sift_floats(features) / LENGTH))
