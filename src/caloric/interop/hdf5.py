"""Features in HDF5, one group an image, in the layout that hloc reads. Needs h5py.

hloc's conventions: keypoints (n, 2) with pixel centres at integers, ``oris`` in degrees,
descriptors (d, n).
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.files import replacing_path


def write(path: Path, features: Iterable[tuple[str, Features]]) -> None:
    """Write a new file: whole, or not at all."""
    try:
        import h5py
    except ImportError:
        raise InputError("writing HDF5 needs h5py; install it with: pip install h5py") from None
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
