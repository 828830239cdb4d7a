"""The public function verify: the two-view geometry of matched features or points."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caloric import comparison
from caloric.errors import InputError, known_options
from caloric.features import Features
from caloric.frames import Frames
from caloric.matching import geometry, selection
from caloric.matching.estimation import GeometryEstimator
from caloric.matching.geometry import Geometry
from caloric.matching.neighbors import Matches
from caloric.runtime import threads
from caloric.types import FloatArray, ModelChoice

_MAX_OUTSIDE = 0.2  # share of points outside of an image, above which its size is invalid
_SIGMA = 1.0  # of points; their frames are not used


@known_options
@threads.single_threaded_blas
def verify(
    features_a: Features | Frames | ArrayLike,
    features_b: Features | Frames | ArrayLike,
    matches: Matches | None = None,
    *,
    image_sizes: tuple[tuple[int, int], tuple[int, int]] | None = None,
    model: ModelChoice = "homography",
    seed: int = 0,
    threshold: float | None = None,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    estimator: GeometryEstimator | None = None,
) -> Geometry:
    """Estimate the two-view geometry of matches robustly.

    The matches may come from any method: pass matched points (m, 2), where row i of the first array
    matches row i of the second.

    Parameters
    ----------
    features_a, features_b : Features, Frames, or array (n, 2)
        The features that were matched, or their positions. Descriptors alone have no positions.
    matches : Matches, optional
        The result of :func:`match`. If it is refined, the refined positions are used, weighted by
        their covariances. By default, row i of ``features_a`` matches row i of ``features_b``.
    image_sizes : ((h_a, w_a), (h_b, w_b)), optional
        Heights and widths of the images, for the confidence. :class:`Features` have them; by
        default, points are assumed to span the images.
    model : "homography", "affine", "fundamental", "essential" or "auto"
        Model that maps points of the first image to points or epipolar lines of the second. "auto"
        chooses from the matches: a homography if the scene is planar or the camera only rotated,
        otherwise a fundamental matrix, or an essential matrix if there are ``intrinsics``.
    seed : int
        Seed of the random sampling.
    threshold : float, optional
        Maximum residual of an inlier, in pixels. By default the noise of the matches is estimated,
        and inliers are within its 99 % limit.
    intrinsics : (K_a, K_b), optional
        Camera matrices (3, 3), required for "essential".
    estimator : function, optional
        Another estimator, such as that of :mod:`caloric.interop.poselib`; by default the
        most likely model is searched and fitted to all matches.

    Returns
    -------
    Geometry
        ``model``, ``matrix`` or None, ``inliers`` (m,), ``residuals`` (m,), ``sigma``,
        ``confidence`` and its ``reason``; ``error_at(points)`` returns the expected error in
        pixels.
        ``bool(geometry)`` is True if the confidence exceeds 0.5.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a, b = caloric.extract([image, image])
    >>> geometry = caloric.verify(a, b, caloric.match(a, b))
    >>> np.allclose(geometry.matrix / geometry.matrix[2, 2], np.eye(3), atol=1e-3)
    True
    >>> points = np.random.default_rng(0).uniform(0, 100, (50, 2))
    >>> caloric.verify(points, points + (5, 7)).matrix.round(3)[:2, 2]
    array([5., 7.])
    >>> caloric.verify(points, points + (5, 7), model="auto").model
    'homography'
    """
    if matches is not None and not isinstance(matches, Matches):
        raise InputError(
            "matches must be caloric.Matches, as caloric.match returns; for matches of another "
            "method, pass matched points: verify(points_a[i], points_b[j])"
        )
    sides = (features_a, "features_a"), (features_b, "features_b")
    first, second = (_maps(features, which) for features, which in sides)
    if matches is not None:
        first, second = comparison.matched_maps(first, second, matches)
    elif len(first) != len(second):
        raise InputError(
            f"{len(first)} points in the first image but {len(second)} in the second; without "
            "matches, row i of one matches row i of the other"
        )
    has_frames = all(_has_frames(features) for features, _ in sides)
    known = [
        comparison.metadata(f).image_size if comparison.has_positions(f) else None for f, _ in sides
    ]
    size_a, size_b = known
    if image_sizes is not None:
        size_a, size_b = _checked_sizes(image_sizes)
        for maps, size, which in ((first, size_a, "first"), (second, size_b, "second")):
            _check_inside(maps[:, :, 2], size, which)
    options = geometry.EstimateKeywords(
        seed=seed,
        threshold=threshold,
        intrinsics=intrinsics,
        size=size_b,
        size_a=size_a,
        covariances=None if matches is None else matches.covariances,
        frames=(first, second) if has_frames else None,
        estimator=estimator,
    )
    selection.check_options(model, threshold, seed, intrinsics)
    if matches is not None and _have_descriptors(features_a, features_b):
        options["appearance"] = comparison.appearance(
            (features_a, features_b), matches.indices, (first, second)
        )
    if model == "auto":
        return selection.estimate(first[:, :, 2], second[:, :, 2], **options)
    options["model"] = model
    return geometry.estimate(first[:, :, 2], second[:, :, 2], **options)


def _maps(features: Any, which: str) -> FloatArray:
    """Return the maps (n, 2, 3) of features or points."""
    shape: tuple[int, ...] = ()
    if isinstance(features, np.ndarray) and features.shape[1:] == (1, 2):
        features = features[:, 0]  # OpenCV's shape of points
    if isinstance(features, np.ndarray) and features.dtype.kind == "f":
        bad = int((~np.isfinite(features)).any(tuple(range(1, features.ndim))).sum())
        if bad:
            raise InputError(f"{which}: {bad} points have NaN or infinite coordinates; remove them")
    if not _has_frames(features):
        shape = np.shape(features)
    if len(shape) == 2 and shape[1] != 2:
        raise InputError(
            f"{which}: an array of shape {shape} has no positions; pass caloric.Features, Frames, "
            "or the positions of the features as an array (n, 2)"
        )
    return comparison.maps_of(features, which, _SIGMA)


def _has_frames(features: Any) -> bool:
    return isinstance(features, Frames) or comparison.has_positions(features)


def _have_descriptors(*features: Any) -> bool:
    """Return whether these are features with descriptors of the same kind."""
    if not all(comparison.has_positions(side) for side in features):
        return False
    lengths = {comparison.metadata(side).descriptors.shape[1] for side in features}
    return len(lengths) == 1 and lengths != {0}


def _check_inside(points: FloatArray, size: tuple[int, int], which: str) -> None:
    """Raise InputError if many points (m, 2) are outside of an image of a size (h, w)."""
    h, w = size
    outside = int(((points < 0) | (points > (w - 1, h - 1))).any(1).sum())
    if outside > _MAX_OUTSIDE * len(points):
        raise InputError(
            f"image_sizes: {outside} of {len(points)} points are outside of the {which} image, "
            f"which is {w} pixels wide and {h} high; sizes are (h, w)"
        )


def _checked_sizes(sizes: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the sizes (h, w) of both images; raise InputError unless they are positive."""
    try:
        array = np.asarray(sizes, np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.shape != (2, 2) or not (array >= 1).all() or not np.isfinite(array).all():
        raise InputError(f"image_sizes must be ((h_a, w_a), (h_b, w_b)) in pixels, got {sizes!r}")
    (h_a, w_a), (h_b, w_b) = array.astype(int).tolist()
    return (h_a, w_a), (h_b, w_b)
