"""Training of a whitening matrix on a user's images."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from caloric.descriptor import recipes, whitening
from caloric.descriptor.recipes import Descriptor
from caloric.errors import InputError
from caloric.runtime import threads
from caloric.runtime.files import check_target, replacing
from caloric.types import FloatArray


@threads.single_threaded_blas
def learn_whitening(
    descriptors: Iterable[FloatArray],
    path: str | Path,
    *,
    dimensions: int = 128,
    strength: float = 0.8,
) -> Descriptor:
    """Learn a whitening matrix for the default descriptor and save it.

    Parameters
    ----------
    descriptors : iterable of array (n, 208)
        Descriptors "caloric-unwhitened" of training images; a few tens of thousands in all.
    path : str or Path
        The .npy file to write. Its name can be passed as ``descriptor`` to all functions.
    dimensions : int
        Length of the whitened descriptors.
    strength : float
        Exponent t of the whitening: 0 only rotates, 1 makes all directions equally strong.

    Returns
    -------
    Descriptor
        The recipe of the default descriptor with the new whitening.

    Examples
    --------
    >>> import caloric, numpy as np, tempfile
    >>> image = np.random.default_rng(0).random((200, 300))
    >>> features = caloric.extract(image, "caloric-unwhitened")
    >>> path = f"{tempfile.mkdtemp()}/mine.npy"
    >>> mine = caloric.learn_whitening([features.descriptors], path, dimensions=64)
    >>> caloric.extract(image, path).descriptors.shape[1]
    64
    """
    target, length = Path(path), recipes.descriptor("caloric-unwhitened").dimension
    if target.suffix != ".npy":
        raise InputError(f"{target}: the name of a whitening matrix ends in .npy")
    check_target(target)
    blocks = [np.asarray(block, np.float32) for block in descriptors]
    if any(block.ndim != 2 or block.shape[1] != length for block in blocks):
        shapes = sorted({block.shape for block in blocks})
        raise InputError(
            f"descriptors must have the shape (n, {length}), got {shapes}; extract them with "
            'descriptor="caloric-unwhitened"'
        )
    if not 1 <= dimensions <= length:
        raise InputError(f"dimensions must be 1 to {length}, got {dimensions!r}")
    if not 0 <= strength <= 1:
        raise InputError(f"strength must be in [0, 1], got {strength!r}")
    rows = np.concatenate(blocks) if blocks else np.empty((0, length), np.float32)
    if len(rows) < length:
        raise InputError(
            f"{len(rows)} descriptors are too few to learn {length} directions; use more images"
        )
    with replacing(target) as file:
        np.save(file, whitening.learn(rows, strength, dimensions))
    return recipes.descriptor(str(target))
