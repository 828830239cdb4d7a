"""GPS positions of images: nearest images, and the coordinates of a model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from caloric.image.exif import Exif
from caloric.interop import colmap, colmap_model
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.files import temporary_directory
from caloric.types import FloatArray

# WGS 84: semi-major axis in meters, and squared eccentricity.
_AXIS, _ECCENTRICITY = 6378137.0, 6.69437999014e-3
_LEAST = 4  # images with positions, to align a model
_NOISE = 3.0  # meters, of GPS
_SHARE = 0.1  # maximum median error of an aligned model, relative to its extent


def local(positions: FloatArray, origin: FloatArray) -> FloatArray:
    """Return positions (n, 3) as meters to the east, to the north and up from an origin (3,).

    Positions are latitude and longitude in degrees, and altitude in meters.
    """
    latitude, longitude = np.radians(origin[:2])
    sin, cos = np.sin([latitude, longitude]), np.cos([latitude, longitude])
    to_local = np.array(
        [
            [-sin[1], cos[1], 0],
            [-sin[0] * cos[1], -sin[0] * sin[1], cos[0]],
            [cos[0] * cos[1], cos[0] * sin[1], sin[0]],
        ]
    )
    return np.asarray((_earth_centered(positions) - _earth_centered(origin[None])) @ to_local.T)


def _earth_centered(positions: FloatArray) -> FloatArray:
    latitude, longitude = np.radians(positions[:, :2]).T
    radius = _AXIS / np.sqrt(1 - _ECCENTRICITY * np.sin(latitude) ** 2)
    distance = (radius + positions[:, 2]) * np.cos(latitude)
    z = (radius * (1 - _ECCENTRICITY) + positions[:, 2]) * np.sin(latitude)
    return np.stack([distance * np.cos(longitude), distance * np.sin(longitude), z], 1)


def known(exif: Mapping[str, Exif]) -> dict[str, FloatArray]:
    """Return the positions (3,) of the images that have one, sorted by name."""
    return {name: np.array(e.position) for name, e in sorted(exif.items()) if e.position}


def nearest(exif: Mapping[str, Exif], queries: list[str], count: int) -> dict[str, list[str]]:
    """Return for each query with a position the ``count`` other images that are nearest to it."""
    from scipy.spatial import cKDTree

    positions = known(exif)
    names = list(positions)
    asked = [name for name in queries if name in positions]
    if len(names) < 2 or not asked:
        return {}
    values = np.stack(list(positions.values()))
    east_north = local(values, values.mean(0))[:, :2]
    rows = dict(zip(names, east_north, strict=True))
    _, indices = cKDTree(east_north).query(
        np.stack([rows[name] for name in asked]), min(count + 1, len(names))
    )
    return {
        name: [names[i] for i in others if names[i] != name][:count]
        for name, others in zip(asked, indices.tolist(), strict=True)
    }


def align(model: Reconstruction, exif: Mapping[str, Exif]) -> Reconstruction:
    """Return a model in meters to the east, to the north and up, if GPS positions determine it.

    The files of the model are replaced. ``origin.json`` has the position of the origin. The model
    is returned unchanged if fewer than four of its images have positions, if these are nearly on a
    line, or if the model does not agree with them.
    """
    positions = {name: p for name, p in known(exif).items() if name in model.images}
    if len(positions) < _LEAST:
        return model
    values = np.stack(list(positions.values()))
    origin = np.round(values.mean(0), 6)
    meters = local(values, origin)
    # Standard deviations along the principal axes of the horizontal positions.
    extent, width = np.linalg.svd(meters[:, :2] - meters[:, :2].mean(0), compute_uv=False)
    extent, width = np.array([extent, width]) / np.sqrt(len(meters))
    if width < max(_NOISE, 0.05 * extent):
        return model
    locations = dict(zip(positions, meters, strict=True))
    limit = max(_NOISE, 0.05 * extent)
    with temporary_directory(model.directory.parent) as output:
        if not colmap.align(model.directory, output, locations, float(limit)):
            return model
        errors = [
            np.linalg.norm(image.center - locations[image.name])
            for image in colmap_model.registered(output)
            if image.name in locations
        ]
        if np.median(errors) > _SHARE * extent:
            return model
        for path in output.iterdir():
            path.replace(model.directory / path.name)
    latitude, longitude, altitude = origin.tolist()
    content = {"latitude": latitude, "longitude": longitude, "altitude": altitude}
    content["median error, meters"] = round(float(np.median(errors)), 3)
    (model.directory / "origin.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return replace(model, origin=(latitude, longitude, altitude))


def georeference(directory: Path) -> dict[str, float]:
    """Return the origin of a model and the median error of its cameras; {} without positions."""
    try:
        return dict(json.loads((directory / "origin.json").read_text("utf-8")))
    except FileNotFoundError:
        return {}


def origin(directory: Path) -> tuple[float, ...]:
    """Return latitude, longitude and altitude of the origin of a model; () if they are unknown."""
    content = georeference(directory)
    return tuple(content[name] for name in ("latitude", "longitude", "altitude")) if content else ()
