"""Tracks: features of several images that show the same point, joined from pairwise matches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairMatches:
    """Matches (m, 2) of two images, and their distances (m,)."""

    name_a: str
    name_b: str
    matches: NDArray[np.uint32]
    distances: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tracks:
    """All features that are in a track, sorted by image and feature.

    ``image`` (n,) is an index into ``names``, ``feature`` (n,) an index into the features of the
    image, ``track`` (n,) the index of the track, and ``degree`` (n,) the number of matches of the
    feature. No track has two features of the same image.
    """

    names: list[str]
    image: Indices
    feature: Indices
    track: Indices
    degree: Indices

    def rows_by_image(self) -> dict[str, slice]:
        """Return the rows of each image that has features in tracks."""
        numbers, starts = np.unique(self.image, return_index=True)
        ends = [*starts[1:].tolist(), len(self.image)]
        return {
            self.names[number]: slice(start, end)
            for number, start, end in zip(numbers, starts.tolist(), ends, strict=False)
        }


def join(counts: dict[str, int], pairs: Iterable[PairMatches]) -> Tracks:
    """Return the tracks of images with the given numbers of features.

    Matches are joined in the order of their distances. A match that would put two features of an
    image into the same track is left out, which splits inconsistent tracks.
    """
    from scipy.sparse import coo_array  # imported here because it is slow to import
    from scipy.sparse.csgraph import connected_components

    names = sorted(counts)
    number = {name: i for i, name in enumerate(names)}
    starts = np.cumsum([0, *(counts[name] for name in names)])
    parts = [
        (
            starts[number[pair.name_a]] + pair.matches[:, 0].astype(np.int64),
            starts[number[pair.name_b]] + pair.matches[:, 1].astype(np.int64),
            pair.distances,
        )
        for pair in pairs
    ]
    none = np.zeros(0, np.int64)
    a, b, distance = (np.concatenate(v) for v in zip((none, none, none), *parts, strict=True))
    total = int(starts[-1])
    edges = coo_array((np.ones(len(a), np.int8), (a, b)), shape=(total, total))
    _, label = connected_components(edges, directed=False)
    degree = np.bincount(np.concatenate([a, b]), minlength=total)
    nodes = np.flatnonzero(degree)
    image = np.searchsorted(starts, nodes, side="right") - 1
    label = label[nodes].astype(np.int64)
    inconsistent = _repeated(label, image, len(names))
    if len(inconsistent):
        inside = np.isin(label, inconsistent)
        rows = np.searchsorted(nodes, np.stack([a, b], 1))
        rows, near = rows[inside[rows[:, 0]]], distance[inside[rows[:, 0]]]
        label[inside] = label.max() + 1 + _split(rows, near, image)[inside]
    _, component, size = np.unique(label, return_inverse=True, return_counts=True)
    kept = size[component] > 1
    _, track = np.unique(label[kept], return_inverse=True)
    return Tracks(names, image[kept], nodes[kept] - starts[image[kept]], track, degree[nodes[kept]])


def _repeated(label: Indices, image: Indices, images: int) -> Indices:
    """Return the labels that have several features in the same image."""
    keys, count = np.unique(label * images + image, return_counts=True)
    return np.unique(keys[count > 1] // images)


def _split(rows: Indices, distance: NDArray[np.float32], image: Indices) -> Indices:
    """Split inconsistent tracks; return for each feature the smallest index in its track.

    ``rows`` (m, 2) are the matches, as indices into ``image``. Union-find in the order of
    ``distance``.
    """
    parent = np.arange(len(image))
    images_of: dict[int, set[int]] = {}  # of each track, by its root

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for i, j in rows[np.lexsort((rows[:, 1], rows[:, 0], distance))].tolist():
        one, two = sorted((root(i), root(j)))
        if one == two:
            continue
        images, others = (images_of.setdefault(k, {int(image[k])}) for k in (one, two))
        if images.isdisjoint(others):
            parent[two] = one
            images |= images_of.pop(two)
    return np.array([root(i) for i in range(len(image))], np.int64)


def representatives(tracks: Tracks, sigmas: Mapping[str, NDArray[np.floating]]) -> Indices:
    """Return the index of the reference feature (k,) of each track, in its image.

    It is the feature with the most matches; ties are broken by the scale nearest to the mean of
    the track. ``sigmas`` has the scales (n,) of the features of each image.
    """
    return np.asarray(tracks.feature[_representatives(tracks, sigmas)])


def _representatives(tracks: Tracks, sigmas: Mapping[str, NDArray[np.floating]]) -> Indices:
    """Return the row (k,) of the reference feature of each track."""
    scale = np.zeros(len(tracks.track))
    for number in np.unique(tracks.image):
        rows = tracks.image == number
        scale[rows] = np.log(sigmas[tracks.names[number]][tracks.feature[rows]])
    mean = np.bincount(tracks.track, scale) / np.maximum(np.bincount(tracks.track), 1)
    # Rounded to be the same in all builds of the compiled core.
    deviation = np.round(np.abs(scale - mean[tracks.track]), 4)
    order = np.lexsort((np.arange(len(scale)), deviation, -tracks.degree, tracks.track))
    return np.asarray(order[np.unique(tracks.track[order], return_index=True)[1]])


def references(
    tracks: Tracks, sigmas: Mapping[str, NDArray[np.floating]]
) -> dict[tuple[str, str], Indices]:
    """Return pairs of a reference feature and a feature to refine: (k, 2) by pair of images.

    :func:`representatives` has the references. Each other feature of the track is in exactly one
    pair. ``sigmas`` has the scales (n,) of the features of each image.
    """
    if len(tracks.track) == 0:
        return {}
    reference = _representatives(tracks, sigmas)[tracks.track]
    others = np.flatnonzero(reference != np.arange(len(reference)))
    reference = reference[others]
    images = tracks.image[reference] * len(tracks.names) + tracks.image[others]
    order = np.argsort(images, kind="stable")
    others, reference, images = others[order], reference[order], images[order]
    values, starts = np.unique(images, return_index=True)
    features = np.stack([tracks.feature[reference], tracks.feature[others]], 1)
    return {
        (tracks.names[value // len(tracks.names)], tracks.names[value % len(tracks.names)]): part
        for value, part in zip(values.tolist(), np.split(features, starts[1:]), strict=True)
    }
