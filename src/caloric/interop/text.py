"""Features and matches in the text format of COLMAP's importers."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.conversion import sift_bytes
from caloric.runtime.files import replacing


def write(path: Path, features: Features) -> None:
    """Write a line ``NUMBER 128``, then x, y, scale, angle and 128 bytes for each feature."""
    frames = features.frames
    rows = np.column_stack([frames.xy + 0.5, frames.sigma, frames.angle])
    with replacing(path) as file:
        file.write(f"{len(features)} 128\n".encode())
        for row, values in zip(rows.tolist(), sift_bytes(features).tolist(), strict=True):
            numbers = " ".join(f"{v:.6g}" for v in row)
            file.write(f"{numbers} {' '.join(map(str, values))}\n".encode())


def check_name(name: str) -> None:
    """Raise an error if COLMAP's matches importer cannot read an image name."""
    if len(name.split()) != 1:
        raise InputError(
            f"{name!r}: COLMAP's matches_importer reads names up to the first space; "
            "rename the image, or use export --to colmap"
        )


def write_matches(path: Path, pairs: Iterable[tuple[str, str, NDArray[np.integer]]]) -> None:
    """Write pairs, each as two names, the feature indices (m, 2), and an empty line."""
    with replacing(path) as file:
        for name_a, name_b, indices in pairs:
            check_name(name_a)
            check_name(name_b)
            rows = "".join(f"{i} {j}\n" for i, j in indices.tolist())
            file.write(f"{name_a} {name_b}\n{rows}\n".encode())
