"""Refine the principal points of a model's cameras.

COLMAP assumes that the principal point is the center of the image. It is often 1 % of the image
away from it, which displaces the camera centers. If many images share a camera and see a scene with
depth in different directions, a bundle adjustment can determine it; photographs that look straight
down on flat ground can not.
"""

from collections import Counter
from pathlib import Path

import numpy as np

from caloric.collection import scenes
from caloric.errors import InputError
from caloric.interop import colmap, colmap_model
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.files import temporary_directory
from caloric.types import FloatArray

_MODEL = "SIMPLE_RADIAL"  # the default; for other models, principal points are not refined
_MIN_IMAGES = 5  # of each camera
# Relative to the longer side of the image:
_MAX_OFFSET = 0.02  # distance from the center
_MAX_DEVIATION = 0.0005  # standard deviation of an accepted principal point


def _residuals(directory: Path) -> FloatArray:
    """Return the reprojection errors (n, 2) of all observations, in pixels."""
    scene = scenes.read(directory)
    return scenes.project(scene, scene.points.xyz).xy - scene.xy


def _is_determined(before: Path, after: Path) -> bool:
    """Return whether principal points are well determined, from a model with and without them.

    If they move by d and the sum of squared residuals, relative to their variance, decreases by c,
    the standard deviation is about d / √c.
    """
    old, new = colmap_model.cameras(before), colmap_model.cameras(after)
    sizes = np.array([(camera.width, camera.height) for camera in new.values()], np.float64)
    points = np.array([camera.parameters[1:3] for camera in new.values()])
    shifts = points - [old[number].parameters[1:3] for number in new]
    side = sizes.max(1, keepdims=True)
    residuals = [_residuals(directory) for directory in (before, after)]
    freedom = residuals[1].size - 3 * len(colmap_model.points(after).ids)
    offsets = np.linalg.norm((points - sizes / 2) / side, axis=1)
    if freedom <= 0 or offsets.max() > _MAX_OFFSET:
        return False
    sums = [float((values**2).sum()) for values in residuals]
    decrease = (sums[0] - sums[1]) / (sums[1] / freedom)
    moved = float(np.linalg.norm(shifts / side))
    return decrease > 0 and moved < _MAX_DEVIATION * decrease**0.5


def calibrate(model: Reconstruction) -> Reconstruction:
    """Return a model with refined principal points, if the images determine them.

    The files of the model are replaced. It is returned unchanged if a camera has few images or is
    not of COLMAP's default model.
    """
    counts = Counter(image.camera for image in colmap_model.registered(model.directory))
    cameras = colmap_model.cameras(model.directory).values()
    if not model.points:
        return model
    if min(counts.values()) < _MIN_IMAGES or {camera.model for camera in cameras} != {_MODEL}:
        return model
    with temporary_directory(model.directory.parent) as output:
        try:
            colmap.adjust(model.directory, output, {"refine_principal_point": True})
        except InputError:
            return model
        if not _is_determined(model.directory, output):
            return model
        for path in output.iterdir():
            path.replace(model.directory / path.name)
    return model
