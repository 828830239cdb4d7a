"""A result of ``match_images`` as a file: an image, vector graphics, a page, or JSON."""

import json
from pathlib import Path

from caloric.errors import InputError
from caloric.image_pair import ImageMatch
from caloric.matching.geometry import alternative
from caloric.matching.neighbors import ORIGINS
from caloric.runtime.files import check_target, replacing
from caloric.types import Report
from caloric.view import standalone
from caloric.view.images import LoadedImage
from caloric.viz import check_format, plots, vector

_IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
_DOCUMENTS = (".html", ".json")
SUFFIXES = (*_IMAGES, *vector.METADATA, *_DOCUMENTS)


def check(path: Path) -> None:
    """Raise InputError if a result cannot be written to a path: its suffix selects the format."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path}: cannot write matches as {path.suffix!r}; use {', '.join(SUFFIXES)}"
        )
    if suffix in vector.METADATA:
        plots.new_figure()
    elif suffix in _IMAGES:
        check_format(path)
    check_target(path)


def save(pair: ImageMatch, path: Path) -> None:
    """Write a result to a file: see :meth:`caloric.ImageMatch.save`."""
    check(path)
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        pair.figure().save(path)
    elif suffix in vector.METADATA:
        vector.save(pair.drawing(), path)
    else:
        text = page(pair) if suffix == ".html" else json.dumps(as_json(pair))
        with replacing(path) as file:
            file.write(text.encode())


def page(pair: ImageMatch, command: str = "") -> str:
    """Return the interactive page of a result, with the command that computes it."""
    names = [Path(name).name for name in labels(pair)]
    first, second = (
        LoadedImage.of_pixels(name, pixels)
        for name, pixels in zip(names, (pair.image_a, pair.image_b), strict=True)
    )
    return standalone.page((first, second), pair, command, " and ".join(names))


def labels(pair: ImageMatch) -> tuple[str, str]:
    """Return the paths of the images; "first image" and "second image" if they were arrays."""
    name_a, name_b = pair.names
    return name_a or "first image", name_b or "second image"


def as_json(pair: ImageMatch) -> Report:
    """Return the fields of ``caloric match --json``, described in docs/json.md."""
    matrix = pair.geometry.matrix
    columns = zip(
        *(points.tolist() for points in pair.all_points()),
        pair.matches.distances.tolist(),
        pair.geometry.inliers.tolist(),
        pair.matches.origins.tolist(),
        strict=True,
    )
    name_a, name_b = pair.names
    return {
        "image_a": name_a,
        "image_b": name_b,
        "descriptor": pair.features_a.descriptor,
        "features": list(pair.detected),
        "columns": ["x_a", "y_a", "x_b", "y_b", "distance", "inlier", "origin"],
        "origins": list(ORIGINS),
        "matches": [[*a, *b, *rest] for a, b, *rest in columns],
        "model": pair.geometry.model if matrix is not None else None,
        "matrix": matrix.tolist() if pair and matrix is not None else None,
        "inliers": len(pair),
        "alternative": alternative(pair.geometry),
        "sigma": pair.geometry.sigma,
        "threshold": pair.geometry.threshold,
        "confidence": pair.geometry.confidence,
        "reason": pair.geometry.reason,
        "level": pair.level,
        "refined": pair.matches.refined is not None,
    }
