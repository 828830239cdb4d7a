"""Image pairs with homographies, read from local copies of public data sets."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.runtime.files import check_input_directory
from caloric.types import FloatArray

_IMAGES = (".png", ".ppm", ".pgm", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class Pair:
    """Two image files and the homography (3, 3) from the first to the second.

    ``group`` names the sequence, or the type of change between the images.
    """

    name: str
    group: str
    first: Path
    second: Path
    homography: FloatArray


def photographs(directory: Path) -> list[Path]:
    """Return the .jpg and .png files below a directory, sorted by name."""
    return sorted(p for p in directory.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))


def required_photographs(directory: Path) -> list[Path]:
    """Return the same, and raise InputError if there are none."""
    paths = photographs(directory)
    if not paths:
        raise InputError(f"{directory}: contains no images (.jpg, .png)")
    return paths


def _image(directory: Path, stem: str) -> Path:
    for suffix in _IMAGES:
        if (directory / f"{stem}{suffix}").is_file():
            return directory / f"{stem}{suffix}"
    raise InputError(f"{directory}: contains no image {stem} ({', '.join(_IMAGES)})")


def _homography(path: Path) -> FloatArray:
    try:
        matrix = np.loadtxt(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a homography ({error})") from None
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise InputError(f"{path}: not a homography: expected shape (3, 3), got {matrix.shape}")
    if abs(np.linalg.det(matrix)) < 1e-12 * np.abs(matrix).max() ** 3:
        raise InputError(f"{path}: not a homography: the matrix cannot be inverted")
    return matrix


def _scenes(directory: Path, pattern: str) -> list[Path]:
    """Return the subdirectories that contain a file matching a pattern."""
    check_input_directory(directory, "; name the directory of the data set with --data")
    scenes = sorted(p for p in directory.iterdir() if p.is_dir() and any(p.glob(pattern)))
    if not scenes:
        raise InputError(f"{directory}: no subdirectory contains {pattern}; is this the data set?")
    return scenes


def oxford(directory: Path) -> list[Pair]:
    """Return the pairs of ``<sequence>/img1..6.png`` (or .ppm) with ``H1to2p .. H1to6p``."""
    return [
        Pair(
            f"{scene.name} {k}",
            scene.name,
            _image(scene, "img1"),
            _image(scene, f"img{k}"),
            _homography(scene / f"H1to{k}p"),
        )
        for scene in _scenes(directory, "H1to2p")
        for k in range(2, 7)
    ]


def fischer(directory: Path) -> list[Pair]:
    """Return the pairs of ``<scene>/original.*`` and ``<transform>.*`` with ``H_<transform>``."""
    pairs = []
    for scene in _scenes(directory, "H_*"):
        for matrix in sorted(scene.glob("H_*")):
            change = matrix.name.removeprefix("H_").removesuffix(".txt")
            pairs.append(
                Pair(
                    f"{scene.name} {change}",
                    change.rstrip("0123456789_"),
                    _image(scene, "original"),
                    _image(scene, change),
                    _homography(matrix),
                )
            )
    return pairs


def hpatches(directory: Path) -> list[Pair]:
    """Return the pairs of ``v_*/`` (viewpoint) and ``i_*/`` (illumination) directories.

    A directory contains ``1..6.ppm`` and ``H_1_2 .. H_1_6``.
    """
    groups = {"v": "viewpoint", "i": "illumination"}
    return [
        Pair(
            f"{scene.name} {k}",
            groups.get(scene.name[0], scene.name),
            _image(scene, "1"),
            _image(scene, str(k)),
            _homography(scene / f"H_1_{k}"),
        )
        for scene in _scenes(directory, "H_1_2")
        for k in range(2, 7)
    ]


DATASETS: dict[str, Callable[[Path], list[Pair]]] = {
    "oxford": oxford,
    "fischer": fischer,
    "hpatches": hpatches,
}
