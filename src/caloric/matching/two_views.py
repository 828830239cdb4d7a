"""The matches of two named images and their verified geometry."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray


@dataclass(frozen=True, eq=False)
class TwoViews:
    """The matches of two images and the result of their verification.

    Attributes
    ----------
    name_a, name_b : str
        Names of the images.
    matches : array (m, 2) of uint32
        Indices of the matched features in both images.
    distances : array (m,) of float32
        Distances between the stored descriptors.
    inliers : array (k,) of uint32
        Rows of ``matches`` that agree with the geometry.
    matrix : array (3, 3) or None
        The fundamental matrix or homography; None if none was found.
    model : str
        "fundamental" or "homography"; "" if the pair was not verified.
    """

    name_a: str
    name_b: str
    matches: NDArray[np.uint32]
    distances: NDArray[np.float32]
    inliers: NDArray[np.uint32]
    matrix: FloatArray | None
    model: str

    @property
    def is_verified(self) -> bool:
        """Return whether verification was run, with or without success."""
        return self.model != ""

    @property
    def inlier_matches(self) -> NDArray[np.uint32]:
        """Return the matches (k, 2) that agree with the geometry."""
        return self.matches[self.inliers]

    def swapped(self) -> "TwoViews":
        """Return the pair with the two images exchanged."""
        matrix = self.matrix
        if matrix is not None:
            inverse = matrix.T if self.model == "fundamental" else np.linalg.inv(matrix)
            matrix = np.asarray(inverse, np.float64)
        return replace(
            self, name_a=self.name_b, name_b=self.name_a, matches=self.matches[:, ::-1],
            matrix=matrix,
        )  # fmt: skip
