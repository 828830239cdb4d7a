"""Features and matches in hloc's HDF5 format, one group per image or pair. Needs h5py.

Conventions of hloc: keypoints (n, 2) with pixel centers at integers, ``oris`` in degrees,
descriptors (d, n) as unit vectors, and match scores (similarity + 1) / 2. hloc's matchers have
thresholds for SIFT, so the descriptors are those of :func:`caloric.interop.conversion.sift_like`;
the attribute ``descriptor`` says so. Match scores are similarities of Caloric's descriptors.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop import exporters
from caloric.interop.conversion import NORMS, sift_like
from caloric.interop.exporters import Exporter, Request
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import replacing_path


def h5py() -> Any:
    """Return the h5py module; raise an error if it is not installed."""
    try:
        import h5py as library
    except ImportError:
        raise InputError("HDF5 files need h5py: pip install 'caloric[collection]'") from None
    return library


def write(path: Path, features: Iterable[tuple[str, Features]]) -> None:
    """Write the features of images by name to a new file; an error leaves no partial file."""
    exporters.write(Hloc(Request(path)), features)


class Hloc(Exporter):
    """Writes a feature file and, if there are pairs, matches.h5 next to it with the inliers.

    The group of a pair is named after the two images, with / replaced by -. ``matches0`` has for
    each feature of the first image the index of the matching one in the second, or -1;
    ``matching_scores0`` is (similarity + 1) / 2.
    """

    location: ClassVar[str] = "hloc/features.h5"

    def check(self) -> None:
        """Raise an error if h5py is not installed or the file cannot be written."""
        h5py()
        super().check()

    def _created(self, path: Path) -> Any:
        name = self.stack.enter_context(replacing_path(path))
        return self.stack.enter_context(h5py().File(name, "w"))

    def open(self) -> None:
        """Create the files."""
        self.file = self._created(self.target)
        self.matches_path = self.target.with_name("matches.h5")
        self.matches = self._created(self.matches_path) if self.request.pairs else None
        # The number of features of each image, and the norm of its stored descriptors.
        self.images: dict[str, tuple[int, np.float32]] = {}

    def features(self, name: str, features: Features) -> None:
        """Write the group of an image."""
        frames, group = features.frames, self.file.create_group(name)
        keypoints = group.create_dataset("keypoints", data=frames.xy.astype("f4"))
        keypoints.attrs["uncertainty"] = 1.0
        group["scales"] = frames.sigma.astype("f4")
        group["oris"] = np.degrees(frames.angle).astype("f4")
        group["scores"] = features.scores
        descriptors = group.create_dataset("descriptors", data=sift_like(features).T)
        descriptors.attrs["encoding"] = "unit"
        descriptors.attrs["descriptor"] = f"{features.descriptor}, SIFT-like"
        group["image_size"] = np.array(features.image_size[::-1])
        self.images[name] = len(features), np.float32(NORMS[features.encoding])

    def pair(self, pair: TwoViews) -> None:
        """Write the inliers of a verified pair."""
        if pair.matrix is None or self.matches is None:
            return
        name = f"{pair.name_a.replace('/', '-')}/{pair.name_b.replace('/', '-')}"
        if name in self.matches:
            raise InputError(
                f"{pair.name_a}, {pair.name_b}: hloc replaces / by -, which gives this pair the "
                "name of another; rename one of the images"
            )
        count, norm = self.images[pair.name_a]
        first, second = pair.inlier_matches.T
        nearest, scores = np.full(count, -1, np.int32), np.zeros(count, np.float16)
        nearest[first] = second
        # |a - b|² = 2 - 2 a·b
        scores[first] = np.clip(1 - (pair.distances[pair.inliers] / norm) ** 2 / 4, 0, 1)
        group = self.matches.create_group(name)
        group.create_dataset("matches0", data=nearest)
        group.create_dataset("matching_scores0", data=scores)

    def close(self) -> list[Path]:
        """Return the feature file and the match file."""
        return [self.target] if self.matches is None else [self.target, self.matches_path]
