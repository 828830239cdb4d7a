"""Load a model of a store, or any COLMAP model, for ``caloric view``."""

from pathlib import Path

import numpy as np

from caloric.collection import results
from caloric.errors import InputError
from caloric.interop import colmap, colmap_model
from caloric.runtime.words import counted
from caloric.view.model import ShownImage, ShownModel
from caloric.viz import model_figure


def models(directory: Path) -> list[Path]:
    """Return the models of a store or of a directory with COLMAP models, largest first."""
    for candidate in (directory / colmap.MODELS, directory / "sparse", directory):
        paths = colmap_model.models(candidate)
        if paths:
            return paths
    raise InputError(
        f"{directory}: contains no COLMAP model; expected a store of `caloric collection run` or a "
        "directory with cameras.bin, images.bin and points3D.bin"
    )


def load(directory: Path, number: int = 0, images: Path | None = None) -> ShownModel:
    """Return a model of a store, or of a directory with COLMAP models.

    Parameters
    ----------
    directory : Path
        The store, a directory with models, or a model.
    number : int
        The number of the model.
    images : Path, optional
        The image directory; by default that of the store.
    """
    paths = models(directory)
    if not 0 <= number < len(paths):
        raise InputError(f"{directory}: no model {number}; number of models: {len(paths)}")
    path = paths[number]
    points, cameras = colmap_model.points(path), colmap_model.cameras(path)
    # The page draws the first points only while the view moves, so their order is random.
    shuffled = np.random.default_rng(0).permutation(len(points.ids))
    order = np.argsort(points.ids[shuffled])
    ids = points.ids[shuffled][order]
    shown = []
    for image in sorted(colmap_model.registered(path), key=lambda image: image.name):
        rows = np.flatnonzero(image.points >= 0)
        camera = cameras[image.camera]
        shown.append(
            ShownImage(
                image.name, (camera.width, camera.height), camera.focal, image.matrix, image.center,
                image.xy[rows] - 0.5, order[np.searchsorted(ids, image.points[rows])],
            )
        )  # fmt: skip
    if not shown or not len(ids):
        raise InputError(f"{path}: the model has no points")
    model = colmap_model.summary(path)
    up = model_figure.up(np.stack([image.rotation for image in shown]))
    if (path / "origin.json").is_file():
        up = np.array([0.0, 0.0, 1.0])
    text = (
        f"{counted(len(shown), 'image')}, {counted(model.points, 'point')}, mean track length "
        f"{model.track_length:.2f}, mean reprojection error {model.error:.2f} px"
    )
    photographs = images if images is not None else results.images_of(directory)
    return ShownModel(
        (photographs or directory).resolve().name, text, points.ids[shuffled],
        points.xyz[shuffled], points.colors[shuffled], points.errors[shuffled], tuple(shown), up,
        photographs,
    )  # fmt: skip
