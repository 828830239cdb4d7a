"""Features and matches of an OpenSfM dataset.

Conventions of OpenSfM: a point is (x, y, size, angle); its position is relative to the center of
the image and, like its size, divided by the longer side; angles are in degrees. Descriptors are in
the range of SIFT.
"""

import gzip
import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.features import Features
from caloric.image import inputs, reading
from caloric.image.pixels import as_unit_range
from caloric.interop.conversion import sift_floats
from caloric.interop.exporters import Exporter, inside
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_directory, created_directory, replacing

VERSION = 3  # of the feature files


class OpenSfm(Exporter):
    """Writes features/NAME.features.npz and, if there are pairs, matches/NAME_matches.pkl.gz.

    The matches of a pair are the inliers if it is verified, and are stored with its first image.
    Colors are read from the image directory.
    """

    location: ClassVar[str] = "opensfm"
    hint: ClassVar[str] = (
        "copy features and matches into an OpenSfM dataset with the same images, then run "
        "`opensfm extract_metadata`, `create_tracks` and `reconstruct`"
    )

    def check(self) -> None:
        """Raise an error if the image directory, from which colors are read, is unknown."""
        check_directory(self.target)
        if self.request.images is None:
            raise InputError(
                "OpenSfM stores the color of each feature: pass the image directory with --images, "
                "or, to extract, images of one directory"
            )
        self.images: Path = self.request.images
        for name in self.request.names:
            if not (self.images / name).is_file():
                raise InputError(f"{self.images / name}: no such image; check the image directory")

    def files(self) -> list[Path]:
        """Return the feature files of all images."""
        return [self.target / "features" / f"{name}.features.npz" for name in self.request.names]

    def open(self) -> None:
        """Create the directory."""
        self.stack.enter_context(created_directory(self.target / "features"))
        self.matches: dict[str, dict[str, NDArray[np.int64]]] = {}

    def features(self, name: str, features: Features) -> None:
        """Write the feature file of an image."""
        path = inside(self.target / "features", f"{name}.features.npz")
        with replacing(path) as file:
            np.savez_compressed(
                file,
                points=points(features),
                descriptors=sift_floats(features),
                colors=colors(self.images / name, features),
                segmentations=[],
                instances=[],
                segmentation_labels=[],
                OPENSFM_FEATURES_VERSION=VERSION,
            )
        self.matches[name] = {}

    def pair(self, pair: TwoViews) -> None:
        """Keep the matches of a pair, which are written at the end, by image."""
        if pair.is_verified and pair.matrix is None:
            return
        indices = pair.inlier_matches if pair.is_verified else pair.matches
        self.matches[pair.name_a][pair.name_b] = indices.astype(np.int64)

    def close(self) -> list[Path]:
        """Write the matches of each image."""
        if not self.request.pairs:
            return [self.target / "features"]
        for name, matches in self.matches.items():
            path = inside(self.target / "matches", f"{name}_matches.pkl.gz")
            # Without a time stamp, so that the same matches give the same file.
            with replacing(path) as file:
                file.write(gzip.compress(_pickled(matches), mtime=0))
        return [self.target / "features", self.target / "matches"]


def points(features: Features) -> NDArray[np.float32]:
    """Return x, y, size and angle (n, 4) of features in OpenSfM's coordinates."""
    (h, w), frames = features.image_size, features.frames
    xy = (frames.xy + 0.5 - (w / 2, h / 2)) / max(w, h)
    # As of OpenCV's keypoints: the diameter 2 σ, and degrees from 0 to 360.
    size, angle = 2 * frames.sigma / max(w, h), np.degrees(frames.angle) % 360
    return np.column_stack([xy, size, angle]).astype(np.float32)


def colors(path: Path, features: Features) -> NDArray[np.uint8]:
    """Return the colors (n, 3) of the pixels nearest to features in the axes of the stored file."""
    pixels = inputs.read_image(path)
    size = pixels.shape[0], pixels.shape[1]
    to_stored = reading.to_stored(size, reading.orientation(path))
    to_upright = np.asarray(cv2.invertAffineTransform(to_stored))
    xy = features.frames.xy @ to_upright[:, :2].T + to_upright[:, 2]
    x, y = np.rint(xy).astype(int).clip(0, np.array(size[::-1]) - 1).T
    unit = as_unit_range(pixels[y, x], "image")
    rgb = np.repeat(unit[:, None], 3, 1) if unit.ndim == 1 else unit[:, :3]
    return np.asarray(np.rint(255 * np.clip(rgb, 0, 1)), np.uint8)


def _pickled(matches: dict[str, NDArray[np.int64]]) -> bytes:
    """Return pickled matches that all versions of NumPy can read.

    By default, NumPy 2 pickles arrays with a module name that NumPy 1.25 does not have.
    """

    def reduced(array: NDArray[Any]) -> tuple[type, tuple[Any, ...]]:
        return np.ndarray, (array.shape, array.dtype.str, bytearray(array.tobytes()))

    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.dispatch_table = {np.ndarray: reduced}
    pickler.dump(matches)
    return file.getvalue()
