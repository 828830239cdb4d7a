"""Features and matches in HDF5, one group per image or pair, in the format of hloc. Needs h5py.

Conventions of hloc: keypoints (n, 2) with pixel centres at integers, ``oris`` in degrees,
descriptors (d, n) as floats of unit length, and scores of matches (similarity + 1) / 2.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.conversion import unit_descriptors
from caloric.runtime.files import replacing_path


def h5py() -> Any:
    """Return the h5py module, or raise an error that says how to get it."""
    try:
        import h5py as library
    except ImportError:
        raise InputError("writing HDF5 needs h5py; install it with: pip install h5py") from None
    return library


def write(path: Path, features: Iterable[tuple[str, Features]]) -> None:
    """Write the features of images, by name, to a new file; a failure leaves no partial file."""
    library = h5py()
    with replacing_path(path) as name, library.File(name, "w") as file:
        for image, entry in features:
            group = file.create_group(image)
            keypoints = group.create_dataset("keypoints", data=entry.frames.xy.astype("f4"))
            keypoints.attrs["uncertainty"] = 1.0
            group["scales"] = entry.frames.sigma.astype("f4")
            group["oris"] = np.degrees(entry.frames.angle).astype("f4")
            group["scores"] = entry.scores
            descriptors = group.create_dataset("descriptors", data=unit_descriptors(entry).T)
            descriptors.attrs["encoding"] = "unit"
            group["image_size"] = np.array(entry.image_size[::-1])


Pair = tuple[str, str, NDArray[np.uint32], NDArray[np.float32], int]


def write_matches(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs: names a and b, matches (m, 2), distances (m,), number of features of a.

    hloc names a pair by its image names with dashes for slashes. ``matches0`` has the matching
    feature of the second image for each feature of the first, or -1; ``matching_scores0`` is
    (similarity + 1) / 2. Distances are those of descriptors of unit length.
    """
    library = h5py()
    with replacing_path(path) as name, library.File(name, "w") as file:
        for name_a, name_b, matches, distances, count in pairs:
            pair = f"{name_a.replace('/', '-')}/{name_b.replace('/', '-')}"
            if pair in file:
                raise InputError(
                    f"{name_a}, {name_b}: hloc replaces slashes by dashes, and another pair then "
                    "has the same name; rename one of the images"
                )
            group = file.create_group(pair)
            nearest = np.full(count, -1, np.int32)
            nearest[matches[:, 0]] = matches[:, 1]
            scores = np.zeros(count, np.float16)
            # |a - b|² = 2 - 2 a·b
            scores[matches[:, 0]] = np.clip(1 - distances**2 / 4, 0, 1)
            group.create_dataset("matches0", data=nearest)
            group.create_dataset("matching_scores0", data=scores)
