"""Refine COLMAP models: their observations, points, cameras and poses.

The observations of each point are aligned with a reference view. The model predicts where, and with
which scale, orientation and shape, the surroundings of the reference appear in the other images.
Then points, poses and cameras are adjusted by COLMAP. The result is a new model with the same
images, points and observations; it is not used if it is less consistent than the old one.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import scenes, tracks
from caloric.collection.image_cache import Views
from caloric.collection.scenes import Scene
from caloric.collection.steps import Progress, no_progress
from caloric.errors import InputError
from caloric.frames import sigmas
from caloric.image import inputs, reading
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.matching import refinement
from caloric.runtime import threads
from caloric.runtime.files import (
    check_directory,
    check_input_directory,
    created_directory,
    replacing,
)
from caloric.types import FloatArray

Mask = NDArray[np.bool_]
COVARIANCES = "covariances.npz"  # beside the files of the model
# σ of the frames in pixels, from coarse to fine. The first is about the largest shift; the second
# is that of points without a scale in caloric.refine.
_SIGMAS = (5.0, 2.5)
_ADJUSTMENTS = 2
_OUTLIER = 5.0  # medians of the reprojection error
_MIN_REFINED = 50  # observations of an image whose other observations the adjustment can leave out
_LONG = 5  # tracks of this length or longer are one row of the comparison


@dataclass(frozen=True, eq=False)
class Aligned:
    """Positions (m, 2) of all observations, covariances (m, 2, 2), and which were refined (m,)."""

    xy: FloatArray
    covariances: FloatArray
    refined: Mask


@dataclass(frozen=True)
class ModelRefinement:
    """The result of :func:`refine_model`.

    Attributes
    ----------
    directory : Path
        The directory of the new model.
    images, points, observations, refined : int
        The numbers of images, points, observations, and refined observations.
    before, after : float
        The mean reprojection error of the points in pixels, over all observations.
    by_length : dict
        The errors before and after by track length; the last is that of 5 and more.
    improved : bool
        False if the result would have been worse: the new model is then a copy of the old one.
    skipped : dict
        Missing or unreadable images, with the reasons; their observations were not refined.
    """

    directory: Path
    images: int
    points: int
    observations: int
    refined: int
    before: float
    after: float
    by_length: dict[int, tuple[float, float]]
    improved: bool
    skipped: dict[str, str]

    def __str__(self) -> str:
        """Return a summary in one line."""
        if not self.improved:
            return (
                f"not improved: the model was copied unchanged, {self.points:,} points, mean "
                f"reprojection error {self.before:.2f} px"
            )
        return (
            f"{self.images} images, {self.points:,} points; {self.refined:,} of "
            f"{self.observations:,} observations refined; mean reprojection error "
            f"{self.before:.2f} px before, {self.after:.2f} px after"
        )


def _reader(
    scene: Scene, directory: Path, skipped: dict[str, str]
) -> Callable[[str], tuple[NDArray[np.generic], int]]:
    """Return a function that reads an image by name, and adds unreadable ones to ``skipped``."""
    cameras = {image.name: scene.cameras[image.camera] for image in scene.images}

    def read(name: str) -> tuple[NDArray[np.generic], int]:
        path, camera = directory / name, cameras[name]
        try:
            pixels, orientation = inputs.read_image(path), reading.orientation(path)
            size = pixels.shape[1::-1] if orientation < 5 else pixels.shape[:2]
            if size != (camera.width, camera.height):
                raise InputError(
                    f"{path}: {size[0]} x {size[1]} pixels, but its camera has {camera.width} x "
                    f"{camera.height}; use the images of the model"
                )
        except InputError as error:
            skipped[name] = str(error)
            raise
        return pixels, orientation

    return read


def _pairs(
    scene: Scene, shapes: FloatArray, usable: Mask
) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return the observations (k, 2) of a reference and another, by their images."""
    rows = np.flatnonzero(usable)
    names = [str(i) for i in range(len(scene.images))]
    _, track = np.unique(scene.point[rows], return_inverse=True)
    # An observation's index in `tracks` is its row in the scene.
    joined = tracks.Tracks(names, scene.image[rows], rows, track, np.zeros(len(rows), np.int64))
    scale = np.ones(len(usable))
    scale[rows] = sigmas(shapes[rows])
    pairs = tracks.references(joined, dict.fromkeys(names, scale))
    # A track can have two observations in an image, which are not aligned with each other.
    return {(int(a), int(b)): part for (a, b), part in pairs.items() if a != b}


def _aligned(scene: Scene, views: Views, missing: set[str], progress: Progress) -> Aligned:
    """Align the observations of each point with its reference."""
    at = scenes.project(scene, scene.points.xyz)
    shapes = scenes.shapes(scene, at)
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(at.xy).all(1) & (np.abs(np.linalg.det(shapes)) > 0)
    usable &= ~np.isin(scene.image, [i for i, v in enumerate(scene.images) if v.name in missing])
    xy, refined = scene.xy.copy(), np.zeros(len(scene.xy), bool)
    covariances = np.full((len(xy), 2, 2), np.inf)
    sums, counts = np.zeros((len(xy), 2, 2)), np.zeros(len(xy))  # covariances at the references
    pairs = _pairs(scene, shapes, usable)
    for done, ((a, b), rows) in enumerate(sorted(pairs.items()), 1):
        first, second = rows.T
        change = shapes[second] @ np.linalg.inv(shapes[first])
        offset = scene.xy[first] - at.xy[first]
        start = at.xy[second] + np.einsum("mij,mj->mi", change, offset)
        with suppress(InputError):  # an unreadable image, which is in `skipped` now
            moved, new, errors = _align(
                views, scene.images[a].name, scene.images[b].name, scene.xy[first], start, change
            )
            first, second, change = first[moved], second[moved], change[moved]
            xy[second], covariances[second], refined[second] = new[moved], errors[moved], True
            back = np.linalg.inv(change)
            np.add.at(sums, first, back @ errors[moved] @ back.transpose(0, 2, 1))
            np.add.at(counts, first, 1)
        progress("pairs refined", done, len(pairs))
    references = counts > 0
    covariances[references] = sums[references] / counts[references, None, None]
    return Aligned(xy, covariances, refined | references)


def _align(
    views: Views, a: str, b: str, reference: FloatArray, start: FloatArray, change: FloatArray
) -> tuple[Mask, FloatArray, FloatArray]:
    """Align positions (k, 2) of image b with those of image a; all are in COLMAP's coordinates.

    Return which were aligned, their positions (k, 2) and covariances (k, 2, 2). ``change``
    (k, 2, 2) maps the surroundings in image a to those in image b.
    """
    first, second = views[a], views[b]
    circles = np.broadcast_to(np.eye(2), change.shape)
    maps_a, maps_b = (
        view.upright(np.concatenate([linear, position[:, :, None] - 0.5], 2))
        for view, linear, position in ((first, circles, reference), (second, change, start))
    )
    smaller = np.minimum(1.0, sigmas(maps_b))
    for sigma in _SIGMAS:
        scale = (sigma / smaller)[:, None, None]
        scaled_a, scaled_b = (
            np.concatenate([scale * maps[:, :, :2], maps[:, :, 2:]], 2) for maps in (maps_a, maps_b)
        )
        result = refinement.refine(first.octaves, second.octaves, scaled_a, scaled_b)
        maps_b = np.concatenate([result.maps[:, :, :2] / scale, result.maps[:, :, 2:]], 2)
    axes = second.to_stored[:, :2]
    with np.errstate(invalid="ignore"):
        covariances = axes @ result.covariances @ axes.T
    return result.moved, second.stored(result.xy) + 0.5, covariances


def _consistent(scene: Scene, aligned: Aligned) -> tuple[Aligned, FloatArray]:
    """Undo the refinement where the point does not fit the refined positions; return the points.

    An observation is undone if its error exceeds both the error before and five times the median,
    and a track if this holds for its mean error.
    """

    def undone(refined: Mask) -> Aligned:
        # A reference without another refined observation is not refined.
        count = np.bincount(scene.point, refined, minlength=len(scene.points.ids))
        refined = refined & (count >= 2)[scene.point]
        return Aligned(
            np.where(refined[:, None], aligned.xy, scene.xy),
            np.where(refined[:, None, None], aligned.covariances, np.diag([np.inf, np.inf])),
            refined,
        )  # fmt: skip

    before = scenes.residuals(scene, scene.xy, scene.points.xyz)
    for by_track in (False, True):
        points = scenes.triangulate(scene, aligned.xy, aligned.refined)
        after = scenes.residuals(scene, aligned.xy, points)
        limit = _OUTLIER * np.median(after[aligned.refined]) if aligned.refined.any() else 0.0
        old, new = before, after
        if by_track:
            old, new = (scenes.means(scene, v, aligned.refined)[scene.point] for v in (old, new))
        aligned = undone(aligned.refined & ~((new > limit) & (new > old)))
    return aligned, scenes.triangulate(scene, aligned.xy, aligned.refined)


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


def adjusted(scene: Scene, aligned: Aligned, xyz: FloatArray, options: dict[str, bool]) -> Scene:
    """Return the scene after bundle adjustments by COLMAP.

    COLMAP's executable has no robust loss. The second adjustment leaves out outliers of the first.
    """
    result, good = replace(scene, points=replace(scene.points, xyz=xyz)), aligned.refined
    for _ in range(_ADJUSTMENTS):
        result = _adjust(result, aligned, good, options)
        errors = scenes.residuals(result, aligned.xy, result.points.xyz)
        good = aligned.refined & (errors <= _OUTLIER * np.median(errors[aligned.refined]))
    return result


def _adjust(scene: Scene, aligned: Aligned, good: Mask, options: dict[str, bool]) -> Scene:
    """Return the scene after a bundle adjustment with the good observations.

    Images with few of them keep all, so that their poses are determined.
    """
    few = np.bincount(scene.image, good, minlength=len(scene.images)) < _MIN_REFINED
    used, count = good | few[scene.image], len(scene.points.ids)
    used &= (np.bincount(scene.point, used, minlength=count) >= 2)[scene.point]
    part = changed(scene, aligned.xy, scene.points.xyz, used)
    with tempfile.TemporaryDirectory(prefix="caloric.") as temporary:
        before, after = (Path(temporary) / name for name in ("before", "after"))
        before.mkdir()
        after.mkdir()
        colmap_model.write(before, part.cameras, part.images, part.points)
        colmap.adjust(before, after, options)
        cameras, points = colmap_model.cameras(after), colmap_model.points(after)
        poses = {image.number: image for image in colmap_model.registered(after)}
    images = [
        replace(image, rotation=poses[image.number].rotation,
                translation=poses[image.number].translation)
        for image in scene.images
    ]  # fmt: skip
    order = np.argsort(scene.points.ids)
    rows = order[np.searchsorted(scene.points.ids[order], points.ids)]
    xyz, others = scene.points.xyz.copy(), np.ones(count, bool)
    xyz[rows], others[rows] = points.xyz, False
    result = replace(scene, cameras=cameras, images=images, points=replace(scene.points, xyz=xyz))
    # The other points fit their refined observations, or all if there are none.
    has_refined = np.bincount(scene.point, aligned.refined, minlength=count) > 0
    fitted = others[scene.point] & (aligned.refined | ~has_refined[scene.point])
    xyz = scenes.triangulate(result, aligned.xy, fitted)
    return replace(result, points=replace(scene.points, xyz=xyz))


def _errors(scene: Scene, xy: FloatArray) -> FloatArray:
    """Return the mean reprojection error (n,) of each point."""
    return scenes.means(scene, scenes.residuals(scene, xy, scene.points.xyz))


def _by_length(
    scene: Scene, before: FloatArray, after: FloatArray
) -> dict[int, tuple[float, float]]:
    lengths = np.minimum(np.bincount(scene.point, minlength=len(before)), _LONG)
    return {
        int(length): (
            float(before[lengths == length].mean()),
            float(after[lengths == length].mean()),
        )
        for length in np.unique(lengths[lengths > 0])
    }


@threads.single_threaded_blas
def refine_model(
    model: str | Path,
    images: str | Path,
    out: str | Path,
    *,
    adjust: bool = True,
    intrinsics: bool = True,
    progress: Progress = no_progress,
) -> ModelRefinement:
    """Refine the observations of a COLMAP model, and adjust its points, poses and cameras.

    The new model has the same images, points and observations, in binary files; the covariances of
    the observations are in ``covariances.npz`` beside them. The old model is not changed. If the
    mean reprojection error would increase, the new model is a copy of the old one.

    Parameters
    ----------
    model : str or Path
        Directory of the model: cameras, images and points3D, as .bin or .txt.
    images : str or Path
        Directory of the images. Observations in missing images are not refined.
    out : str or Path
        Directory of the new model, which must be empty or not exist.
    adjust : bool
        Whether to run COLMAP's bundle adjustment, which does not weight the observations. Without
        it, only points are triangulated again.
    intrinsics : bool
        Whether the bundle adjustment refines focal lengths and distortion.
    progress : callable
        Called with what is counted, the number done, and the total.

    Returns
    -------
    ModelRefinement
        Reprojection errors before and after, and the images that were skipped.

    Examples
    --------
    >>> import caloric
    >>> result = caloric.refine_model("sparse/0", "images", "new")  # doctest: +SKIP
    >>> result.before, result.after  # doctest: +SKIP
    (1.52, 0.21)
    """
    directory = check_input_directory(images)
    source, target = check_input_directory(model), check_directory(Path(out))
    if target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target}: not empty; specify a new directory")
    if adjust and not colmap.available() and colmap_command.executable() is None:
        raise InputError(
            "bundle adjustment needs COLMAP: install pycolmap or the colmap executable, or use "
            "adjust=False (--no-adjust)"
        )
    scene = scenes.read(source)
    skipped = {
        image.name: f"{directory / image.name}: no such file"
        for image in scene.images
        if not (directory / image.name).is_file()
    }
    if len(skipped) == len(scene.images):
        raise InputError(f"{directory}: contains none of the images of {source}")
    with created_directory(target):
        views = Views(_reader(scene, directory, skipped))
        aligned, xyz = _consistent(scene, _aligned(scene, views, set(skipped), progress))
        before = _errors(scene, scene.xy)
        options = {"refine_focal_length": intrinsics, "refine_extra_params": intrinsics}
        if adjust and aligned.refined.any():
            result = adjusted(scene, aligned, xyz, options)
        else:
            result = replace(scene, points=replace(scene.points, xyz=xyz))
        after = _errors(result, aligned.xy)
        improved = bool(aligned.refined.any() and after.mean() < before.mean())
        if not improved:
            result, after = scene, before
            unknown = np.full_like(aligned.covariances, np.inf)
            aligned = Aligned(scene.xy, unknown, np.zeros(len(scene.xy), bool))
        everything = np.ones(len(scene.xy), bool)
        new = changed(result, aligned.xy, result.points.xyz, everything)
        colmap_model.write(target, new.cameras, new.images, replace(new.points, errors=after))
        _write_covariances(target / COVARIANCES, scene, aligned)
    return ModelRefinement(
        target, len(scene.images), len(before), len(scene.xy), int(aligned.refined.sum()),
        float(before.mean()), float(after.mean()), _by_length(scene, before, after), improved,
        skipped,
    )  # fmt: skip


def _write_covariances(path: Path, scene: Scene, aligned: Aligned) -> None:
    numbers = np.array([image.number for image in scene.images], np.uint32)
    c = aligned.covariances
    with replacing(path) as file:
        np.savez(
            file, image_ids=numbers[scene.image], keypoints=scene.keypoint.astype(np.uint32),
            refined=aligned.refined,
            covariances=np.stack([c[:, 0, 0], c[:, 0, 1], c[:, 1, 1]], 1).astype(np.float32),
        )  # fmt: skip
