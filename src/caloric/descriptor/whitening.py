"""Whitening: projection onto the principal directions, with the strong ones attenuated.

    w = V Λ^(−t/2),    Σ = V Λ V^T the second moments of descriptors, eigenvalues decreasing

t = 0 is a rotation, and t = 1 makes all directions equally strong; values in between reduce the
weight of what many descriptors have in common without amplifying noise. The first d columns are
kept. The supervised variant first whitens the differences of matched pairs.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import normalize
from caloric.descriptor.density import Floats
from caloric.errors import InputError
from caloric.runtime import native
from caloric.types import FloatArray


def _principal(moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return decreasing eigenvalues, and eigenvectors whose largest entries are positive."""
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    return np.maximum(values, 1e-12 * values[0]), vectors * np.sign(largest)


def _moments(descriptors: Floats) -> FloatArray:
    rows = descriptors.astype(np.float64)
    return np.asarray(rows.T @ rows / len(rows))


def learn(descriptors: Floats, t: float, dimension: int) -> NDArray[np.float32]:
    """Return the matrix (D, d) learned from normalized descriptors (n, D), without centering."""
    values, vectors = _principal(_moments(descriptors))
    matrix = vectors[:, :dimension] * values[:dimension] ** (-t / 2)
    return np.asarray(matrix / np.abs(matrix).max(), np.float32)


def learn_supervised(
    a: Floats, b: Floats, t: float, dimension: int, shrink: float = 0.1
) -> NDArray[np.float32]:
    """Return the matrix (D, d) learned from matched descriptors a and b, (n, D) each.

    ``shrink`` times the mean variance of the differences is added to the variance in all
    directions. It limits the weight of directions in which the training pairs hardly differ.
    """
    within = _moments(a - b)
    within += shrink * np.trace(within) / len(within) * np.eye(len(within))
    values, vectors = _principal(within)
    first = vectors * values**-0.5
    second = learn(np.concatenate([a, b]) @ first, t, dimension)
    matrix = first @ second
    return np.asarray(matrix / np.abs(matrix).max(), np.float32)


def whitener(matrix: Floats) -> Callable[[Floats], Floats]:
    """Return :func:`apply` for one matrix, to be called for many blocks."""
    core = native.core()
    packed = core and core.pack(np.ascontiguousarray(matrix.T, np.float32))

    def whiten(h: Floats) -> Floats:
        if core is None or h.dtype != np.float32:
            return np.asarray(normalize.l2(h @ matrix.astype(h.dtype, copy=False)))
        # The order of summation in BLAS depends on the processor.
        result = np.empty((len(h), matrix.shape[1]), np.float32)
        core.product(h, packed, result)
        return np.asarray(normalize.l2(result))

    return whiten


def apply(h: Floats, matrix: Floats) -> Floats:
    """Return normalized descriptors (n, D) whitened to (n, d) and scaled to unit length."""
    return whitener(matrix)(h)


def load(name: str) -> NDArray[np.float32]:
    """Return the matrix (D, d) of a name in the package data, or of an .npy file."""
    if not name.endswith(".npy"):
        return _read(name, 0)
    path = Path(name)
    return _read(name, path.stat().st_mtime_ns if path.is_file() else 0)


@cache
def _read(name: str, modified: int) -> NDArray[np.float32]:
    """Return the matrix of a name or a file, which is read again if it was modified."""
    data: Traversable = resources.files("caloric") / "data" / f"{name}.npy"
    file = Path(name) if name.endswith(".npy") else data
    if not file.is_file():
        raise InputError(f"unknown whitening {name!r}; name an .npy file of learn_whitening")
    try:
        with file.open("rb") as stream:
            matrix = np.load(stream, allow_pickle=False).astype(np.float32)
    except ValueError as error:
        raise InputError(f"{name}: not a whitening matrix ({error})") from None
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise InputError(f"{name}: not a whitening matrix, which has two axes and finite entries")
    matrix.setflags(write=False)
    return np.asarray(matrix)


def fingerprint(name: str) -> str:
    """Return a hash of the contents of a matrix."""
    return hashlib.sha256(load(name).tobytes()).hexdigest()[:16]
