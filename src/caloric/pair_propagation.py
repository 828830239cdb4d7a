"""Propagation of the verified matches of two images: see :mod:`caloric.matching.propagation`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import comparison
from caloric.extraction import tiled
from caloric.features import Features, offset_of
from caloric.frames import Frames, local_maps, mapped_covariances
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image.pixels import Source
from caloric.matching import geometry as geometries
from caloric.matching import propagation, refinement
from caloric.matching.geometry import Geometry
from caloric.matching.models import residual
from caloric.matching.neighbors import ORIGINS, Matches
from caloric.matching.propagation import Checks, Propagated, Side
from caloric.matching.refinement import Octaves, Refined
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import FloatArray


@dataclass(frozen=True, eq=False)
class Verified:
    """The features, matches and geometry of two images."""

    a: Features
    b: Features
    matches: Matches
    geometry: Geometry


def propagated(
    pair: Verified,
    octaves: tuple[Any, Any],
    sources: tuple[Source, Source],
    masks: tuple[Any, Any],
    options: ExtractOptions,
    threshold: float | None,
    device: str,
) -> Verified:
    """Return a pair with propagated matches, whose new frames are appended to its features.

    ``octaves`` come from :func:`caloric.comparison.prepared`; on the CPU, ``sources`` are read as
    well. New frames are inside the ``masks`` (h, w), if these are not None.
    ``options`` are those with which the features were extracted, ``threshold`` is the largest
    residual of an inlier in pixels, if it was given.
    """
    known, matrix = pair.geometry, pair.geometry.matrix
    if matrix is None:
        return pair
    allowed = [tiled.allowed_by(masks[i], f.image_size) for i, f in enumerate((pair.a, pair.b))]
    cameras = None if known.intrinsics is None else list(known.intrinsics)

    def consistent(p: FloatArray, q: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(residual(p, q, known.model, matrix, cameras) <= known.threshold)

    checks = Checks(consistent, (allowed[0], allowed[1]))
    maps_a, maps_b = comparison.matched_maps(pair.a.frames.maps, pair.b.frames.maps, pair.matches)
    inliers = maps_a[known.inliers, :, 2], maps_b[known.inliers, :, 2]
    sides = _side(pair.a), _side(pair.b)
    target, new = devices.resolve(device), None
    if target is not None and not isinstance(octaves[0], Octaves):
        from caloric.gpu import propagation as on_device

        new = on_device.propagate(sides, inliers, checks, octaves, options, target)
    if new is None:
        new = _on_cpu(sides, inliers, checks, octaves, sources, options)
    if not any(len(part.rows) for part in new):
        return pair
    matches, first, second = _joined(pair, (maps_a, maps_b), new)
    extended = [
        threads.begin(partial(_extended, pair.a, new[1])),
        threads.begin(partial(_extended, pair.b, new[0])),
    ]
    geometry = geometries.refitted(
        known,
        first[:, :, 2],
        second[:, :, 2],
        matches.covariances,
        threshold,
        pair.b.image_size,
    )
    return Verified(extended[0](), extended[1](), matches, geometry)


def _side(features: Features) -> Side:
    return Side(
        features.frames.maps, features.descriptors, features.image_size,
        offset_of(features.encoding),
    )  # fmt: skip


def _on_cpu(
    sides: tuple[Side, Side],
    inliers: tuple[FloatArray, FloatArray],
    checks: Checks,
    octaves: tuple[Any, Any],
    sources: tuple[Source, Source],
    options: ExtractOptions,
) -> tuple[Propagated, Propagated]:
    """Return new matches of two images."""
    templates = [
        image if isinstance(image, Octaves) else refinement.prepared(pixels.whole())
        for image, pixels in zip(octaves, sources, strict=True)
    ]

    def refine(i: int, frames: FloatArray, predicted: FloatArray) -> Refined:
        return refinement.refine(templates[i], templates[1 - i], frames, predicted)

    def describe(i: int, maps: FloatArray) -> Callable[[], NDArray[np.generic]]:
        frames = Frames(maps, np.zeros(len(maps), np.float32))
        return partial(tiled.describe, sources[i], frames, options, tiles.MEMORY)

    return propagation.propagate(sides, inliers, refine, describe, checks)


def _extended(features: Features, new: Propagated) -> Features:
    """Return features with new frames at the end, which have a score of 0."""
    frames = Frames(
        np.concatenate([features.frames.maps, new.maps]),
        np.concatenate([features.scores, np.zeros(len(new.maps), np.float32)]),
    )
    descriptors = np.concatenate([features.descriptors, new.descriptors])
    return replace(features, frames=frames, descriptors=descriptors)


def _joined(
    pair: Verified, maps: tuple[FloatArray, FloatArray], new: tuple[Propagated, Propagated]
) -> tuple[Matches, FloatArray, FloatArray]:
    """Return the matches of a pair, then those of frames of the first and of the second image.

    ``maps`` (m, 2, 3) are the matched frames of the pair; those of all matches are returned, too.
    """
    known, (forward, backward) = pair.matches, new
    count_a, count_b = len(pair.a), len(pair.b)
    indices = [
        known.indices,
        np.stack([forward.rows, count_b + np.arange(len(forward.rows))], 1),
        np.stack([count_a + np.arange(len(backward.rows)), backward.rows], 1),
    ]
    starts = pair.b.frames.maps[backward.rows]
    first = np.concatenate([maps[0], pair.a.frames.maps[forward.rows], backward.maps])
    second = np.concatenate([maps[1], forward.maps, starts])
    # The position in the first image was refined: its covariance, mapped to the second image.
    mapped = mapped_covariances(backward.covariances, local_maps(backward.maps, starts))
    unknown = np.broadcast_to(refinement.UNKNOWN, (len(known), 2, 2))
    before = unknown if known.covariances is None else known.covariances
    later = np.full(len(forward.rows) + len(backward.rows), ORIGINS.index("propagation"), np.uint8)
    matches = Matches(
        np.concatenate(indices),
        np.concatenate([known.distances, forward.distances, backward.distances]).astype(np.float32),
        second,
        np.concatenate([before, forward.covariances, mapped]),
        np.concatenate([known.origins, later]),
    )
    return matches, first, second
