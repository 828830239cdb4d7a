"""Conversion of descriptors to the encodings of other tools: unit vectors, or SIFT-like bytes.

Whitened descriptors have signed entries, which Caloric stores as bytes with an offset of 128. Tools
that expect SIFT descriptors (non-negative, of length 512) cannot match such bytes: COLMAP's
matcher, for example, computes angles from dot products.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalize
from caloric.errors import InputError
from caloric.features import Features
from caloric.image import reading

LENGTH = float(normalize.UNSIGNED)  # the norm of SIFT descriptors as bytes
# Offset of signed entries. Ratios of distances are preserved, and few entries are clipped at 0.
SHIFT = 42.0
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
    if features.encoding == "uint8+128":
        values -= normalize.OFFSET
    return np.asarray(normalize.l2(values), np.float32)


def sift_floats(features: Features) -> NDArray[np.float32]:
    """Return the descriptors (n, d) in the range of SIFT: non-negative, of length 512."""
    unit = unit_descriptors(features)
    # The encoding of bytes tells whether entries are signed; for floats the values do.
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
            f"COLMAP descriptors have 128 dimensions, {features.descriptor!r} has "
            f"{features.descriptors.shape[1]}; use caloric or caloric-unlearned"
        )
    return np.asarray(normalize.to_uint8(sift_floats(features) / LENGTH))
