"""DetectOptions: how frames are detected, declared, checked and documented once."""

import numbers
from dataclasses import dataclass
from typing import TypedDict, get_args

import numpy as np

from caloric.detector import affine_shape, extrema, orientation
from caloric.errors import InputError, unknown
from caloric.types import Detector

# Features per image unless another number is requested, in Python and in all commands. More of them
# give better geometries: on photographs with synthetic changes the homographies within a pixel are
# .49, .58 and .61 of all with 2,000, 4,000 and 8,000.
FEATURES = 8000
VERSION = 2  # raised when other frames are detected, so that stored features are extracted again


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """How frames are detected. Wrong values raise InputError.

    Parameters
    ----------
    max_features : int or None
        Largest number of features per image; the strongest are kept. None keeps all that reach the
        contrast.
    affine : bool
        Estimate affine shapes of frames. The shape of each frame is adapted to the gradients inside
        it, by the power 0.75 of the estimated elongation; a frame whose shape does not converge
        stays round.
    upright : bool
        Do not estimate orientations. Otherwise an extremum with several dominant orientations gives
        several frames.
    detector : "dog" or "opencv"
        Extrema of the difference of Gaussians, or those of OpenCV's SIFT.
    contrast : float, optional
        Smallest contrast of a feature, as in OpenCV; by default 0.04, lowered as far as 0.005 if
        there are fewer than ``max_features`` features. The contrast is not lowered for
        ``detector="opencv"``.
    edge : float
        Largest ratio of the two principal curvatures.
    """

    max_features: int | None = FEATURES
    affine: bool = False
    upright: bool = False
    detector: Detector = "dog"
    contrast: float | None = None
    edge: float = extrema.EDGE

    def __post_init__(self) -> None:
        """Check every option."""
        limit = self.max_features
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
                raise InputError(f"max_features must be an integer or None, got {limit!r}")
            if limit < 0:
                raise InputError(f"max_features must be 0 or more, got {limit}")
        if self.detector not in get_args(Detector):
            raise unknown("detector", self.detector, get_args(Detector))
        contrast = extrema.CONTRAST if self.contrast is None else self.contrast
        if not (isinstance(contrast, numbers.Real) and 0 <= contrast < np.inf):
            raise InputError(f"contrast must be a finite number, 0 or more, got {self.contrast!r}")
        if not (isinstance(self.edge, numbers.Real) and 1 <= self.edge < np.inf):
            raise InputError(f"edge must be a finite number, 1 or more, got {self.edge!r}")

    @property
    def lowest(self) -> float:
        """The contrast to detect at.

        Faint extrema are admitted only to reach a requested number of features.
        """
        if self.contrast is not None:
            return float(self.contrast)
        return extrema.CONTRAST if self.max_features is None else extrema.FAINTEST

    @property
    def farthest(self) -> float:
        """The largest distance at which pixels around a frame are read: see Sampling.farthest."""
        shape = affine_shape.SAMPLING.farthest() if self.affine else 0.0
        return self.stretch * max(orientation.SAMPLING.farthest(), shape)

    @property
    def stretch(self) -> float:
        """The largest ratio of a frame's longer axis to its σ."""
        return affine_shape.LONGEST**0.5 if self.affine else 1.0


class DetectKeywords(TypedDict, total=False):
    """The fields of :class:`DetectOptions`, for type checkers."""

    max_features: int | None
    affine: bool
    upright: bool
    detector: Detector
    contrast: float | None
    edge: float
