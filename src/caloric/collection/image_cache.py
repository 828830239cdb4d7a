"""Images of a collection that a worker keeps in memory, for refinement."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Generic, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.collection import sources
from caloric.collection.sources import ImageFile
from caloric.frames import Frames
from caloric.image import reading
from caloric.image.pixels import to_gray
from caloric.matching import refinement
from caloric.matching.refinement import Descent, Octaves, Refined
from caloric.types import FloatArray

_MEMORY = 256e6  # maximum size of the images that a worker keeps, in bytes
BYTES_PER_PIXEL = 4 * 4 / 3  # of an image and its halves


@dataclass(frozen=True, eq=False)
class View:
    """An upright image, and the affine map (2, 3) from its coordinates to those of the file.

    ``octaves`` is the image prepared for refinement.
    """

    gray: NDArray[np.float32]
    octaves: Octaves
    to_stored: FloatArray

    @property
    def nbytes(self) -> int:
        """The size in memory, in bytes."""
        return sum(level.nbytes for level in self.octaves.levels)  # the first is the image

    def upright(self, maps: FloatArray) -> FloatArray:
        """Return frames (k, 2, 3) of the file in the coordinates of the upright image."""
        frames = Frames(np.asarray(maps, np.float64), np.zeros(len(maps), np.float32))
        return frames.moved(np.asarray(cv2.invertAffineTransform(self.to_stored))).maps

    def stored(self, xy: FloatArray) -> FloatArray:
        """Return positions (k, 2) of the upright image in the coordinates of the file."""
        return np.asarray(xy @ self.to_stored[:, :2].T + self.to_stored[:, 2])

    def stored_maps(self, maps: FloatArray) -> FloatArray:
        """Return frames (k, 2, 3) of the upright image in the coordinates of the file."""
        return Frames(maps, np.zeros(len(maps), np.float32)).moved(self.to_stored).maps


def refine(
    first: View,
    second: View,
    maps_a: FloatArray,
    maps_b: FloatArray,
    descent: Descent = refinement.descend,
) -> Refined:
    """Return frames of the second image (k, 2, 3), aligned with those of the first.

    All frames are in the coordinates of the files, covariances in those of the upright image.
    """
    result = refinement.refine(
        first.octaves, second.octaves, first.upright(maps_a), second.upright(maps_b), descent
    )
    return replace(result, maps=second.stored_maps(result.maps))


Key = TypeVar("Key", bound=Hashable)


class Views(Generic[Key]):
    """A cache of images by a key; ``read`` returns the pixels and the EXIF orientation.

    It has two images, or more if they fit into ``memory``, in bytes.
    """

    def __init__(
        self, read: Callable[[Key], tuple[NDArray[np.generic], int]], memory: float = _MEMORY
    ) -> None:
        """Start with an empty cache."""
        self.read, self.memory = read, memory
        self.cache: OrderedDict[Key, View] = OrderedDict()
        self._lock = Lock()  # a worker of a cluster may have several threads

    def __getitem__(self, key: Key) -> View:
        """Return an image; errors of ``read`` are passed on."""
        with self._lock:
            if key in self.cache:
                self.cache.move_to_end(key)
                return self.cache[key]
        pixels, orientation = self.read(key)
        gray = to_gray(pixels)
        h, w = gray.shape
        view = View(gray, refinement.prepared(gray), reading.to_stored((h, w), orientation))
        with self._lock:
            self.cache[key] = view
            while len(self.cache) > 2 and sum(v.nbytes for v in self.cache.values()) > self.memory:
                self.cache.popitem(last=False)
        return view

    def refined(
        self, a: Key, b: Key, maps_a: FloatArray, maps_b: FloatArray
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which frames of b (k, 2, 3) were aligned with those of a, and all positions.

        All coordinates are those of the files.
        """
        result = refine(self[a], self[b], maps_a, maps_b)
        return result.moved, result.xy


StoredFile = tuple[ImageFile, float | None]  # an image file and its white level


@lru_cache(maxsize=1)
def of_directory(directory: str) -> Views[StoredFile]:
    """Return the images of a directory that this process keeps for all its tasks.

    Files are known by their content, so that changed ones are read again.
    """
    return Views(lambda file: sources.pixels(directory, *file))
