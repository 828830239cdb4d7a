"""Align the observations of each point of a model with each other.

The observations of a point are aligned with a reference view. The model predicts where, and with
which scale, orientation and shape, the surroundings of the reference appear in the other images.
Observations for which this fails are tried again with other references.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.collection import scenes, tracks
from caloric.collection.image_cache import BYTES_PER_PIXEL, View, Views
from caloric.collection.scenes import Scene
from caloric.collection.steps import Progress
from caloric.errors import InputError
from caloric.frames import sigmas
from caloric.matching import refinement
from caloric.types import FloatArray

Mask = NDArray[np.bool_]
Pairs = dict[tuple[int, int], NDArray[np.int64]]  # rows of references and others, by their images
# σ of the frames in pixels, from coarse to fine. The first is about the largest shift; the second
# is that of points without a scale in caloric.refine.
_SIGMAS = (5.0, 2.5)
_REFERENCES = 3  # that are tried until one agrees with another observation
OUTLIER = 5.0  # medians of the reprojection error


@dataclass(frozen=True, eq=False)
class Aligned:
    """All m observations: positions, covariances, and which were refined.

    Attributes
    ----------
    xy : array (m, 2)
        The positions in COLMAP's coordinates.
    covariances, noise : array (m, 2, 2)
        The covariances by all errors, and by image noise only; infinite if not refined.
    refined : array (m,) of bool
        Which observations were aligned, or are the reference of aligned ones.
    """

    xy: FloatArray
    covariances: FloatArray
    noise: FloatArray
    refined: Mask


def unrefined(xy: FloatArray) -> Aligned:
    """Return the observations before any alignment."""
    infinite = np.broadcast_to(np.diag([np.inf, np.inf]), (len(xy), 2, 2)).copy()
    return Aligned(xy.copy(), infinite, infinite.copy(), np.zeros(len(xy), bool))


@dataclass(frozen=True, eq=False)
class Alignments:
    """Alignments of rows ``second`` with rows ``first`` (k,) of a scene.

    ``xy`` (k, 2) are the positions of the second, ``covariances`` and ``noise`` (k, 2, 2) those of
    the positions relative to the first, and ``change`` (k, 2, 2) is the local map to the second.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    xy: FloatArray
    covariances: FloatArray
    noise: FloatArray
    change: FloatArray


Saved = Callable[[str, Callable[[], list[Alignments]]], list[Alignments]]


def compute(name: str, make: Callable[[], list[Alignments]]) -> list[Alignments]:
    """Return the alignments of a block of images, without saving them."""
    return make()


def by_images(scene: Scene, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pairs:
    """Return rows (k, 2) of references and others by their images."""
    keys = scene.image[first] * len(scene.images) + scene.image[second]
    order = np.argsort(keys, kind="stable")
    values, starts = np.unique(keys[order], return_index=True)
    rows = np.stack([first, second], 1)[order]
    ends = [*starts[1:], len(rows)]
    count = len(scene.images)
    return {
        (int(value // count), int(value % count)): rows[start:end]
        for value, start, end in zip(values, starts, ends[: len(values)], strict=True)
        # A track can have two observations in an image, which are not aligned with each other.
        if value // count != value % count
    }


def _references(scene: Scene, shapes: FloatArray, usable: Mask, tried: Mask) -> Pairs:
    """Return the pairs of each point's reference, which was not tried yet, and its others."""
    rows = np.flatnonzero(usable & ~tried)
    if len(rows) == 0:
        return {}
    names = [str(i) for i in range(len(scene.images))]
    ids, track = np.unique(scene.point[rows], return_inverse=True)
    # An observation's index in `tracks` is its row in the scene.
    joined = tracks.Tracks(names, scene.image[rows], rows, track, np.zeros(len(rows), np.int64))
    scale = np.ones(len(usable))
    scale[rows] = sigmas(shapes[rows])
    reference = np.full(len(scene.points.ids), -1)
    reference[ids] = tracks.representatives(joined, dict.fromkeys(names, scale))
    others = np.flatnonzero(usable & (reference[scene.point] >= 0))
    first = reference[scene.point[others]]
    return by_images(scene, first[first != others], others[first != others])


def nearest_views(scene: Scene, rows: NDArray[np.int64], candidates: Mask) -> NDArray[np.int64]:
    """Return for each row the candidate of its point whose camera is nearest, or -1."""
    order = np.flatnonzero(candidates)
    order = order[np.argsort(scene.point[order], kind="stable")]
    points = scene.point[order]
    starts, ends = (np.searchsorted(points, scene.point[rows], side) for side in ("left", "right"))
    index = np.repeat(np.arange(len(rows)), ends - starts)
    offset = np.arange(len(index)) - np.repeat(np.cumsum(ends - starts) - (ends - starts),
                                               ends - starts)  # fmt: skip
    other = order[np.repeat(starts, ends - starts) + offset]
    centers = np.stack([image.center for image in scene.images])
    distance = np.linalg.norm(
        centers[scene.image[rows[index]]] - centers[scene.image[other]], axis=1
    )
    distance[scene.image[rows[index]] == scene.image[other]] = np.inf
    result = np.full(len(rows), -1)
    order = np.lexsort((distance, index))
    best = order[np.unique(index[order], return_index=True)[1]]
    best = best[np.isfinite(distance[best])]
    result[index[best]] = other[best]
    return result


class Aligner:
    """Aligns observations of a scene; images are read through ``views``."""

    def __init__(self, scene: Scene, views: Views[str], missing: set[str]) -> None:
        """Find out which observations can be aligned; those in missing images cannot."""
        self.scene, self.views = scene, views
        at = scenes.project(scene, scene.points.xyz)
        self.shapes = scenes.shapes(scene, at)
        with np.errstate(invalid="ignore"):
            usable = np.isfinite(at.xy).all(1) & (np.abs(np.linalg.det(self.shapes)) > 0)
        absent = [i for i, image in enumerate(scene.images) if image.name in missing]
        self.usable = usable & ~np.isin(scene.image, absent)
        size = BYTES_PER_PIXEL * max(v.width * v.height for v in scene.cameras.values())
        # Two blocks of images fit into memory, so that each is read once per pair of blocks.
        self.block = max(1, int(views.memory / size / 2))

    def align(
        self,
        pairs: Pairs,
        xy: FloatArray,
        xyz: FloatArray,
        progress: Progress,
        saved: Saved = compute,
    ) -> list[Alignments]:
        """Align pairs, given the positions of references and the points (n, 3)."""
        at = scenes.project(self.scene, xyz)
        results: list[Alignments] = []
        done = 0

        def blocks(pair: tuple[int, int]) -> tuple[int, int]:
            return pair[0] // self.block, pair[1] // self.block

        order = sorted(pairs, key=lambda pair: (blocks(pair), pair))
        for (i, j), group in itertools.groupby(order, key=blocks):
            keys = list(group)

            def make(keys: list[tuple[int, int]] = keys) -> list[Alignments]:
                parts = []
                for key in keys:
                    with suppress(InputError):  # an unreadable image, which is reported
                        parts.append(self._pair(key, pairs[key], xy, at))
                return parts

            results += saved(f"{i}-{j}", make)
            done += len(keys)
            progress("pairs refined", done, len(pairs))
        return results

    def _pair(
        self,
        pair: tuple[int, int],
        rows: NDArray[np.int64],
        xy: FloatArray,
        at: scenes.Projections,
    ) -> Alignments:
        first, second = rows.T
        change = self.shapes[second] @ np.linalg.inv(self.shapes[first])
        start = at.xy[second] + np.einsum("mij,mj->mi", change, xy[first] - at.xy[first])
        good = np.isfinite(start).all(1)
        first, second, change, start = first[good], second[good], change[good], start[good]
        a, b = (self.views[self.scene.images[number].name] for number in pair)
        moved, new, total, noise = aligned_positions(a, b, xy[first], start, change)
        return Alignments(
            first[moved], second[moved], new[moved], total[moved], noise[moved], change[moved]
        )


def aligned_positions(
    first: View, second: View, reference: FloatArray, start: FloatArray, change: FloatArray
) -> tuple[Mask, FloatArray, FloatArray, FloatArray]:
    """Align positions (k, 2) of the second image with those of the first, in COLMAP's coordinates.

    Return which were aligned, their positions (k, 2), and their covariances (k, 2, 2) by all errors
    and by image noise. ``change`` (k, 2, 2) maps the surroundings in the first image to those in
    the second.
    """
    circles = np.broadcast_to(np.eye(2), change.shape)
    maps_a, maps_b = (
        view.upright(np.concatenate([linear, position[:, :, None] - 0.5], 2))
        for view, linear, position in ((first, circles, reference), (second, change, start))
    )
    smaller = np.minimum(1.0, sigmas(maps_b))
    moved = np.zeros(len(change), bool)
    total, noise = (np.full((len(change), 2, 2), np.inf) for _ in range(2))
    for sigma in _SIGMAS:
        scale = (sigma / smaller)[:, None, None]
        scaled_a, scaled_b = (
            np.concatenate([scale * maps[:, :, :2], maps[:, :, 2:]], 2) for maps in (maps_a, maps_b)
        )
        result = refinement.refine(first.octaves, second.octaves, scaled_a, scaled_b)
        maps_b = np.concatenate([result.maps[:, :, :2] / scale, result.maps[:, :, 2:]], 2)
        # A finer step that does not improve the result of a coarser one keeps it.
        rows = result.moved
        total[rows], noise[rows] = result.total_covariances[rows], result.covariances[rows]
        moved |= rows
    axes = second.to_stored[:, :2]
    with np.errstate(invalid="ignore"):
        total, noise = (axes @ covariances @ axes.T for covariances in (total, noise))
    return moved, second.stored(maps_b[:, :, 2]) + 0.5, total, noise


def updated(aligned: Aligned, parts: list[Alignments]) -> Aligned:
    """Return the observations after alignments.

    The covariance of two positions relative to each other is shared equally among them. A reference
    has the mean of its shares, unless it was refined before.
    """
    xy, refined = aligned.xy.copy(), aligned.refined.copy()
    both = aligned.covariances.copy(), aligned.noise.copy()
    sums, counts = np.zeros((2, len(xy), 2, 2)), np.zeros(len(xy))
    for part in parts:
        back = np.linalg.inv(part.change)
        for k, relative in enumerate((part.covariances, part.noise)):
            both[k][part.second] = relative / 2
            np.add.at(sums[k], part.first, back @ (relative / 2) @ back.transpose(0, 2, 1))
        np.add.at(counts, part.first, 1)
        xy[part.second], refined[part.second] = part.xy, True
    references = (counts > 0) & ~refined
    for k in range(2):
        both[k][references] = sums[k][references] / counts[references, None, None]
    return Aligned(xy, *both, refined | references)


def consistent(scene: Scene, aligned: Aligned) -> tuple[Aligned, FloatArray]:
    """Undo the refinement where the point does not fit the refined positions; return the points.

    An observation is undone if its error exceeds both the error before and five times the median,
    and a track if this holds for its mean error.
    """
    before = scenes.residuals(scene, scene.xy, scene.points.xyz)
    for by_track in (False, True):
        points = scenes.triangulate(scene, aligned.xy, aligned.refined)
        after = scenes.residuals(scene, aligned.xy, points)
        limit = OUTLIER * np.median(after[aligned.refined]) if aligned.refined.any() else 0.0
        old, new = before, after
        if by_track:
            old, new = (scenes.means(scene, v, aligned.refined)[scene.point] for v in (old, new))
        aligned = kept(scene, aligned, aligned.refined & ~((new > limit) & (new > old)))
    return aligned, scenes.triangulate(scene, aligned.xy, aligned.refined)


def kept(scene: Scene, aligned: Aligned, refined: Mask) -> Aligned:
    """Return the observations with the refinement of the given ones only."""
    # A reference without another refined observation is not refined.
    count = np.bincount(scene.point, refined, minlength=len(scene.points.ids))
    refined = refined & (count >= 2)[scene.point]
    infinite = np.diag([np.inf, np.inf])
    total, noise = (
        np.where(refined[:, None, None], covariances, infinite)
        for covariances in (aligned.covariances, aligned.noise)
    )
    return Aligned(np.where(refined[:, None], aligned.xy, scene.xy), total, noise, refined)


def align_all(
    aligner: Aligner, progress: Progress, saved: Saved = compute
) -> tuple[Aligned, FloatArray]:
    """Return the observations, each aligned with its reference if possible, and the points.

    Points without an alignment are tried again with another reference, and then single observations
    with the nearest view that was refined, from the triangulated point.
    """
    scene, usable = aligner.scene, aligner.usable
    aligned, tried = unrefined(scene.xy), np.zeros(len(scene.xy), bool)
    count = len(scene.points.ids)
    for attempt in range(_REFERENCES):
        open_points = np.bincount(scene.point, aligned.refined, minlength=count) == 0
        pairs = _references(scene, aligner.shapes, usable & open_points[scene.point], tried)
        for rows in pairs.values():
            tried[rows[:, 0]] = True
        parts = aligner.align(
            pairs, scene.xy, scene.points.xyz, progress, saved if attempt == 0 else compute
        )
        aligned = updated(aligned, parts)
    aligned, points = consistent(scene, aligned)
    rows = np.flatnonzero(usable & ~aligned.refined)
    views = nearest_views(scene, rows, aligned.refined)
    pairs = by_images(scene, views[views >= 0], rows[views >= 0])
    aligned = updated(aligned, aligner.align(pairs, aligned.xy, points, progress))
    return consistent(scene, aligned)
