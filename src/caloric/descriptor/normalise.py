"""The normalisation of raw descriptors, and their conversion to bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.density import Floats
from caloric.errors import unknown
from caloric.types import Normalisation

ArrayOrTensor = Any
CLIP = 0.2  # the largest entry of a clipped descriptor
# Bytes: round(UNSIGNED h), or where entries have signs round(SIGNED h) + OFFSET.
UNSIGNED, SIGNED, OFFSET = 512, 256, 128


def l2(h: Floats) -> Floats:
    """Return rows (n, d) of unit length; zero rows stay zero, and no row affects another."""
    square = np.einsum("ij,ij->i", h, h)
    safe = (square > 1e-30) & (square < 1e30)
    if safe.all():
        return np.asarray(h / np.sqrt(square)[:, None])
    result = np.empty_like(h)
    result[safe] = h[safe] / np.sqrt(square[safe])[:, None]
    # Divide by the largest entry first, so that no square overflows or underflows.
    rest = h[~safe]
    largest = np.abs(rest).max(1, keepdims=True, initial=0)
    unit = np.divide(rest, largest, out=np.zeros_like(rest), where=largest > 0)
    length = np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    result[~safe] = np.divide(unit, length, out=np.zeros_like(rest), where=length > 0)
    return result


def clip(h: ArrayOrTensor, l2: Callable[[ArrayOrTensor], ArrayOrTensor] = l2) -> ArrayOrTensor:
    """Return rows normalised as in SIFT: unit length, no entry above 0.2, unit length again.

    Tensors need their own ``l2``.
    """
    return l2(l2(h).clip(-CLIP, CLIP))


def root(h: Floats) -> Floats:
    """Return the square roots of the entries (RootSIFT), scaled to unit length.

    The Euclidean distance of the roots is the Hellinger distance of the histograms. The small
    negative entries that a truncated series or a signed kernel can cause are set to zero.
    """
    return l2(np.sqrt(np.maximum(l2(h), 0)))


def normalise(h: Floats, how: Normalisation) -> Floats:
    """Return raw descriptors (n, d) normalised by the named method."""
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
    """Return round(512 h), at most 255, as other tools store SIFT descriptors of unit length.

    Whitened descriptors are signed: round(256 h) + 128. Distances are the same up to the factor.
    """
    return np.asarray(levels(h, signed), np.uint8)


def levels(h: ArrayOrTensor, signed: bool) -> ArrayOrTensor:
    """Return the values of :func:`to_uint8` as floats, for arrays or tensors."""
    scaled = (SIGNED * h).round() + OFFSET if signed else (UNSIGNED * h).round()
    return scaled.clip(0, 255)
