"""Remove verified matches of a COLMAP database that are not consistent after refinement."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import match_files, projects, tracks
from caloric.collection.match_files import Matches
from caloric.collection.observations import Edges, consistent
from caloric.collection.proposals import MAX_RESIDUAL
from caloric.interop import colmap_tables
from caloric.interop.colmap_tables import PairGeometry
from caloric.matching.models import residual
from caloric.types import FloatArray, GeometryModel

_EPIPOLAR = (2, 3)  # COLMAP's configurations CALIBRATED and UNCALIBRATED; the others have H
_MIN_SHARE = 0.5  # of the verified matches of a pair; otherwise its geometry is not precise


def residuals(
    geometry: PairGeometry, xy_a: FloatArray, xy_b: FloatArray, matches: Matches
) -> FloatArray:
    """Return the residuals (m,) of matches in pixels; infinite if the geometry has no matrix.

    Positions (n, 2) are in COLMAP's coordinates.
    """
    is_epipolar = geometry.configuration in _EPIPOLAR
    matrix = geometry.matrices.get("F" if is_epipolar else "H")
    if matrix is None or not matrix.any():
        return np.full(len(matches), np.inf)
    p, q = xy_a[matches[:, 0]], xy_b[matches[:, 1]]
    model: GeometryModel = "fundamental" if is_epipolar else "homography"
    return np.asarray(residual(p, q, model, matrix))


def filter_matches(database: Path, sigma: float) -> int:
    """Remove inconsistent verified matches, in place; return their number.

    A match is consistent if its residual is small, and if both keypoints agree with the other
    observations of their track. Pairs that would lose more than half of their matches keep them.
    """
    project = projects.read_colmap(database, sigma)
    joined = tracks.join({name: len(maps) for name, maps in project.maps.items()}, project.pairs)
    rows_of, node = joined.rows_by_image(), {}
    for name, maps in project.maps.items():
        node[name] = np.full(len(maps), -1)
        if name in rows_of:
            part = rows_of[name]
            node[name][joined.feature[part]] = np.arange(part.start, part.stop)
    xy = {name: maps[:, :, 2] + 0.5 for name, maps in project.maps.items()}
    edges: list[Edges] = []
    in_track: list[NDArray[np.bool_]] = []
    with match_files.opened((database,)) as file:
        for pair in project.pairs:
            a, b = pair.name_a, pair.name_b
            content = file.pair(min(a, b), max(a, b))
            assert content.geometry is not None
            geometry = content.geometry if a < b else content.geometry.swapped()
            rows = np.stack([node[a][pair.matches[:, 0]], node[b][pair.matches[:, 1]]], 1)
            is_joined = (rows >= 0).all(1) & (joined.track[rows[:, 0]] == joined.track[rows[:, 1]])
            errors = residuals(geometry, xy[a], xy[b], pair.matches[is_joined])
            edges.append(Edges(rows[is_joined], errors.astype(np.float32)))
            in_track.append(is_joined)
    keep = consistent(joined, edges, np.ones(len(joined.track), bool))
    removed = 0
    with colmap_tables.opened(database) as tables:
        for pair, edge, is_joined in zip(project.pairs, edges, in_track, strict=True):
            chosen = (edge.residuals <= MAX_RESIDUAL) & keep[edge.rows].all(1)
            if chosen.sum() >= _MIN_SHARE * len(pair.matches):
                inliers = pair.matches[is_joined][chosen]
                tables.replace_inliers(pair.name_a, pair.name_b, inliers)
                removed += len(pair.matches) - len(inliers)
    return removed
