"""Propagation of the verified matches of two images: see :mod:`caloric.matching.propagation`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import comparison
from caloric.extraction import tiled
from caloric.features import Features, offset_of
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image.pixels import Source
from caloric.matching import geometry as geometries
from caloric.matching import propagation, refinement
from caloric.matching.geometry import Geometry
from caloric.matching.models import residual
from caloric.matching.neighbors import ORIGINS, Matches
from caloric.matching.propagation import Checks, Propagated, Side
from caloric.matching.refinement import Refined
from caloric.matching.sampling import local_maps
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import ArrayOrTensor, FloatArray


@dataclass(frozen=True, eq=False)
class Verified:
    """The features, matches and geometry of two images."""

    a: Features
    b: Features
    matches: Matches
    geometry: Geometry


def propagated(
    pair: Verified,
    images: tuple[Any, Any],
    sources: tuple[Source, Source],
    masks: tuple[Any, Any],
    options: ExtractOptions,
    threshold: float,
    device: str,
) -> Verified:
    """Return a pair with propagated matches, whose new frames are appended to its features.

    The CPU reads the images from ``sources``. New frames are inside the ``masks`` (h, w), if these
    are not None. ``options`` are those with which the features were extracted, ``threshold`` is the
    largest residual of an inlier in pixels.
    """
    features, known = (pair.a, pair.b), pair.geometry
    matrix = known.matrix
    if matrix is None:
        return pair
    allowed = [tiled.allowed_by(m, f.image_size) for m, f in zip(masks, features, strict=True)]
    cameras = None if known.intrinsics is None else list(known.intrinsics)

    def consistent(p: ArrayOrTensor, q: ArrayOrTensor) -> ArrayOrTensor:
        return residual(p, q, known.model, matrix, cameras) <= threshold

    checks = Checks(consistent, (allowed[0], allowed[1]))
    maps_a, maps_b = comparison.matched_maps(pair.a.frames.maps, pair.b.frames.maps, pair.matches)
    inliers = maps_a[known.inliers, :, 2], maps_b[known.inliers, :, 2]
    target, new = devices.resolve(device), None
    if target is not None:
        from caloric.gpu import propagation as on_device

        new = on_device.propagate(features, inliers, checks, images, options, target)
    if new is None:
        new = _on_cpu(features, inliers, checks, sources, options)
    if not any(len(part.rows) for part in new):
        return pair
    a, b = threads.each(lambda i: _extended(features[i], new[1 - i]), range(2))
    matches = _joined(pair, maps_b, new)
    first, second = comparison.matched_maps(a.frames.maps, b.frames.maps, matches)
    fitted = geometries.refitted(
        known, first[:, :, 2], second[:, :, 2], matches.covariances, matches.trusted, threshold
    )
    return Verified(a, b, matches, fitted)


def _on_cpu(
    features: tuple[Features, Features],
    inliers: tuple[FloatArray, FloatArray],
    checks: Checks,
    sources: tuple[Source, Source],
    options: ExtractOptions,
) -> tuple[Propagated, Propagated]:
    """Return new matches of two images."""
    templates = [refinement.prepared(image.whole()) for image in sources]

    def refine(i: int, frames: FloatArray, predicted: FloatArray) -> Refined:
        return refinement.refine(templates[i], templates[1 - i], frames, predicted)

    def describe(i: int, maps: FloatArray) -> FloatArray:
        frames = Frames(maps, np.zeros(len(maps), np.float32))
        stored = tiled.describe(sources[i], frames, options, tiles.MEMORY)
        return _decoded(features[i], stored)

    a, b = (Side(f.frames.maps, _decoded(f, f.descriptors), f.image_size) for f in features)
    return propagation.propagate((a, b), inliers, refine, describe, checks)


def _decoded(features: Features, descriptors: NDArray[np.generic]) -> FloatArray:
    return np.asarray(descriptors, np.float64) - offset_of(features.encoding)


def _extended(features: Features, new: Propagated) -> Features:
    """Return features with new frames at the end, which have a score of 0."""
    frames = Frames(
        np.concatenate([features.frames.maps, new.maps]),
        np.concatenate([features.scores, np.zeros(len(new.maps), np.float32)]),
    )
    stored = (new.descriptors + offset_of(features.encoding)).astype(features.descriptors.dtype)
    return replace(
        features, frames=frames, descriptors=np.concatenate([features.descriptors, stored])
    )


def _joined(pair: Verified, maps_b: FloatArray, new: tuple[Propagated, Propagated]) -> Matches:
    """Return the matches of a pair, then those of frames of the first and of the second image."""
    known, (forward, backward) = pair.matches, new
    count_a, count_b = len(pair.a), len(pair.b)
    indices = [
        known.indices,
        np.stack([forward.rows, count_b + np.arange(len(forward.rows))], 1),
        np.stack([count_a + np.arange(len(backward.rows)), backward.rows], 1),
    ]
    starts = pair.b.frames.maps[backward.rows]
    # The position in the first image was refined: its covariance, mapped to the second image.
    local = local_maps(backward.maps, starts)
    mapped = local @ backward.covariances @ np.swapaxes(local, 1, 2)
    unknown = np.broadcast_to(np.diag([np.inf, np.inf]), (len(known), 2, 2))
    before = unknown if known.covariances is None else known.covariances
    later = np.full(len(forward.rows) + len(backward.rows), ORIGINS.index("propagation"), np.uint8)
    return Matches(
        np.concatenate(indices),
        np.concatenate([known.distances, forward.distances, backward.distances]).astype(np.float32),
        np.concatenate([maps_b, forward.maps, starts]),
        np.concatenate([before, forward.covariances, mapped]),
        np.concatenate([known.origins, later]),
    )
