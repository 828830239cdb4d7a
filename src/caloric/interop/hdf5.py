"""Features and matches in HDF5, one group an image or pair, as hloc reads them. Needs h5py.

hloc's conventions: keypoints (n, 2) with pixel centres at integers, ``oris`` in degrees,
descriptors (d, n).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.runtime.files import replacing_path


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError("writing HDF5 needs h5py; install it with: pip install h5py") from None
    return h5py


def write(path: Path, features: Iterable[tuple[str, Features]]) -> None:
    """Write a new file: whole, or not at all."""
    h5py = _h5py()
    with replacing_path(path) as name, h5py.File(name, "w") as file:
        for image, found in features:
            group = file.create_group(image)
            keypoints = group.create_dataset("keypoints", data=found.frames.xy.astype("f4"))
            keypoints.attrs["uncertainty"] = 1.0
            group["scales"] = found.frames.sigma.astype("f4")
            group["oris"] = np.degrees(found.frames.angle).astype("f4")
            group["scores"] = found.scores
            group["descriptors"] = found.descriptors.T
            group["image_size"] = np.array(found.image_size[::-1])


Pair = tuple[str, str, NDArray[np.uint32], NDArray[np.float32], int]


def write_matches(path: Path, pairs: Iterable[Pair]) -> None:
    """Of (name_a, name_b, matches (m, 2), distances (m,), features of a): whole, or not at all.

    hloc knows a pair by its names with dashes for slashes; ``matches0`` has for each feature of the
    first image that of the second, or −1, and ``matching_scores0`` 1 less half the distance.
    """
    h5py = _h5py()
    with replacing_path(path) as name, h5py.File(name, "w") as file:
        for name_a, name_b, matches, distances, count in pairs:
            pair = f"{name_a.replace('/', '-')}/{name_b.replace('/', '-')}"
            if pair in file:
                raise InputError(
                    f"{name_a}, {name_b}: hloc writes dashes for slashes, and has another pair of "
                    "that name then; rename one of the images"
                )
            group = file.create_group(pair)
            nearest = np.full(count, -1, np.int32)
            nearest[matches[:, 0]] = matches[:, 1]
            scores = np.zeros(count, np.float16)
            scores[matches[:, 0]] = 1 - distances / 2
            group.create_dataset("matches0", data=nearest)
            group.create_dataset("matching_scores0", data=scores)
