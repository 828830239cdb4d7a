"""Extend tracks to images that see their points but do not observe them yet.

Candidates are predicted by depth and pose. They are aligned with the nearest view of the point,
and kept if they fit the point that was triangulated without them.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric.collection import aligning, scenes
from caloric.collection.aligning import OUTLIER, Aligned, Aligner
from caloric.collection.image_cache import Views
from caloric.collection.scenes import Scene
from caloric.collection.steps import Progress
from caloric.interop import colmap_projection
from caloric.interop.colmap_model import RegisteredImage
from caloric.types import FloatArray

_BORDER = 12.0  # pixels between a candidate and the border of the image
_MAX_ANGLE = np.radians(30)  # from the mean viewing direction of the views of a point
_MAX_SCALE = 2.0  # between the distance of the camera and the mean distance of the views
_NEIGHBORS, _RADIUS = 3, 0.05  # observed points in front of which a candidate must be; of the width
_MAX_DEPTH = 1.05  # of the farthest of the neighbors: a point behind them is occluded
_MIN_DISTANCE = 1.0  # pixels between an added observation and those of other points
_MAX_PER_IMAGE = 2000  # candidates, of the points with the most observations


def _candidates(
    scene: Scene, number: int, xyz: FloatArray, good: NDArray[np.int64], views: FloatArray
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the good points (k,) that an image should see, and their projections (k, 2).

    ``views`` (n, 4) has the mean direction and distance of the views of each point.
    """
    image = scene.images[number]
    camera, rows = scene.cameras[image.camera], scene.rows(number)
    points = good[~np.isin(good, scene.point[rows])]
    towards = image.center - xyz[points]
    distance = np.linalg.norm(towards, axis=1)
    cosine = (towards * views[points, :3]).sum(1) / np.maximum(distance, 1e-30)
    ratio = distance / views[points, 3]
    local = xyz[points] @ image.matrix.T + np.array(image.translation)
    near = (cosine > np.cos(_MAX_ANGLE)) & (local[:, 2] > 0)
    near &= (ratio < _MAX_SCALE) & (ratio > 1 / _MAX_SCALE)
    points, local = points[near], local[near]
    xy = colmap_projection.project(camera, local)
    inside = (xy > _BORDER).all(1) & (xy < np.array([camera.width, camera.height]) - _BORDER).all(1)
    points, xy, depth = points[inside], xy[inside], local[inside, 2]
    observed = xyz[scene.point[rows]] @ image.matrix.T + np.array(image.translation)
    if len(observed) >= _NEIGHBORS and len(points):
        limit = _RADIUS * camera.width
        tree = cKDTree(scene.xy[rows])
        gaps, nearest = tree.query(xy, _NEIGHBORS, distance_upper_bound=limit)
        depths = np.append(observed[:, 2], np.inf)[nearest]  # there may be no neighbor
        visible = depth <= _MAX_DEPTH * depths.max(1)
        visible &= gaps[:, 0] >= _MIN_DISTANCE
        points, xy = points[visible], xy[visible]
    return points[:_MAX_PER_IMAGE], xy[:_MAX_PER_IMAGE]


def _with(
    scene: Scene, parts: list[tuple[NDArray[np.int64], FloatArray]]
) -> tuple[Scene, NDArray[np.bool_]]:
    """Return a scene with additional observations by image, and which are new."""
    images: list[RegisteredImage] = []
    for image, (points, xy) in zip(scene.images, parts, strict=True):
        positions = np.concatenate([image.xy, xy])
        ids = np.concatenate([image.points, scene.points.ids[points]])
        images.append(replace(image, xy=positions, points=ids))
    result = scenes.build(scene.cameras, images, scene.points)
    return result, scenes.added(scene, result)


def extend(
    scene: Scene, views: Views[str], missing: set[str], aligned: Aligned, progress: Progress
) -> tuple[Scene, Aligned]:
    """Return the scene with additional observations, which are refined.

    The points of the scene must be those of the refined observations. The keypoints that an image
    had before keep their indices.
    """
    count, xyz = len(scene.points.ids), scene.points.xyz
    errors = scenes.residuals(scene, aligned.xy, xyz)
    refined = np.bincount(scene.point, aligned.refined, minlength=count)
    limit = OUTLIER * np.median(errors[aligned.refined])
    good = np.flatnonzero((refined >= 2) & (scenes.means(scene, errors, aligned.refined) < limit))
    good = good[np.argsort(-refined[good], kind="stable")]
    centers = np.stack([image.center for image in scene.images])
    towards = centers[scene.image] - xyz[scene.point]
    distance = np.linalg.norm(towards, axis=1)
    mean = np.zeros((count, 4))
    np.add.at(mean, scene.point, np.column_stack([towards / distance[:, None], distance]))
    mean[:, :3] /= np.maximum(np.linalg.norm(mean[:, :3], axis=1, keepdims=True), 1e-30)
    mean[:, 3] /= np.maximum(np.bincount(scene.point, minlength=count), 1)
    none = np.zeros(0, np.int64), np.zeros((0, 2))
    parts = [
        none if image.name in missing else _candidates(scene, number, xyz, good, mean)
        for number, image in enumerate(scene.images)
    ]
    if not any(len(points) for points, _ in parts):
        return scene, aligned
    larger, new = _with(scene, parts)
    state = aligning.unrefined(larger.xy)
    for name, values in vars(aligned).items():
        vars(state)[name][~new] = values
    aligner = Aligner(larger, views, missing)
    rows = np.flatnonzero(new & aligner.usable)
    references = aligning.nearest_views(larger, rows, state.refined)
    pairs = aligning.by_images(larger, references[references >= 0], rows[references >= 0])
    result = aligning.updated(state, aligner.align(pairs, state.xy, xyz, progress))
    fits = scenes.residuals(larger, result.xy, xyz) < limit / 2
    accepted = new & result.refined & fits
    kept = [
        (larger.point[part][accepted[part]], result.xy[part][accepted[part]])
        for part in map(larger.rows, range(len(larger.images)))
    ]
    final, _ = _with(scene, kept)
    mask = accepted | ~new
    return final, Aligned(*(values[mask] for values in vars(result).values()))
