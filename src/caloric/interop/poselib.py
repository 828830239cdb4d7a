"""PoseLib as the estimator of :func:`caloric.verify`: ``estimator=poselib.estimate``.

PoseLib has wheels for Linux on x86-64, Windows and macOS, but not for Linux on ARM.
"""

from typing import Any

import numpy as np

from caloric.errors import InputError
from caloric.matching.estimation import Correspondences
from caloric.matching.models import cross
from caloric.types import FloatArray


def estimate(matches: Correspondences, threshold: float, seed: int) -> FloatArray | None:
    """Return the model estimated by PoseLib's LO-RANSAC from points, or None.

    Parameters
    ----------
    matches : Correspondences
        Matched points, and the model: "homography", "fundamental" or "essential".
    threshold : float
        Largest residual of an inlier, in pixels.
    seed : int
        Seed of the random sampling.
    """
    p, q, library = matches.p, matches.q, _library()
    options = {"seed": seed}
    if matches.model == "homography":
        matrix, info = library.estimate_homography(
            p, q, options | {"max_reproj_error": threshold}, {}
        )
    elif matches.model == "fundamental":
        matrix, info = library.estimate_fundamental(
            p, q, options | {"max_epipolar_error": threshold}, {}
        )
    elif matches.model == "essential" and matches.cameras is not None:
        pose, info = library.estimate_relative_pose(
            p, q, *(_camera(k) for k in matches.cameras),
            options | {"max_epipolar_error": threshold}, {},
        )  # fmt: skip
        matrix = cross(np.asarray(pose.t, np.float64)) @ pose.R
    else:
        raise InputError(f"PoseLib does not estimate {matches.model!r}; use another estimator")
    is_valid = info.get("num_inliers", 0) > 0 and np.isfinite(matrix).all() and np.any(matrix)
    return np.asarray(matrix, np.float64) if is_valid else None


def _camera(calibration: FloatArray) -> dict[str, Any]:
    (fx, _, cx), (_, fy, cy), _ = calibration.tolist()
    size = {"width": max(1, round(2 * cx)), "height": max(1, round(2 * cy))}
    return {"model": "PINHOLE", "params": [fx, fy, cx, cy], **size}


def _library() -> Any:
    try:
        import poselib
    except ImportError:
        raise InputError(
            "this estimator needs PoseLib: pip install poselib (no wheel for Linux on ARM)"
        ) from None
    return poselib
