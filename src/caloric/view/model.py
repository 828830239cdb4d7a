"""A model as the page shows it: points, cameras, tracks and common points of images."""

import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.types import FloatArray, Report
from caloric.viz import model_figure

_QUANTILE = 0.9  # of the distances from the center: the size of the scene
_CAMERA = 0.06  # maximum depth of a camera, relative to the size of the scene
_MATCHES = 500  # maximum number of common points of two images that are listed


@dataclass(frozen=True, eq=False)
class ShownImage:
    """A registered image.

    Attributes
    ----------
    name : str
        Its name.
    size : (int, int)
        Width and height of the stored image.
    focal : float
        The focal length in pixels.
    rotation : array (3, 3)
        The rotation from world to camera coordinates.
    center : array (3,)
        The camera center in world coordinates.
    xy : array (k, 2)
        Positions of the observed points; the center of the top-left pixel is (0, 0).
    points : array (k,)
        Indices of the observed points.
    """

    name: str
    size: tuple[int, int]
    focal: float
    rotation: FloatArray
    center: FloatArray
    xy: FloatArray
    points: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ShownModel:
    """A model with points (n, 3), their colors (n, 3), reprojection errors (n,), and images.

    ``ids`` (n,) are the numbers of the points in the model's files, ``up`` (3,) is the vertical
    direction, ``directory`` the image directory if it is known.
    """

    title: str
    summary: str
    ids: NDArray[np.int64]
    xyz: FloatArray
    colors: NDArray[np.uint8]
    errors: FloatArray
    images: tuple[ShownImage, ...]
    up: FloatArray
    directory: Path | None = None
    _thumbnails: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @cached_property
    def _normalization(self) -> tuple[FloatArray, float]:
        """Return the center of the scene, and the factor that scales it to about 1."""
        centers = np.stack([image.center for image in self.images])
        center = np.median(np.concatenate([self.xyz, centers]), axis=0)
        distances = np.linalg.norm(self.xyz - center, axis=1)
        radius = float(np.quantile(distances, _QUANTILE))
        radius = max(radius, float(np.linalg.norm(centers - center, axis=1).max()), 1e-12)
        return center, 1 / radius

    def description(self) -> Report:
        """Return everything but the points: title, images with poses, the vertical direction."""
        center, scale = self._normalization
        centers = scale * (np.stack([image.center for image in self.images]) - center)
        return {
            "title": self.title,
            "summary": self.summary,
            "points": len(self.xyz),
            "up": self.up.tolist(),
            "photographs": self.directory is not None,
            "camera depth": model_figure.camera_depth(centers, _CAMERA),
            "images": [
                {
                    "name": image.name,
                    "width": image.size[0],
                    "height": image.size[1],
                    "focal": image.focal,
                    "rotation": image.rotation.ravel().tolist(),
                    "center": position.tolist(),
                    "points": len(image.points),
                }
                for image, position in zip(self.images, centers, strict=True)
            ],
        }

    def points(self) -> bytes:
        """Return the points for the page: float32 (n, 3), then colors uint8 (n, 4)."""
        center, scale = self._normalization
        colors = np.full((len(self.xyz), 4), 255, np.uint8)
        colors[:, :3] = self.colors
        return ((self.xyz - center) * scale).astype("<f4").tobytes() + colors.tobytes()

    def track(self, point: int) -> Report:
        """Return the observations of a point: image, and position in it."""
        if not 0 <= point < len(self.xyz):
            raise InputError(f"point must be from 0 to {len(self.xyz) - 1}")
        observations = []
        for number, image in enumerate(self.images):
            for row in np.flatnonzero(image.points == point):
                x, y = image.xy[row].tolist()
                observations.append({"image": number, "x": x, "y": y})
        return {
            "point": int(self.ids[point]), "error": float(self.errors[point]),
            "observations": observations,
        }  # fmt: skip

    def image(self, number: int) -> ShownImage:
        """Return an image by its number."""
        if not 0 <= number < len(self.images):
            raise InputError(f"image must be from 0 to {len(self.images) - 1}")
        return self.images[number]

    def neighbors(self, number: int) -> Report:
        """Return the observed positions of an image, and the images with common points."""
        image = self.image(number)
        observed = np.zeros(len(self.xyz), bool)
        observed[image.points] = True
        counts = [int(observed[other.points].sum()) for other in self.images]
        others = sorted((i for i in range(len(counts)) if i != number), key=lambda i: -counts[i])
        return {
            "image": number,
            "xy": np.round(image.xy, 1).tolist(),
            "points": image.points.tolist(),
            "neighbors": [{"image": i, "common": counts[i]} for i in others if counts[i]],
        }

    def matches(self, first: int, second: int) -> list[list[float]]:
        """Return the positions x, y, x, y of common points of two images, at most 500."""
        a, b = self.image(first), self.image(second)
        _, rows, columns = np.intersect1d(a.points, b.points, return_indices=True)
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), _MATCHES)).astype(int)
        both = np.concatenate([a.xy[rows[chosen]], b.xy[columns[chosen]]], 1)
        return [[float(value) for value in row] for row in np.round(both, 1)]

    def photograph(self, number: int, side: int) -> bytes:
        """Return an image as a JPEG of at most ``side`` pixels per side, without EXIF rotation."""
        if (number, side) not in self._thumbnails:
            self._thumbnails[number, side] = self._reduced(number, side)
        return self._thumbnails[number, side]

    def _reduced(self, number: int, side: int) -> bytes:
        from PIL import Image

        name = self.image(number).name
        if self.directory is None:
            raise InputError("the image directory is unknown; specify it with --images")
        path = self.directory / name
        if not path.resolve().is_relative_to(self.directory.resolve()):
            raise InputError(f"{name}: leads out of the image directory")
        try:
            with Image.open(path) as image:
                image.draft("RGB", (side, side))
                pixels = image.convert("RGB")
        except Exception as error:  # depends on the decoder
            raise InputError(f"{name}: cannot be read ({error})") from None
        pixels.thumbnail((side, side))
        file = io.BytesIO()
        pixels.save(file, "JPEG", quality=82)
        return file.getvalue()
