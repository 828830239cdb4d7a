"""DetectOptions: the options of detection, declared, checked and documented in one class."""

import numbers
from dataclasses import dataclass
from typing import TypedDict, get_args

import numpy as np

from caloric.detector import affine_shape, extrema, orientation
from caloric.errors import InputError, check_bool, unknown
from caloric.types import Detector

# Default number of features per image. With 2,000, 4,000 and 8,000 features, the share of
# homographies accurate to a pixel is .49, .58 and .61 on photographs with synthetic changes.
FEATURES = 8000
VERSION = 3  # incremented when detected frames change, which invalidates stored features


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """Options of the detector. Invalid values raise InputError.

    Parameters
    ----------
    max_features : int or None
        Maximum number of features per image; the strongest are kept. If None, all features above
        the contrast threshold are kept.
    affine : bool
        Estimate the affine shape of each feature. Baumberg's iteration adapts the shape to the
        gradients inside the frame, and the estimated elongation is raised to the power 0.75. A
        frame whose shape does not converge stays circular.
    upright : bool
        Do not estimate orientations. Otherwise an extremum yields a frame in its dominant
        orientation and, where ``max_features`` leaves space, in others that are nearly as strong.
    detector : "dog" or "opencv"
        Detector: Caloric's difference of Gaussians ("dog") or OpenCV's SIFT ("opencv").
    contrast : float, optional
        Contrast threshold, as in OpenCV's SIFT; by default 0.04, lowered to no less than 0.005 if
        fewer than ``max_features`` features exceed it. A threshold that is given is not lowered,
        nor the default of ``detector="opencv"``.
    edge : float
        Edge threshold: maximum ratio of the principal curvatures.
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
        check_bool("affine", self.affine)
        check_bool("upright", self.upright)
        if self.detector not in get_args(Detector):
            raise unknown("detector", self.detector, get_args(Detector))
        contrast = extrema.CONTRAST if self.contrast is None else self.contrast
        if not (isinstance(contrast, numbers.Real) and 0 <= contrast < np.inf):
            raise InputError(f"contrast must be a finite number, 0 or more, got {self.contrast!r}")
        if not (isinstance(self.edge, numbers.Real) and 1 <= self.edge < np.inf):
            raise InputError(f"edge must be a finite number, 1 or more, got {self.edge!r}")

    @property
    def lowest(self) -> float:
        """The contrast threshold of detection, reduced if a number of features is requested."""
        if self.contrast is not None:
            return float(self.contrast)
        return extrema.CONTRAST if self.max_features is None else extrema.FAINTEST

    @property
    def farthest(self) -> float:
        """The largest ratio of a sample's distance to its smoothing: see Sampling.farthest."""
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
