"""Normalization of raw descriptors and conversion to bytes, for arrays or tensors."""

from collections.abc import Callable

import numpy as np

from caloric.errors import unknown
from caloric.runtime.arrays import inner, namespace, positive_root
from caloric.types import ArrayOrTensor, Normalization

CLIP = 0.2  # largest entry of a clipped descriptor
# Bytes are round(UNSIGNED h), or round(SIGNED h) + OFFSET if entries have signs.
UNSIGNED, SIGNED, OFFSET = 512, 256, 128


def l2(h: ArrayOrTensor) -> ArrayOrTensor:
    """Return the rows (n, d) scaled to unit length; zero rows stay zero, with derivatives of 0."""
    xp = namespace(h)
    if xp is np:
        square = inner(h, h, 1)[:, None]
        safe = (square > 1e-30) & (square < 1e30)
        if safe.all():
            return h / np.sqrt(square)
        largest = np.where(safe, 1, np.abs(h).max(1, keepdims=True, initial=0))
    else:
        largest = h.detach().abs().amax(1, keepdim=True)
    # Divide by the largest entry first, so that no square overflows or underflows.
    nonzero = largest > 0
    unit = h / xp.where(nonzero, largest, 1.0)
    square = inner(unit, unit, 1)[:, None]
    return xp.where(nonzero, unit / xp.sqrt(xp.where(nonzero, square, 1.0)), 0.0)


def clip(h: ArrayOrTensor) -> ArrayOrTensor:
    """Return the rows normalized as in SIFT: unit length, clipped at 0.2, unit length again."""
    return l2(l2(h).clip(-CLIP, CLIP))


def root(h: ArrayOrTensor) -> ArrayOrTensor:
    """Return the square roots of the entries (RootSIFT), scaled to unit length.

    The Euclidean distance of the roots is the Hellinger distance of the histograms. Negative
    entries, which a truncated series or a signed kernel can cause, are set to zero.
    """
    return l2(positive_root(l2(h)))


def normalize(h: ArrayOrTensor, how: Normalization) -> ArrayOrTensor:
    """Return raw descriptors (n, d) normalized by the named method."""
    methods: dict[str, Callable[[ArrayOrTensor], ArrayOrTensor]] = {
        "none": lambda raw: raw,
        "l2": l2,
        "clip": clip,
        "root": root,
    }
    if not isinstance(how, str) or how not in methods:
        raise unknown("normalisation", how, methods)
    return methods[how](h)


def to_uint8(h: ArrayOrTensor, signed: bool = False) -> ArrayOrTensor:
    """Return min(round(512 h), 255), the usual encoding of SIFT descriptors of unit length.

    Whitened descriptors are signed: round(256 h) + 128. Distances are the same up to the factor.
    """
    scaled = (SIGNED * h).round() + OFFSET if signed else (UNSIGNED * h).round()
    xp = namespace(h)
    return xp.asarray(scaled.clip(0, 255), dtype=xp.uint8)
