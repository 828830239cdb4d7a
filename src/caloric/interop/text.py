"""Features and matches in the text format of COLMAP's importers."""

from pathlib import Path
from typing import ClassVar

import numpy as np

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Exporter, inside
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_directory, created_directory, replacing


class Text(Exporter):
    """Writes DIRECTORY/NAME.txt for each image, and DIRECTORY/matches.txt.

    matches.txt has the inliers of verified pairs, or all matches if no pair is verified. COLMAP
    reads image names only up to a space, and ignores affine shapes.
    """

    location: ClassVar[str] = "text"
    hint: ClassVar[str] = "import with `colmap feature_importer`, then `colmap matches_importer`"

    def check(self) -> None:
        """Raise an error if COLMAP's matches importer cannot read an image name."""
        for name in self.request.names:
            if len(name.split()) != 1:
                raise InputError(
                    f"{name!r}: COLMAP's matches_importer reads names up to the first space; "
                    "rename the image, or use export --to colmap"
                )
        check_directory(self.target)

    def open(self) -> None:
        """Remove old matches, and start a new file if there are pairs."""
        self.stack.enter_context(created_directory(self.target))
        self.path = self.target / "matches.txt"
        self.path.unlink(missing_ok=True)
        if self.request.pairs:
            self.matches = self.stack.enter_context(replacing(self.path))

    def features(self, name: str, features: Features) -> None:
        """Write the file of an image."""
        write(inside(self.target, f"{name}.txt"), features)

    def pair(self, pair: TwoViews) -> None:
        """Write the two names, the feature indices (m, 2), and an empty line."""
        if pair.is_verified and pair.matrix is None:
            return
        indices = pair.inlier_matches if pair.is_verified else pair.matches
        rows = "".join(f"{i} {j}\n" for i, j in indices.tolist())
        self.matches.write(f"{pair.name_a} {pair.name_b}\n{rows}\n".encode())

    def close(self) -> list[Path]:
        """Return the directory and, if there are pairs, the match file."""
        return [self.target, *([self.path] if self.request.pairs else [])]


def write(path: Path, features: Features) -> None:
    """Write a line ``COUNT 128``, then x, y, scale, angle and 128 bytes for each feature."""
    frames = features.frames
    rows = np.column_stack([frames.xy + 0.5, frames.sigma, frames.angle])
    with replacing(path) as file:
        file.write(f"{len(features)} 128\n".encode())
        for row, values in zip(rows.tolist(), sift_bytes(features).tolist(), strict=True):
            numbers = " ".join(f"{v:.6g}" for v in row)
            file.write(f"{numbers} {' '.join(map(str, values))}\n".encode())
