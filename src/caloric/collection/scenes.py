"""Models as arrays of observations: projections, triangulation, and local maps between views."""

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.interop import colmap_model, colmap_projection
from caloric.interop.colmap_model import Camera, Points, RegisteredImage
from caloric.types import FloatArray

Indices = NDArray[np.int64]
_STEPS = 8  # of triangulation
_MIN_DEPTH = 1e-9
_MODELS = "*", "sparse/*", "colmap/sparse/*"  # where models are in a project or collection


@dataclass(frozen=True, eq=False)
class Scene:
    """A model and its m observations, in the order of the images.

    Attributes
    ----------
    cameras, images, points
        The content of the model; the images are sorted by name.
    image, keypoint, point : array (m,)
        Indices of the image, of the keypoint in the image, and of the point, by observation.
    xy : array (m, 2)
        The positions in COLMAP's coordinates.
    """

    cameras: dict[int, Camera]
    images: list[RegisteredImage]
    points: Points
    image: Indices
    keypoint: Indices
    point: Indices
    xy: FloatArray

    def rows(self, number: int) -> slice:
        """Return the observations of an image by its index."""
        start, end = np.searchsorted(self.image, (number, number + 1))
        return slice(int(start), int(end))


def _has_model(directory: Path) -> bool:
    return any((directory / f"cameras{suffix}").is_file() for suffix in (".bin", ".txt"))


def read(directory: Path) -> Scene:
    """Return the model in a directory; raise InputError if it has no points."""
    if not _has_model(directory):
        inner = sorted(
            path for where in _MODELS for path in directory.glob(where) if _has_model(path)
        )
        hint = f"; use {inner[0]}" if inner else ""
        raise InputError(
            f"{directory}: not a COLMAP model: cameras.bin or cameras.txt is missing{hint}"
        )
    try:
        cameras, points = colmap_model.cameras(directory), colmap_model.points(directory)
        images = sorted(colmap_model.registered(directory), key=lambda image: image.name)
    except InputError:
        raise
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise InputError(f"{directory}: not a COLMAP model ({error})") from None
    if len(points.ids) == 0:
        raise InputError(f"{directory}: the model has no points; there is nothing to refine")
    if not np.isfinite(points.xyz).all():
        raise InputError(f"{directory}: the model has points that are not finite; remove them")
    for image in images:
        pose = *image.rotation, *image.translation
        if not (np.isfinite(pose).all() and any(image.rotation)):
            raise InputError(f"{directory}: the pose of {image.name} is invalid ({pose})")
        if not np.isfinite(image.xy[image.points >= 0]).all():
            raise InputError(f"{directory}: {image.name} has observations that are not finite")
        if image.camera not in cameras:
            raise InputError(f"{directory}: {image.name} has no camera {image.camera}")
        if not np.isin(image.points[image.points >= 0], points.ids).all():
            raise InputError(f"{directory}: {image.name} observes a point that does not exist")
    if not any((image.points >= 0).any() for image in images):
        raise InputError(f"{directory}: no image observes a point; there is nothing to refine")
    return build(cameras, images, points)


def build(cameras: dict[int, Camera], images: list[RegisteredImage], points: Points) -> Scene:
    """Return the observations of images, which are sorted by name."""
    order = np.argsort(points.ids)
    parts = []
    for number, image in enumerate(images):
        keypoint = np.flatnonzero(image.points >= 0)
        position = np.searchsorted(points.ids[order], image.points[keypoint])
        parts.append(
            (np.full(len(keypoint), number), keypoint, order[position], image.xy[keypoint])
        )
    return Scene(cameras, images, points, *(np.concatenate(v) for v in zip(*parts, strict=True)))


def part(scene: Scene, rows: Indices) -> Scene:
    """Return a scene with some of the observations (k,) only, and all images and points."""
    return replace(
        scene, image=scene.image[rows], keypoint=scene.keypoint[rows], point=scene.point[rows],
        xy=scene.xy[rows],
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Projections:
    """The projected points: ``xy`` (m, 2), their derivatives (m, 2, 3), and the depths (m,).

    Values are NaN for points behind the camera.
    """

    xy: FloatArray
    slopes: FloatArray
    depth: FloatArray


def project(scene: Scene, xyz: FloatArray) -> Projections:
    """Return the projections of points (n, 3) in all observations."""
    count = len(scene.xy)
    xy, slopes = np.empty((count, 2)), np.empty((count, 2, 3))
    rotation = np.stack([image.matrix for image in scene.images])[scene.image]
    translation = np.array([image.translation for image in scene.images])[scene.image]
    local = np.einsum("mij,mj->mi", rotation, xyz[scene.point]) + translation
    depth = local[:, 2].copy()
    local[depth < _MIN_DEPTH] = np.nan
    used = np.array([image.camera for image in scene.images])[scene.image]
    order = np.argsort(used, kind="stable")
    numbers, starts = np.unique(used[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        camera = scene.cameras[number]
        xy[rows] = colmap_projection.project(camera, local[rows])
        slopes[rows] = colmap_projection.jacobians(camera, local[rows])
    return Projections(xy, slopes @ rotation, depth)


def residuals(scene: Scene, xy: FloatArray, xyz: FloatArray) -> FloatArray:
    """Return the distances (m,) of positions from the projections of points; inf if behind."""
    distances = np.linalg.norm(project(scene, xyz).xy - xy, axis=1)
    return np.where(np.isfinite(distances), distances, np.inf)


def means(scene: Scene, values: FloatArray, used: NDArray[np.bool_] | None = None) -> FloatArray:
    """Return the mean of values (m,) of the observations of each point, or of those with ``used``.

    It is 0 for a point without observations.
    """
    count = len(scene.points.ids)
    weights = np.ones(len(values)) if used is None else used.astype(np.float64)
    total = np.bincount(scene.point, np.where(weights > 0, values, 0), minlength=count)
    return np.asarray(total / np.maximum(np.bincount(scene.point, weights, minlength=count), 1))


def triangulate(scene: Scene, xy: FloatArray, used: NDArray[np.bool_]) -> FloatArray:
    """Return the points (n, 3) that minimize the reprojection error of positions (m, 2).

    Gauss-Newton steps from the points of the model, damped for points that get worse. Only
    observations with ``used`` count; a point with fewer than two of them keeps its position.
    """
    xyz = scene.points.xyz.copy()
    count = len(xyz)
    enough = np.bincount(scene.point, used, minlength=count) >= 2
    damping = np.full(count, 1e-6)

    def cost(at: Projections) -> FloatArray:
        squares = np.where(used, ((at.xy - xy) ** 2).sum(1), 0)
        squares = np.where(np.isfinite(squares), squares, 1e12)
        return np.bincount(scene.point, squares, minlength=count).astype(np.float64)

    now = project(scene, xyz)
    before = cost(now)
    for _ in range(_STEPS):
        slopes = np.where(used[:, None, None] & np.isfinite(now.slopes), now.slopes, 0)
        errors = np.where(np.isfinite(now.xy), now.xy - xy, 0)
        normal, right = np.zeros((count, 3, 3)), np.zeros((count, 3))
        np.add.at(normal, scene.point, slopes.transpose(0, 2, 1) @ slopes)
        np.add.at(right, scene.point, np.einsum("mij,mi->mj", slopes, errors))
        trace = np.trace(normal, axis1=1, axis2=2)
        normal += (damping * trace + 1e-30)[:, None, None] * np.eye(3)
        step = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
        trial = np.where(enough[:, None], xyz - step, xyz)
        then = project(scene, trial)
        after = cost(then)
        better = after <= before
        damping = np.where(better, damping / 5, np.maximum(damping * 100, 1e-3))
        xyz = np.where(better[:, None], trial, xyz)
        before = np.where(better, after, before)
        rows = better[scene.point]
        now = Projections(
            np.where(rows[:, None], then.xy, now.xy),
            np.where(rows[:, None, None], then.slopes, now.slopes),
            np.where(rows, then.depth, now.depth),
        )
    return xyz


def added(scene: Scene, larger: Scene) -> NDArray[np.bool_]:
    """Return a mask of the observations of a larger scene that are not in a scene."""
    counts = np.array([len(image.xy) for image in scene.images])
    return np.asarray(larger.keypoint >= counts[larger.image])


def covering(scene: Scene, used: NDArray[np.bool_], per_image: int = 3) -> NDArray[np.bool_]:
    """Return a mask (m,) of the used observations of a few points that cover all images.

    The points of each image are those with the most observations; images with fewer points than
    ``per_image`` have all.
    """
    length = np.bincount(scene.point, used, minlength=len(scene.points.ids))
    selected = np.zeros(len(length), bool)
    for number in range(len(scene.images)):
        rows = scene.rows(number)
        points = scene.point[rows][used[rows]]
        selected[points[np.argsort(-length[points], kind="stable")[:per_image]]] = True
    return np.asarray(used & selected[scene.point])


def shapes(scene: Scene, at: Projections) -> FloatArray:
    """Return the linear maps (m, 2, 2) from the surface at each point to the image, in pixels.

    The surface is assumed to be perpendicular to the mean viewing direction of its images. All
    observations of a point have the same coordinates on the surface, so that A_b A_a⁻¹ is the local
    map from image a to image b.
    """
    centers = np.stack([image.center for image in scene.images])
    directions = centers[scene.image] - scene.points.xyz[scene.point]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    normals = np.zeros((len(scene.points.ids), 3))
    np.add.at(normals, scene.point, directions)
    _, _, axes = np.linalg.svd(normals[:, None])  # the last two rows are orthogonal to the normal
    return np.asarray(at.slopes @ axes[scene.point, 1:].transpose(0, 2, 1))
