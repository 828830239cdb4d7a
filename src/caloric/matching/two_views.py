"""The matches of two named images, with the result of their verification."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray


@dataclass(frozen=True, eq=False)
class TwoViews:
    """The matches of two images, and the geometry that verification found for them.

    Attributes
    ----------
    name_a, name_b : str
        Names of the images.
    matches : array (m, 2) of uint32
        Indices of matched features in the first and in the second image.
    distances : array (m,) of float32
        Distances of the stored descriptors.
    inliers : array (k,) of uint32
        Rows of ``matches`` that agree with the geometry.
    matrix : array (3, 3) or None
        The fundamental matrix or homography; None if there is no geometry.
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
        """Return whether a geometry was searched for, found or not."""
        return self.model != ""

    @property
    def inlier_matches(self) -> NDArray[np.uint32]:
        """Return the matches (k, 2) that agree with the geometry."""
        return self.matches[self.inliers]

    def swapped(self) -> "TwoViews":
        """Return the same from the second image to the first."""
        matrix = self.matrix
        if matrix is not None:
            back = matrix.T if self.model == "fundamental" else np.linalg.inv(matrix)
            matrix = np.asarray(back, np.float64)
        return replace(
            self, name_a=self.name_b, name_b=self.name_a, matches=self.matches[:, ::-1],
            matrix=matrix,
        )  # fmt: skip
