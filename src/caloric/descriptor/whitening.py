"""Whitening: a descriptor turned onto its principal directions, the strong ones made weaker.

    w = V Λ^(−t/2),    Σ = V Λ V^T the second moments of descriptors, eigenvalues falling

t = 0 only turns, t = 1 makes all directions equal; between them, what many descriptors share counts
for less without noise counting for more. The first d columns are kept. The supervised form first
makes the differences of matched pairs equal in all directions, then turns likewise.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalise
from caloric.descriptor.density import Floats
from caloric.errors import InputError
from caloric.runtime import native
from caloric.theory.gaussians import FloatArray


def _principal(moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues, falling, and eigenvectors, each with its largest entry positive."""
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    return np.maximum(values, 1e-12 * values[0]), vectors * np.sign(largest)


def _moments(descriptors: Floats) -> FloatArray:
    rows = descriptors.astype(np.float64)
    return np.asarray(rows.T @ rows / len(rows))


def learn(descriptors: Floats, t: float, dimension: int) -> NDArray[np.float32]:
    """(D, d): from normalised descriptors (n, D), of anything. Not centred: angles are kept."""
    values, vectors = _principal(_moments(descriptors))
    matrix = vectors[:, :dimension] * values[:dimension] ** (-t / 2)
    return np.asarray(matrix / np.abs(matrix).max(), np.float32)


def learn_supervised(
    a: Floats, b: Floats, t: float, dimension: int, shrink: float = 0.1
) -> NDArray[np.float32]:
    """(D, d): from descriptors (n, D) of the same places in two images.

    The differences' moments are mixed with a share ``shrink`` of a round one, so that directions in
    which nothing was seen to change are not trusted without end.
    """
    within = _moments(a - b)
    within += shrink * np.trace(within) / len(within) * np.eye(len(within))
    values, vectors = _principal(within)
    first = vectors * values**-0.5
    second = learn(np.concatenate([a, b]) @ first, t, dimension)
    matrix = first @ second
    return np.asarray(matrix / np.abs(matrix).max(), np.float32)


def by(matrix: Floats) -> Callable[[Floats], Floats]:
    """Whitening by a matrix, to be applied to many blocks: see :func:`apply`."""
    core = native.core()
    packed = core and core.pack(np.ascontiguousarray(matrix.T, np.float32))

    def whiten(h: Floats) -> Floats:
        if core is None or h.dtype != np.float32:
            return normalise.l2(h @ matrix.astype(h.dtype, copy=False))
        # BLAS sums in an order of each processor's own.
        result = np.empty((len(h), matrix.shape[1]), np.float32)
        core.product(h, packed, result)
        return normalise.l2(result)

    return whiten


def apply(h: Floats, matrix: Floats) -> Floats:
    """Normalised descriptors (n, D) whitened to (n, d), of unit length; zero stays zero."""
    return by(matrix)(h)


@cache
def load(name: str) -> NDArray[np.float32]:
    """The matrix that is shipped under this name."""
    file = resources.files("caloric") / "data" / f"{name}.npy"
    if not file.is_file():
        raise InputError(f"unknown whitening {name!r}")
    with file.open("rb") as stream:
        matrix = np.load(stream, allow_pickle=False).astype(np.float32)
    matrix.setflags(write=False)
    return np.asarray(matrix)


@cache
def fingerprint(name: str) -> str:
    """Of the matrix itself: another one of the same name makes other descriptors."""
    return hashlib.sha256(load(name).tobytes()).hexdigest()[:16]
