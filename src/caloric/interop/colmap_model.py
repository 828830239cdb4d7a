"""COLMAP models: their cameras, images and points.

Models of any version are read, from binary or text files, and written as binary files.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.runtime.files import replacing
from caloric.runtime.words import counted
from caloric.types import FloatArray

# Number of focal lengths, which come first, and of parameters, by COLMAP's id of the camera model.
CAMERA_MODELS = {
    0: ("SIMPLE_PINHOLE", 1, 3), 1: ("PINHOLE", 2, 4), 2: ("SIMPLE_RADIAL", 1, 4),
    3: ("RADIAL", 1, 5), 4: ("OPENCV", 2, 8), 5: ("OPENCV_FISHEYE", 2, 8),
    6: ("FULL_OPENCV", 2, 12), 7: ("FOV", 2, 5), 8: ("SIMPLE_RADIAL_FISHEYE", 1, 4),
    9: ("RADIAL_FISHEYE", 1, 5), 10: ("THIN_PRISM_FISHEYE", 2, 12),
}  # fmt: skip
DEFAULT_FOCAL = 1.2  # times the longer side: COLMAP's focal length without EXIF data
BINARY_FILES = "cameras.bin", "images.bin", "points3D.bin"
_POINT = struct.Struct("<Q3d3BdQ")  # id, position, color, error, track length


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
    track_length : float
        The mean number of observations of a point, as in COLMAP; an image may have several.
    cameras : int
        The number of cameras.
    origin : tuple of float
        Latitude, longitude and altitude of the origin, if the coordinates are meters to the east,
        to the north and up; () if orientation and scale are arbitrary.
    """

    directory: Path
    images: tuple[str, ...]
    points: int
    error: float
    track_length: float
    cameras: int
    origin: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return the summary in one line."""
        coordinates = ", in meters by GPS" if self.origin else ""
        return (
            f"{counted(len(self.images), 'image')} registered, {counted(self.points, 'point')}, "
            f"mean reprojection error {self.error:.2f} px{coordinates}: {self.directory}"
        )


@dataclass(frozen=True)
class Camera:
    """A camera: COLMAP's model name, the image size in pixels, and the parameters of the model."""

    model: str
    width: int
    height: int
    parameters: tuple[float, ...]

    @property
    def focal(self) -> float:
        """Return the (first) focal length in pixels."""
        return self.parameters[0]


@dataclass(frozen=True, eq=False)
class RegisteredImage:
    """An image of a model.

    ``rotation`` (w, x, y, z) and ``translation`` (3,) map world to camera coordinates; ``xy``
    (n, 2) has the keypoints in COLMAP's coordinates, and ``points`` (n,) the id of the 3-D point
    of each keypoint, or -1.
    """

    number: int
    name: str
    camera: int
    rotation: tuple[float, ...]
    translation: tuple[float, ...]
    xy: FloatArray
    points: NDArray[np.int64]

    @property
    def matrix(self) -> FloatArray:
        """Return the rotation (3, 3) from world to camera coordinates."""
        # As in COLMAP, the quaternion need not have unit length.
        w, x, y, z = np.array(self.rotation) / np.linalg.norm(self.rotation)
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    @property
    def center(self) -> FloatArray:
        """Return the camera center (3,) in world coordinates."""
        return np.asarray(-self.matrix.T @ np.array(self.translation))


@dataclass(frozen=True, eq=False)
class Points:
    """The points of a model.

    ``ids`` (n,), ``xyz`` (n, 3), ``colors`` (n, 3) of uint8, ``errors`` (n,) are the mean
    reprojection errors in pixels, ``lengths`` (n,) the numbers of observations of each point.
    """

    ids: NDArray[np.int64]
    xyz: FloatArray
    colors: NDArray[np.uint8]
    errors: FloatArray
    lengths: NDArray[np.int64]


def _read(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        raise InputError(f"{directory / name}: cannot be read ({error.strerror})") from None


def _is_text(directory: Path) -> bool:
    return not (directory / "images.bin").exists() and (directory / "images.txt").is_file()


def _lines(directory: Path, name: str) -> Iterator[list[str]]:
    """Yield the words of each line of a text file, without comments."""
    for line in _read(directory, name).decode("utf-8", "replace").splitlines():
        if not line.startswith("#"):
            yield line.split()


def _text_cameras(directory: Path) -> dict[int, Camera]:
    known = {name: size for name, _, size in CAMERA_MODELS.values()}
    result = {}
    for words in _lines(directory, "cameras.txt"):
        if not words:
            continue
        number, name, width, height, *parameters = words
        if name not in known:
            raise InputError(f"{directory}: unknown camera model {name}")
        if len(parameters) != known[name]:
            raise InputError(
                f"{directory}: camera {number} ({name}) has {len(parameters)} parameters instead "
                f"of {known[name]}"
            )
        result[int(number)] = Camera(name, int(width), int(height), tuple(map(float, parameters)))
    return result


def _text_images(directory: Path) -> Iterator[RegisteredImage]:
    lines = _lines(directory, "images.txt")
    for words in lines:
        if not words:
            continue
        number, *pose, camera = words[:9]
        rows = np.array(next(lines, []), np.float64).reshape(-1, 3)
        rotation, translation = tuple(map(float, pose[:4])), tuple(map(float, pose[4:]))
        yield RegisteredImage(
            int(number), " ".join(words[9:]), int(camera), rotation, translation, rows[:, :2],
            rows[:, 2].astype(np.int64),
        )  # fmt: skip


def cameras(directory: Path) -> dict[int, Camera]:
    """Return the cameras of a model by id."""
    if _is_text(directory):
        return _text_cameras(directory)
    data = _read(directory, "cameras.bin")
    (count,), offset = struct.unpack_from("<Q", data), 8
    result = {}
    for _ in range(count):
        number, kind, width, height = struct.unpack_from("<IiQQ", data, offset)
        if kind not in CAMERA_MODELS:
            raise InputError(f"{directory}: unknown camera model {kind}")
        name, _, size = CAMERA_MODELS[kind]
        parameters = struct.unpack_from(f"<{size}d", data, offset + 24)
        result[number] = Camera(name, width, height, parameters)
        offset += 24 + 8 * size
    return result


def registered(directory: Path) -> Iterator[RegisteredImage]:
    """Yield the registered images of a model."""
    if _is_text(directory):
        yield from _text_images(directory)
        return
    data = _read(directory, "images.bin")
    (count,), offset = struct.unpack_from("<Q", data), 8
    for _ in range(count):
        number, *pose, camera = struct.unpack_from("<I7dI", data, offset)
        end = data.index(b"\0", offset + 64)
        name = data[offset + 64 : end].decode()
        (keypoints,) = struct.unpack_from("<Q", data, end + 1)
        rows = np.frombuffer(data, np.dtype("<f8, <f8, <i8"), keypoints, end + 9)
        offset = end + 9 + 24 * keypoints
        xy = np.stack([rows["f0"], rows["f1"]], 1)
        yield RegisteredImage(
            number, name, camera, tuple(pose[:4]), tuple(pose[4:]), xy, rows["f2"]
        )


def points(directory: Path) -> Points:
    """Return the points of a model."""
    rows: list[tuple[float, ...]] = []
    if _is_text(directory):
        for words in _lines(directory, "points3D.txt"):
            if words:
                rows.append((*map(float, words[:8]), (len(words) - 8) // 2))
    else:
        data = _read(directory, "points3D.bin")
        (count,), offset = struct.unpack_from("<Q", data), 8
        for _ in range(count):
            row = _POINT.unpack_from(data, offset)
            rows.append(row)
            offset += _POINT.size + 8 * row[-1]
    table = np.array(rows, np.float64).reshape(-1, 9)
    return Points(
        table[:, 0].astype(np.int64), table[:, 1:4], table[:, 4:7].astype(np.uint8), table[:, 7],
        table[:, 8].astype(np.int64),
    )  # fmt: skip


def summary(directory: Path) -> Reconstruction:
    """Return the summary of the model in a directory."""
    content = points(directory)
    count = len(content.ids)
    return Reconstruction(
        directory,
        tuple(sorted(image.name for image in registered(directory))),
        count,
        float(content.errors.mean()) if count else 0.0,
        float(content.lengths.mean()) if count else 0.0,
        len(cameras(directory)),
    )


def models(directory: Path) -> list[Path]:
    """Return the directories of the models in a directory, or the directory if it is a model."""
    if (directory / "images.bin").is_file() or _is_text(directory):
        return [directory]
    directories = [path.parent for path in directory.glob("*/images.bin")]
    return sorted(directories, key=lambda path: (len(path.name), path.name))


def write(
    directory: Path,
    cameras: Mapping[int, Camera],
    images: Iterable[RegisteredImage],
    content: Points,
) -> None:
    """Write a model to the binary files of an existing directory.

    The tracks are those of the images; ``content.lengths`` is not used.
    """
    kinds = {name: number for number, (name, *_) in CAMERA_MODELS.items()}
    with replacing(directory / "cameras.bin") as file:
        file.write(struct.pack("<Q", len(cameras)))
        for number, camera in cameras.items():
            size = len(camera.parameters)
            row = number, kinds[camera.model], camera.width, camera.height, *camera.parameters
            file.write(struct.pack(f"<IiQQ{size}d", *row))
    images = list(images)
    with replacing(directory / "images.bin") as file:
        file.write(struct.pack("<Q", len(images)))
        for image in images:
            pose = *image.rotation, *image.translation
            file.write(struct.pack("<I7dI", image.number, *pose, image.camera))
            rows = np.zeros(len(image.xy), "<f8, <f8, <i8")
            rows["f0"], rows["f1"], rows["f2"] = *image.xy.T, image.points
            file.write(image.name.encode() + b"\0" + struct.pack("<Q", len(rows)) + rows.tobytes())
    with replacing(directory / "points3D.bin") as file:
        file.write(struct.pack("<Q", len(content.ids)))
        for i, track in enumerate(_tracks(images, content.ids)):
            color = content.colors[i].tolist()
            values = *content.xyz[i].tolist(), *color, float(content.errors[i]), len(track)
            file.write(_POINT.pack(int(content.ids[i]), *values) + track.tobytes())


def _tracks(images: list[RegisteredImage], ids: NDArray[np.int64]) -> list[NDArray[np.uint32]]:
    """Return the image id and keypoint index (k, 2) of each observation of each point."""
    none = [np.zeros((0, 3), np.int64)]
    parts = [
        np.stack([image.points[rows], np.full(len(rows), image.number), rows], 1)
        for image in images
        for rows in [np.flatnonzero(image.points >= 0)]
    ]
    table = np.concatenate(none + parts)
    table = table[np.argsort(table[:, 0], kind="stable")]
    starts, ends = (np.searchsorted(table[:, 0], ids, side=side) for side in ("left", "right"))
    pairs = table[:, 1:].astype("<u4")
    return [pairs[start:end] for start, end in zip(starts, ends, strict=True)]


def write_ply(directory: Path, file: Path) -> None:
    """Write the points of a model to a binary PLY file, with their colors."""
    content = points(directory)
    rows = np.zeros(len(content.ids), "<f4, <f4, <f4, u1, u1, u1")
    for i in range(3):
        rows[f"f{i}"], rows[f"f{i + 3}"] = content.xyz[:, i], content.colors[:, i]
    properties = [f"property float {axis}" for axis in "xyz"]
    properties += [f"property uchar {color}" for color in ("red", "green", "blue")]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}", *properties]
    with replacing(file) as target:
        target.write("\n".join([*header, "end_header\n"]).encode("ascii") + rows.tobytes())
