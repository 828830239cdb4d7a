"""Count incorrect pairs among those that COLMAP's SIFT and ``caloric collection`` accept.

Images of different sets show different scenes, so that every pair of them is incorrect. A pair of
one set is judged by Caloric's model, if both images are in it: it is incorrect if fewer than half
of its inliers are close to their epipolar lines in the model.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from caloric import pipeline
from caloric.collection import exporting, extraction, matching
from caloric.collection.matching import Matching
from caloric.features import Features
from caloric.interop import colmap_model, colmap_tables
from caloric.interop.colmap_model import Camera
from caloric.matching import models
from caloric.types import FloatArray, Report

FEW = 15  # inliers from which COLMAP accepts a pair
_CLOSE = 4.0  # pixels
_UNDISTORTING_STEPS = 20
# Names of two images, and the positions (n, 2) of inliers in both, in COLMAP's coordinates.
InlierPair = tuple[str, str, FloatArray, FloatArray]


def unrelated(stores: Sequence[Path], count: int, seed: int = 0) -> Report:
    """Return how many of ``count`` random pairs of images from different stores are accepted."""
    random = np.random.default_rng(seed)
    images = [extraction.stored_images(store) for store in stores]
    stored = extraction.shards(stores[0])

    def features(store: int) -> Features:
        name = str(random.choice(sorted(images[store])))
        (row,) = stored.read(images[store][name].path, None, {name})
        return extraction.features_of(row)

    options = Matching()
    accepted = many_inliers = 0
    for _ in range(count):
        a, b = (features(int(store)) for store in random.choice(len(stores), 2, replace=False))
        indices = pipeline.match(a, b, ratio=options.ratio).indices
        estimate = matching.estimated(a, b, indices, options)
        accepted += estimate.confidence > options.confidence
        many_inliers += int(estimate.inliers.sum()) >= FEW
    return {"pairs": count, "accepted": accepted, f"at least {FEW} inliers": many_inliers}


def of_database(path: Path) -> Iterator[InlierPair]:
    """Yield the pairs of a COLMAP database that COLMAP accepts."""
    xy = {name: rows[:, :2].astype(float) for name, rows in colmap_tables.keypoints(path).items()}
    with closing(sqlite3.connect(path)) as database:
        for a, b, matches in colmap_tables.pairs(database):
            if len(matches) >= FEW:
                yield a, b, xy[a][matches[:, 0]], xy[b][matches[:, 1]]


def of_store(store: Path) -> Iterator[InlierPair]:
    """Yield the verified pairs of a store."""
    xy = {name: features.frames.xy + 0.5 for name, features in exporting.images(store)}
    for pair in matching.two_views(store):
        if pair.matrix is not None:
            i, j = pair.inlier_matches.T
            yield pair.name_a, pair.name_b, xy[pair.name_a][i], xy[pair.name_b][j]


def _calibration(camera: Camera) -> tuple[FloatArray, float]:
    """Return the calibration matrix (3, 3) and the radial distortion of a SIMPLE_RADIAL camera."""
    focal, x, y, radial = camera.parameters
    return np.array([[focal, 0, x], [0, focal, y], [0, 0, 1.0]]), radial


def _undistorted(points: FloatArray, camera: Camera) -> FloatArray:
    """Return points (n, 2) without the distortion of the camera, in pixels."""
    matrix, radial = _calibration(camera)
    distorted = (points - matrix[:2, 2]) / matrix[0, 0]
    rays = distorted
    for _ in range(_UNDISTORTING_STEPS):
        rays = distorted / (1 + radial * (rays**2).sum(1, keepdims=True))
    return np.asarray(rays * matrix[0, 0] + matrix[:2, 2])


def judged(pairs: Iterable[InlierPair], model: Path) -> Report:
    """Return the number of pairs whose images are in a model, and the incorrect ones by name."""
    images = {image.name: image for image in colmap_model.registered(model)}
    cameras = colmap_model.cameras(model)
    count, incorrect = 0, []
    for name_a, name_b, p, q in pairs:
        if name_a not in images or name_b not in images:
            continue
        a, b = images[name_a], images[name_b]
        rotation = b.matrix @ a.matrix.T
        x, y, z = np.array(b.translation) - rotation @ np.array(a.translation)
        essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ rotation
        known = cameras[a.camera], cameras[b.camera]
        p, q = (_undistorted(v, camera) for v, camera in zip((p, q), known, strict=True))
        matrices = [_calibration(camera)[0] for camera in known]
        residuals = models.residual(p, q, "essential", essential, matrices)
        count += 1
        if (residuals <= _CLOSE).mean() < 0.5:
            incorrect.append(f"{name_a} {name_b}")
    return {"pairs": count, "incorrect pairs": incorrect}
