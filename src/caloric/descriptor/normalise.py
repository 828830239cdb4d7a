"""The one home of normalisation: what is done to a raw descriptor before it is compared."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.density import Floats
from caloric.errors import unknown

Normalisation = Literal["none", "l2", "clip", "root"]
ArrayOrTensor = Any
CLIP = 0.2  # the largest entry of a clipped descriptor


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


def clip(h: ArrayOrTensor, l2: Callable[[ArrayOrTensor], ArrayOrTensor] = l2) -> ArrayOrTensor:
    """Return SIFT's own normalisation: unit length, no entry above 0.2, unit length again.

    Of arrays, or of tensors with their own ``l2``.
    """
    return l2(l2(h).clip(-CLIP, CLIP))


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
    return np.asarray(levels(h, signed), np.uint8)


def levels(h: ArrayOrTensor, signed: bool) -> ArrayOrTensor:
    """Return the levels of :func:`to_uint8` as floats, of arrays or tensors."""
    scaled = (256 * h).round() + 128 if signed else (512 * h).round()
    return scaled.clip(0, 255)
