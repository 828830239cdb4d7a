"""Adjust the points, poses and cameras of a model with refined observations."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from caloric.collection import scenes, variances
from caloric.collection.aligning import OUTLIER, Aligned, Mask
from caloric.collection.scenes import Scene
from caloric.interop import colmap, colmap_model, weighted_adjustment
from caloric.types import FloatArray

_ADJUSTMENTS = 2
_MIN_REFINED = 50  # observations of an image whose other observations the adjustment can leave out
_UNREFINED = 1.0  # pixels: standard deviation assumed for observations that were not refined
# Times the median variance: errors of the camera model and of the other observations of a track,
# which do not depend on the texture. Chosen on fountain-P11.
_COMMON = 5.0


@dataclass(frozen=True, eq=False)
class Adjusted:
    """A scene after bundle adjustment.

    ``poses`` has the covariance (6, 6) of the rotation and translation of images by their ids, if
    the observations were weighted; their scale is that of the residuals.
    """

    scene: Scene
    poses: dict[int, FloatArray]


def changed(scene: Scene, xy: FloatArray, xyz: FloatArray, used: Mask) -> Scene:
    """Return a scene with new positions and points, and the observations with ``used`` only."""
    images = []
    for number, image in enumerate(scene.images):
        rows = scene.rows(number)
        positions, points = image.xy.copy(), image.points.copy()
        positions[scene.keypoint[rows]] = xy[rows]
        points[scene.keypoint[rows][~used[rows]]] = -1
        images.append(replace(image, xy=positions, points=points))
    kept = np.bincount(scene.point, used, minlength=len(xyz)) > 0
    content = scene.points
    content = colmap_model.Points(
        content.ids[kept], xyz[kept], content.colors[kept], content.errors[kept],
        content.lengths[kept],
    )  # fmt: skip
    return replace(scene, images=images, points=content, xy=xy)


def adjust(scene: Scene, aligned: Aligned, options: dict[str, bool], weighted: bool) -> Adjusted:
    """Return the scene after bundle adjustments.

    Observations are weighted by their covariances if ``weighted``, which needs pycolmap and
    pyceres, with a robust loss. The second adjustment leaves out outliers of the first.
    """
    result, good = scene, aligned.refined
    poses: dict[int, FloatArray] = {}
    for _ in range(_ADJUSTMENTS):
        used = _used(result, good)
        if weighted:
            result, poses = _weighted(result, aligned, used, options)
        else:
            result = _unweighted(result, aligned, used, options)
        result = _triangulated(result, aligned, used)
        errors = scenes.residuals(result, aligned.xy, result.points.xyz)
        good = aligned.refined & (errors <= OUTLIER * np.median(errors[aligned.refined]))
    if poses:
        factor = _variance_factor(result, aligned, good)
        poses = {number: factor * covariance for number, covariance in poses.items()}
    return Adjusted(result, poses)


def _variance_factor(scene: Scene, aligned: Aligned, good: Mask) -> float:
    """Return the variance of the residuals by the one that the weights of the adjustment assume."""
    rows = np.flatnonzero(variances.redundant(scene, good))
    if len(rows) == 0:
        return 1.0
    part = scenes.part(replace(scene, xy=aligned.xy), rows)
    errors, expected = variances.residuals(part, expected_covariances(aligned)[rows])
    (deviation,) = variances.measured(variances.deviations(errors, expected).reshape(-1, 1))
    return float(deviation) ** 2


def _used(scene: Scene, good: Mask) -> Mask:
    """Return the observations of an adjustment, given the good ones.

    Images with few of them keep all, so that their poses are determined.
    """
    few = np.bincount(scene.image, good, minlength=len(scene.images)) < _MIN_REFINED
    used = good | few[scene.image]
    count = np.bincount(scene.point, used, minlength=len(scene.points.ids))
    return np.asarray(used & (count >= 2)[scene.point])


def _unweighted(scene: Scene, aligned: Aligned, used: Mask, options: dict[str, bool]) -> Scene:
    """Return the scene after COLMAP's bundle adjustment, which has no robust loss."""
    part = changed(scene, aligned.xy, scene.points.xyz, used)
    with tempfile.TemporaryDirectory(prefix="caloric.") as temporary:
        before, after = (Path(temporary) / name for name in ("before", "after"))
        before.mkdir()
        after.mkdir()
        colmap_model.write(before, part.cameras, part.images, part.points)
        colmap.adjust(before, after, options)
        cameras, points = colmap_model.cameras(after), colmap_model.points(after)
        poses = {
            image.number: (image.rotation, image.translation)
            for image in colmap_model.registered(after)
        }
    order = np.argsort(scene.points.ids)
    rows = order[np.searchsorted(scene.points.ids[order], points.ids)]
    xyz = scene.points.xyz.copy()
    xyz[rows] = points.xyz
    return _moved(scene, cameras, poses, xyz)


def _weighted(
    scene: Scene, aligned: Aligned, used: Mask, options: dict[str, bool]
) -> tuple[Scene, dict[int, FloatArray]]:
    """Return the scene after a weighted bundle adjustment, and the covariances of poses."""
    covariances = expected_covariances(aligned)
    numbers = np.array([image.number for image in scene.images])
    rows = np.flatnonzero(used)
    observations = weighted_adjustment.Observations(
        numbers[scene.image[rows]], scene.point[rows], aligned.xy[rows], covariances[rows]
    )
    with tempfile.TemporaryDirectory(prefix="caloric.") as temporary:
        few = scenes.covering(scene, used)
        part = changed(scene, aligned.xy, scene.points.xyz, few)
        colmap_model.write(Path(temporary), part.cameras, part.images, part.points)
        result = weighted_adjustment.adjust(
            Path(temporary), observations, scene.points.xyz, options
        )
    return _moved(scene, result.cameras, result.poses, result.xyz), result.covariances


def expected_covariances(aligned: Aligned) -> FloatArray:
    """Return the covariances (m, 2, 2) of the residuals that an adjustment should expect."""
    if not aligned.refined.any():
        return np.broadcast_to(_UNREFINED**2 * np.eye(2), aligned.covariances.shape).copy()
    variances = aligned.covariances[aligned.refined][:, [0, 1], [0, 1]]
    common = _COMMON * float(np.median(variances)) * np.eye(2)
    return np.where(
        aligned.refined[:, None, None], aligned.covariances + common, _UNREFINED**2 * np.eye(2)
    )


def _moved(
    scene: Scene,
    cameras: dict[int, colmap_model.Camera],
    poses: dict[int, tuple[tuple[float, ...], tuple[float, ...]]],
    xyz: FloatArray,
) -> Scene:
    images = [
        replace(image, rotation=rotation, translation=translation)
        for image in scene.images
        for rotation, translation in [poses.get(image.number, (image.rotation, image.translation))]
    ]
    points = replace(scene.points, xyz=xyz)
    return replace(scene, cameras=scene.cameras | cameras, images=images, points=points)


def _triangulated(scene: Scene, aligned: Aligned, used: Mask) -> Scene:
    """Return the scene with new points where the adjustment had no observation.

    They fit their refined observations, or all if there are none.
    """
    count = len(scene.points.ids)
    others = np.bincount(scene.point, used, minlength=count) == 0
    has_refined = np.bincount(scene.point, aligned.refined, minlength=count) > 0
    fitted = others[scene.point] & (aligned.refined | ~has_refined[scene.point])
    xyz = scenes.triangulate(scene, aligned.xy, fitted)
    return replace(scene, points=replace(scene.points, xyz=xyz))
