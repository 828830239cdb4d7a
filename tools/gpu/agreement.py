"""Comparison of features of the same image from two devices or decoders."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric.features import Features


def compared(reference: Features, other: Features) -> tuple[float, NDArray[np.float64]]:
    """Return the share of common frames, and the cosines (n,) of their descriptors.

    Common frames agree within 0.05 pixels and 1% of scale. Cosines are of those whose orientations
    also agree within 0.01 radians.
    """
    tree = cKDTree(other.frames.xy)
    common, cosines = 0, []
    for i, near in enumerate(tree.query_ball_point(reference.frames.xy, 0.05)):
        ratio = np.abs(other.frames.sigma[near] / reference.frames.sigma[i] - 1)
        same = np.array(near, int)[ratio < 0.01]
        common += len(same) > 0
        rotation = other.frames.angle[same] - reference.frames.angle[i]
        same = same[np.abs((rotation + np.pi) % (2 * np.pi) - np.pi) < 0.01]
        if len(same):
            pairs = other.descriptors[same].astype(float) @ reference.descriptors[i].astype(float)
            cosines.append(float(pairs.max()))
    return common / max(len(reference), 1), np.array(cosines)
