"""Refine COLMAP models: their observations, points, cameras and poses.

The observations of each point are aligned with each other. Then points, poses and cameras are
adjusted. The result is a new model with the same images and points; it is not used if it is less
consistent than the old one.
"""

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import (
    adjusting,
    aligning,
    checkpoints,
    extending,
    projects,
    scenes,
    variances,
)
from caloric.collection.adjusting import Adjusted
from caloric.collection.aligning import OUTLIER, Aligned, Aligner, Alignments
from caloric.collection.checkpoints import Checkpoints
from caloric.collection.image_cache import Views
from caloric.collection.scenes import Scene
from caloric.collection.steps import Progress, no_progress
from caloric.collection.variances import Components
from caloric.errors import InputError
from caloric.image import inputs, reading
from caloric.interop import colmap, colmap_command, colmap_model, weighted_adjustment
from caloric.interop import hdf5 as hdf5_files
from caloric.runtime import threads
from caloric.runtime.files import (
    check_directory,
    check_input_directory,
    created_directory,
    replacing,
    replacing_path,
)
from caloric.types import FloatArray

COVARIANCES, COVARIANCES_HDF5 = "covariances.npz", "covariances.h5"  # beside the files of the model
_MEMORY = 1e9  # bytes of images
LONG = 5  # tracks of this length or longer are one row of the comparison


@dataclass(frozen=True)
class ModelRefinement:
    """The result of :func:`refine_model`.

    Attributes
    ----------
    directory : Path
        The directory of the new model.
    images, points, observations, refined : int
        The numbers of images, points, observations before, and refined observations, including
        added ones.
    added : int
        The number of observations that were added to tracks.
    before, after : float
        The mean reprojection error of the points in pixels, over the observations before. Points
        behind a camera are left out.
    by_length : dict
        The errors before and after by track length; the last is that of 5 and more.
    weighted : bool
        Whether the bundle adjustment weighted the observations by their covariances.
    improved : bool
        False if the result would have been worse: the new model is then a copy of the old one.
    rejected : float
        The mean reprojection error of a result that was worse; NaN if it was not.
    skipped : dict
        Missing or unreadable images, with the reasons; their observations were not refined.
    """

    directory: Path
    images: int
    points: int
    observations: int
    refined: int
    added: int
    before: float
    after: float
    by_length: dict[int, tuple[float, float]]
    weighted: bool
    improved: bool
    rejected: float
    skipped: dict[str, str]

    def __str__(self) -> str:
        """Return a summary in one line."""
        if not self.improved:
            tried = "" if np.isnan(self.rejected) else f" (refined: {self.rejected:.2f} px)"
            missing = "; some images are missing or unreadable" if self.skipped else ""
            return (
                f"not improved: the model was copied unchanged, {self.points:,} points, mean "
                f"reprojection error {self.before:.2f} px{tried}{missing}"
            )
        return (
            f"{self.images} images, {self.points:,} points; {self.refined - self.added:,} of "
            f"{self.observations:,} observations refined, {self.added:,} added; mean reprojection "
            "error "
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


def _errors(scene: Scene, xy: FloatArray) -> FloatArray:
    """Return the mean reprojection error (n,) of each point."""
    return scenes.means(scene, scenes.residuals(scene, xy, scene.points.xyz))


def _limited_mean(errors: FloatArray, limit: float) -> float:
    """Return the mean of errors (n,), of which none counts more than ``limit``."""
    return float(np.minimum(errors, limit).mean())


def _finite_mean(errors: FloatArray) -> float:
    finite = errors[np.isfinite(errors)]
    return float(finite.mean()) if len(finite) else np.inf


def _can_continue(target: Path) -> bool:
    """Return whether a directory is empty, or has only files of an interrupted call."""
    names = [path.name for path in target.iterdir()]
    ours = {checkpoints.NAME, COVARIANCES, COVARIANCES_HDF5, *colmap_model.BINARY_FILES}

    def is_ours(name: str) -> bool:
        # A file that was being written has a dot before its name and an ending after it.
        return name in ours or (name.startswith(".") and name[1:].rpartition(".")[0] in ours)

    return not names or (checkpoints.NAME in names and all(map(is_ours, names)))


def _by_length(
    scene: Scene, before: FloatArray, after: FloatArray
) -> dict[int, tuple[float, float]]:
    lengths = np.minimum(np.bincount(scene.point, minlength=len(before)), LONG)
    return {
        int(length): (
            _finite_mean(before[lengths == length]),
            _finite_mean(after[lengths == length]),
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
    principal_point: bool = False,
    extend: bool = True,
    hdf5: bool = False,
    progress: Progress = no_progress,
) -> ModelRefinement:
    """Refine the observations of a COLMAP model, and adjust its points, poses and cameras.

    The new model has the same images, points and keypoints, and additional keypoints where tracks
    are extended, in binary files; the covariances of the observations are in ``covariances.npz``
    beside them. The old model is not changed. If the mean
    reprojection error would increase, without outliers, the new model is a copy of the old one. If
    the function is interrupted, the next call with the same arguments continues.

    Parameters
    ----------
    model : str or Path
        Directory of the model: cameras, images and points3D, as .bin or .txt.
    images : str or Path
        Directory of the images. Observations in missing images are not refined.
    out : str or Path
        Directory of the new model, which must be empty or not exist, or have the files of an
        interrupted call.
    adjust : bool
        Whether to run a bundle adjustment. It weights the observations by their covariances if
        pycolmap and pyceres are installed, and is that of COLMAP, without weights, otherwise.
        Without it, only points are triangulated again.
    intrinsics : bool
        Whether the bundle adjustment refines focal lengths and distortion.
    principal_point : bool
        Whether it refines principal points, which needs many images of a camera.
    extend : bool
        Whether to add observations to tracks, in images that see a point but do not observe it.
    hdf5 : bool
        Whether to write the covariances to ``covariances.h5`` too, with a group for each image.
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
    if target.is_dir() and not _can_continue(target):
        raise InputError(f"{target}: not empty; specify a new directory")
    weighted = adjust and weighted_adjustment.available()
    if adjust and not weighted and not colmap.available() and colmap_command.executable() is None:
        raise InputError(
            f"bundle adjustment needs COLMAP: {colmap.INSTALL}, or install its executable, or use "
            "adjust=False (--no-adjust)"
        )
    if hdf5:
        hdf5_files.h5py()
    scene = scenes.read(source)
    skipped = projects.missing((image.name for image in scene.images), directory)
    with created_directory(target):
        views = Views(_reader(scene, directory, skipped), _MEMORY)
        saved = Checkpoints(target / checkpoints.NAME, _inputs(scene, source, directory))
        aligner = Aligner(scene, views, set(skipped))
        aligned, xyz = aligning.align_all(aligner, progress, _saved_by(saved))
        larger = replace(scene, points=replace(scene.points, xyz=xyz))
        if extend and aligned.refined.any():
            larger, aligned = extending.extend(larger, views, set(skipped), aligned, progress)
        result, components = Adjusted(larger, {}), Components()
        if adjust and aligned.refined.any():
            options = {
                "refine_focal_length": intrinsics, "refine_extra_params": intrinsics,
                "refine_principal_point": principal_point,
            }  # fmt: skip
            result = adjusting.adjust(larger, aligned, options, weighted)
            components = variances.estimate(result.scene, aligned)
        elif extend:
            points = scenes.triangulate(larger, aligned.xy, aligned.refined)
            result = Adjusted(replace(larger, points=replace(larger.points, xyz=points)), {})
        errors = scenes.residuals(result.scene, aligned.xy, result.scene.points.xyz)
        old = ~scenes.added(scene, larger)
        before, after = _errors(scene, scene.xy), scenes.means(larger, errors, old)
        observed = np.bincount(scene.point, minlength=len(before)) > 0
        limit = OUTLIER * float(np.median(before[observed]))
        improved = bool(
            aligned.refined.any()
            and _limited_mean(after[observed], limit) < _limited_mean(before[observed], limit)
        )
        rejected = _finite_mean(after[observed]) if aligned.refined.any() else np.nan
        if not improved:
            larger, result, aligned = scene, Adjusted(scene, {}), aligning.unrefined(scene.xy)
            components = Components()
            errors, after = scenes.residuals(scene, scene.xy, scene.points.xyz), before
        everything = np.ones(len(larger.xy), bool)
        new = adjusting.changed(result.scene, aligned.xy, result.scene.points.xyz, everything)
        points_errors = np.where(observed, scenes.means(larger, errors), scene.points.errors)
        _write_covariances(target, aligned, result, components, hdf5)
        # Points without observations are kept.
        content = replace(result.scene.points, errors=points_errors)
        colmap_model.write(target, new.cameras, new.images, content)
        saved.remove()
    return ModelRefinement(
        target, len(scene.images), len(before), len(scene.xy), int(aligned.refined.sum()),
        len(larger.xy) - len(scene.xy), _finite_mean(before[observed]),
        _finite_mean(after[observed]), _by_length(scene, before, after), weighted, improved,
        np.nan if improved else rejected, skipped,
    )  # fmt: skip


def _inputs(scene: Scene, model: Path, images: Path) -> Iterator[bytes]:
    """Yield everything that the alignments depend on."""
    for path in sorted(model.glob("*.*")):
        if path.is_file():
            yield path.name.encode() + path.read_bytes()
    yield from checkpoints.states(images, (image.name for image in scene.images))


def _saved_by(saved: Checkpoints) -> aligning.Saved:
    """Return a function that saves the alignments of a block of images."""

    def joined(make: Callable[[], list[Alignments]]) -> checkpoints.Arrays:
        parts = make()
        names = Alignments.__dataclass_fields__ if parts else {}
        return {name: np.concatenate([vars(v)[name] for v in parts]) for name in names}

    def alignments(name: str, make: Callable[[], list[Alignments]]) -> list[Alignments]:
        arrays = saved(name, lambda: joined(make))
        return [Alignments(**arrays)] if arrays else []

    return alignments


def _three(covariances: FloatArray) -> NDArray[np.float32]:
    """Return xx, xy and yy (m, 3) of covariances (m, 2, 2)."""
    return covariances[:, [0, 0, 1], [0, 1, 1]].astype(np.float32)


def _write_covariances(
    directory: Path, aligned: Aligned, result: Adjusted, components: Components, hdf5: bool
) -> None:
    scene = result.scene
    numbers = np.array([image.number for image in scene.images], np.uint32)
    total = _three(variances.covariances(scene, aligned, components))
    noise = _three(aligned.noise)
    poses = [number for number in numbers if number in result.poses]
    with replacing(directory / COVARIANCES) as file:
        np.savez(
            file, image_ids=numbers[scene.image], keypoints=scene.keypoint.astype(np.uint32),
            refined=aligned.refined, covariances=total, noise=noise,
            components=np.array(astuple(components)),
            pose_image_ids=np.array(poses, np.uint32),
            poses=np.reshape([result.poses[number] for number in poses], (-1, 6, 6)),
        )  # fmt: skip
    if not hdf5:
        return
    with (
        replacing_path(directory / COVARIANCES_HDF5) as path,
        hdf5_files.h5py().File(path, "w") as file,
    ):
        for number, image in enumerate(scene.images):
            rows = scene.rows(number)
            group = file.create_group(image.name)
            group["keypoints"] = scene.keypoint[rows]
            group["refined"] = aligned.refined[rows]
            group["covariances"], group["noise"] = total[rows], noise[rows]
            if image.number in result.poses:
                group["pose"] = result.poses[image.number]
