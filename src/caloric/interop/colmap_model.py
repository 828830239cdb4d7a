"""COLMAP models: their summary and their registered images."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Reconstruction:
    """The summary of a model.

    Attributes
    ----------
    directory : Path
        The directory of the model's files.
    images : tuple of str
        Names of the registered images, sorted.
    points : int
        The number of 3-D points.
    error : float
        The mean reprojection error in pixels.
    """

    directory: Path
    images: tuple[str, ...]
    points: int
    error: float

    def __str__(self) -> str:
        """Return the summary in one line."""
        return (
            f"{len(self.images)} images registered, {self.points:,} points, mean reprojection "
            f"error {self.error:.2f} px: {self.directory}"
        )


@dataclass(frozen=True, eq=False)
class RegisteredImage:
    """An image of a model.

    ``rotation`` (w, x, y, z) and ``translation`` (3,) map world to camera coordinates; ``points``
    (n,) has the id of the 3-D point of each keypoint, or -1.
    """

    name: str
    rotation: tuple[float, ...]
    translation: tuple[float, ...]
    points: NDArray[np.int64]


def registered(directory: Path) -> Iterator[RegisteredImage]:
    """Yield the registered images of a model from images.bin, which all COLMAP versions write."""
    data = (directory / "images.bin").read_bytes()
    (count,), offset = struct.unpack_from("<Q", data), 8
    for _ in range(count):
        _, *pose, _ = struct.unpack_from("<I7dI", data, offset)
        end = data.index(b"\0", offset + 64)
        name = data[offset + 64 : end].decode()
        (keypoints,) = struct.unpack_from("<Q", data, end + 1)
        rows = np.frombuffer(data, np.dtype("<f8, <f8, <i8"), keypoints, end + 9)
        offset = end + 9 + 24 * keypoints
        yield RegisteredImage(name, tuple(pose[:4]), tuple(pose[4:]), rows["f2"])


def summary(directory: Path, points: int, error: float) -> Reconstruction:
    """Return the summary of the model in a directory."""
    return Reconstruction(
        directory, tuple(sorted(i.name for i in registered(directory))), points, error
    )
