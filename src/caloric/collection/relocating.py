"""Images with an incorrect position in a model, which most of their verified matches contradict.

COLMAP registers an image by the points that it finds first; on repeated structures these may be
incorrect. Matches of such an image with points of other images do not observe these points. It is
removed from the model, and COLMAP registers it again, with the points of all other images.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from caloric.interop import colmap, colmap_model, colmap_tables
from caloric.interop.colmap_model import Reconstruction

# Share of the matches with points that observe these points. On seven collections it is .40 for an
# image with an incorrect position, and at least .87 for all others.
_MIN_SHARE = 0.7
_MIN_MATCHES = 30  # with points; with fewer nothing is known
_MOST = 0.25  # of the images of a model; if there are more, the others may be incorrect


def contradicted(database: Path, model: Path) -> set[str]:
    """Return the images of a model that their verified matches in the database contradict."""
    points = {image.name: image.points for image in colmap_model.registered(model)}
    agreeing: Counter[str] = Counter()
    known: Counter[str] = Counter()
    with closing(sqlite3.connect(colmap_tables.read_only(database), uri=True)) as opened:
        for a, b, matches in colmap_tables.pairs(opened):
            if a not in points or b not in points:
                continue
            first, second = points[a][matches[:, 0]], points[b][matches[:, 1]]
            same = int(((first == second) & (first >= 0)).sum())
            for name, others in ((a, second), (b, first)):
                agreeing[name] += same
                known[name] += int((others >= 0).sum())
    return {
        name
        for name, count in known.items()
        if count >= _MIN_MATCHES and agreeing[name] < _MIN_SHARE * count
    }


def remove(model: Path, names: set[str], output: Path) -> None:
    """Write a model without some of its images, and without points that then have one image."""
    images = [i for i in colmap_model.registered(model) if i.name not in names]
    content = colmap_model.points(model)
    observed = np.concatenate([np.unique(image.points) for image in images])
    ids, counts = np.unique(observed[observed >= 0], return_counts=True)
    kept = np.isin(content.ids, ids[counts > 1])
    rest = colmap_model.Points(
        *(getattr(content, name)[kept] for name in ("ids", "xyz", "colors", "errors", "lengths"))
    )
    images = [
        replace(image, points=np.where(np.isin(image.points, rest.ids), image.points, -1))
        for image in images
    ]
    used = {image.camera for image in images}
    cameras = {k: v for k, v in colmap_model.cameras(model).items() if k in used}
    colmap_model.write(output, cameras, images, rest)


def relocate(
    model: Reconstruction,
    database: Path,
    directory: Path,
    output: Path,
    registered: Callable[[int], None],
) -> Reconstruction:
    """Return a model in which no image is contradicted, written to ``output`` if it is another.

    Images that are contradicted again, after they have been registered again, are removed.
    """
    names = contradicted(database, model.directory)
    if not 0 < len(names) <= _MOST * len(model.images):
        return model
    start, again, rest = (output / name for name in ("start", "again", "rest"))
    for path in (start, again, rest):
        path.mkdir(parents=True)
    remove(model.directory, names, start)
    models = colmap.map_images(database, directory, again, colmap.RELAXED, registered, start)
    new = max(models, key=lambda result: len(result.images), default=colmap_model.summary(start))
    still = contradicted(database, new.directory)
    if not still:
        return new
    remove(new.directory, still, rest)
    return colmap_model.summary(rest)
