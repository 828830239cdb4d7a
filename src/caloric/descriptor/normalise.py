"""The one home of normalisation: what is done to a raw descriptor before it is compared."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.density import Floats
from caloric.errors import unknown

Normalisation = Literal["none", "l2", "clip", "root"]


def l2(h: Floats) -> Floats:
    """Unit Euclidean length; the rows that are zero stay zero. No row depends on another."""
    square = np.einsum("ij,ij->i", h, h)
    safe = (square > 1e-30) & (square < 1e30)
    if safe.all():
        return np.asarray(h / np.sqrt(square)[:, None])
    result = np.empty_like(h)
    result[safe] = h[safe] / np.sqrt(square[safe])[:, None]
    # Divided by the largest entry first, so that no square leaves the range of floats.
    rest = h[~safe]
    largest = np.abs(rest).max(1, keepdims=True, initial=0)
    unit = np.divide(rest, largest, out=np.zeros_like(rest), where=largest > 0)
    length = np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    result[~safe] = np.divide(unit, length, out=np.zeros_like(rest), where=length > 0)
    return result


def clip(h: Floats, limit: float = 0.2) -> Floats:
    """SIFT's own: unit length, no entry above ``limit``, unit length again."""
    return l2(np.clip(l2(h), -limit, limit))


def root(h: Floats) -> Floats:
    """The square root of the entries as shares of their sum (RootSIFT): unit length again.

    Comparing roots by Euclidean distance is comparing histograms by Hellinger's. The tiny negative
    entries that a truncated series or a signed kernel can have count as zero.
    """
    return l2(np.sqrt(np.maximum(l2(h), 0)))


def normalise(h: Floats, how: Normalisation) -> Floats:
    """Raw descriptors (n, d) by the named method."""
    methods: dict[str, Callable[[Floats], Floats]] = {
        "none": lambda raw: raw,
        "l2": l2,
        "clip": clip,
        "root": root,
    }
    if not isinstance(how, str) or how not in methods:
        raise unknown("normalisation", how, methods)
    return methods[how](h)


def to_uint8(h: Floats, signed: bool = False) -> NDArray[np.uint8]:
    """round(512 h), at most 255: how SIFT descriptors of unit length are stored by other tools.

    Whitened descriptors have signs: round(256 h) + 128. Distances are the same up to the factor.
    """
    scaled = np.rint(256 * h) + 128 if signed else np.rint(512 * h)
    return np.asarray(np.clip(scaled, 0, 255), np.uint8)
