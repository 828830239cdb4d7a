"""Bundle adjustment with weighted observations, by pycolmap's cost functions and pyceres."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.interop import colmap
from caloric.interop.colmap_model import Camera
from caloric.runtime import threads
from caloric.types import FloatArray

_LOSS = 2.0  # standard deviations at which Cauchy's loss starts to reduce the weight
_TOLERANCE = 1e-6  # relative change of the cost at which the solver stops
Pose = tuple[tuple[float, ...], tuple[float, ...]]  # rotation (w, x, y, z) and translation


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed points.

    ``image`` (m,) are the ids of images, ``point`` (m,) the indices of points, ``xy`` (m, 2) the
    positions in COLMAP's coordinates, and ``covariances`` (m, 2, 2) those of the positions.
    """

    image: NDArray[np.int64]
    point: NDArray[np.int64]
    xy: FloatArray
    covariances: FloatArray


@dataclass(frozen=True, eq=False)
class Result:
    """Cameras by id, poses by image id, points (n, 3), and covariances (6, 6) of poses.

    The covariances are those of rotation and translation, by image id, relative to the image that
    is held fixed, which has none.
    """

    cameras: dict[int, Camera]
    poses: dict[int, Pose]
    xyz: FloatArray
    covariances: dict[int, FloatArray]


@cache
def available() -> bool:
    """Return whether pycolmap, with cost functions for poses of 7 numbers, and pyceres exist."""
    try:
        import pyceres  # noqa: F401
        import pycolmap
        import pycolmap.cost_functions
    except ImportError:
        return False
    return hasattr(pycolmap, "create_default_ceres_bundle_adjuster")


def adjust(
    skeleton: Path, observations: Observations, xyz: FloatArray, options: Mapping[str, bool]
) -> Result:
    """Return the result of a bundle adjustment with Cauchy's loss.

    ``skeleton`` is a model with all images and a few points: pycolmap sets up the parameters of
    poses and cameras for it, with their constraints. Then these points are replaced by those of
    ``xyz`` (n, 3). ``options`` are those of COLMAP, by name, such as refine_focal_length.
    """
    import pyceres
    import pycolmap.cost_functions

    library = colmap.pycolmap()
    settings, config = library.BundleAdjustmentOptions(), library.BundleAdjustmentConfig()
    for name, value in options.items():
        setattr(settings, name, value)
    model = colmap.call(lambda: library.Reconstruction(str(skeleton)), skeleton)
    for number in model.reg_image_ids():
        config.add_image(number)
    config.fix_gauge(library.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = library.create_default_ceres_bundle_adjuster(settings, config, model)
    problem = adjuster.problem
    for number in list(model.point3D_ids()):
        problem.remove_parameter_block(model.points3D[number].xyz)
    numbers, rows = np.unique(observations.point, return_inverse=True)
    color = np.zeros(3, np.uint8)
    ids = [model.add_point3D(xyz[i], library.Track(), color) for i in numbers]
    points = [model.points3D[i] for i in ids]
    poses = {i: model.images[i].frame.rig_from_world for i in model.reg_image_ids()}
    cameras = {i: model.cameras[model.images[i].camera_id] for i in poses}
    loss = pyceres.CauchyLoss(_LOSS)
    costs = []  # the problem does not keep them alive
    for image, row, xy, covariance in zip(
        observations.image.tolist(), rows.tolist(), observations.xy, observations.covariances,
        strict=True,
    ):  # fmt: skip
        camera = cameras[image]
        cost = pycolmap.cost_functions.ReprojErrorCost(camera.model, covariance, xy)
        costs.append(cost)
        parameters = [points[row].xyz, poses[image].params, camera.params]
        problem.add_residual_block(cost, loss, parameters)
    solver = settings.ceres.create_solver_options(config, problem)
    solver.num_threads, solver.function_tolerance = threads.count(), _TOLERANCE
    pyceres.solve(solver, problem, pyceres.SolverSummary())
    result = xyz.copy()
    result[numbers] = [point.xyz for point in points]
    return Result(
        {i: _camera(camera) for i, camera in model.cameras.items()},
        {i: _pose(pose) for i, pose in poses.items()},
        result,
        _covariances(library, model, problem),
    )


def _camera(camera: Any) -> Camera:
    size = int(camera.width), int(camera.height)
    return Camera(camera.model.name, *size, tuple(map(float, camera.params)))


def _pose(pose: Any) -> Pose:
    x, y, z, w = map(float, pose.rotation.quat)
    return (w, x, y, z), tuple(map(float, pose.translation))


def _covariances(library: Any, model: Any, problem: Any) -> dict[int, FloatArray]:
    """Return the covariances of poses; {} if they cannot be estimated."""
    options = library.BACovarianceOptions()
    options.params = library.BACovarianceOptionsParams.POSES
    estimate = library.estimate_ba_covariance_from_problem(options, model, problem)
    if estimate is None:
        return {}
    matrices = {i: estimate.get_cam_cov_from_world(i) for i in model.reg_image_ids()}
    return {i: np.asarray(v) for i, v in matrices.items() if v is not None and v.shape == (6, 6)}
