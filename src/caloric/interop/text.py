"""Features as COLMAP's text files: one line a feature."""

from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.files import replacing


def write(path: Path, features: Features) -> None:
    """NUMBER 128, then x y scale angle and 128 bytes a line: COLMAP's feature importer reads it."""
    if features.descriptors.dtype != np.uint8 or features.descriptors.shape[1] != 128:
        raise InputError("COLMAP's text files hold descriptors of 128 bytes; extract with uint8")
    frames = features.frames
    rows = np.column_stack([frames.xy + 0.5, frames.sigma, frames.angle])
    with replacing(path) as file:
        file.write(f"{len(features)} 128\n".encode())
        for row, values in zip(rows.tolist(), features.descriptors.tolist(), strict=True):
            numbers = " ".join(f"{v:.6g}" for v in row)
            file.write(f"{numbers} {' '.join(map(str, values))}\n".encode())
