"""Tracks: features of several images that show one point, joined from the matches of pairs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Joined:
    """Matches (m, 2) of two images that agree with their geometry, and their distances (m,)."""

    name_a: str
    name_b: str
    matches: NDArray[np.uint32]
    distances: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Tracks:
    """All features that are in a track, in the order of images and features.

    ``image`` (n,) counts in ``names``, ``feature`` (n,) within the image; ``track`` (n,) numbers
    the tracks; ``degree`` (n,) is the number of matches of a feature. No track has two features of
    one image.
    """

    names: list[str]
    image: Indices
    feature: Indices
    track: Indices
    degree: Indices


def join(counts: dict[str, int], pairs: Iterable[Joined]) -> Tracks:
    """Return the tracks of images with so many features each.

    Matches are joined nearest first; one that would bring two features of an image together is
    left out, which splits a track that contradicts itself.
    """
    from scipy.sparse import coo_array  # as slow to import as all of caloric
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
    twice = _repeated(label, image, len(names))
    if len(twice):
        inside = np.isin(label, twice)
        rows = np.searchsorted(nodes, np.stack([a, b], 1))
        rows, near = rows[inside[rows[:, 0]]], distance[inside[rows[:, 0]]]
        label[inside] = label.max() + 1 + _split(rows, near, image)[inside]
    _, place, size = np.unique(label, return_inverse=True, return_counts=True)
    kept = size[place] > 1
    _, track = np.unique(label[kept], return_inverse=True)
    return Tracks(names, image[kept], nodes[kept] - starts[image[kept]], track, degree[nodes[kept]])


def _repeated(label: Indices, image: Indices, images: int) -> Indices:
    """Return the labels that have two features in one image."""
    places, count = np.unique(label * images + image, return_counts=True)
    return np.unique(places[count > 1] // images)


def _split(rows: Indices, distance: NDArray[np.float32], image: Indices) -> Indices:
    """Return for each feature the smallest one of its track, where matches (m, 2) contradict."""
    parent = np.arange(len(image))
    seen: dict[int, set[int]] = {}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for i, j in rows[np.lexsort((rows[:, 1], rows[:, 0], distance))].tolist():
        one, two = sorted((root(i), root(j)))
        if one == two:
            continue
        images, others = (seen.setdefault(k, {int(image[k])}) for k in (one, two))
        if images.isdisjoint(others):
            parent[two] = one
            images |= seen.pop(two)
    return np.array([root(i) for i in range(len(image))], np.int64)


def references(
    tracks: Tracks, sigmas: Mapping[str, NDArray[np.floating]]
) -> dict[tuple[str, str], Indices]:
    """Return which features are to agree with which: (k, 2) for a reference image and another.

    The reference of a track is its feature with the most matches; among equals the one whose scale
    is nearest to the mean of the track, which is seen from a middle distance. ``sigmas`` has the
    scales (n,) of the features of each image. Every other feature of the track comes once.
    """
    if len(tracks.track) == 0:
        return {}
    scale = np.zeros(len(tracks.track))
    for number in np.unique(tracks.image):
        rows = tracks.image == number
        scale[rows] = np.log(sigmas[tracks.names[number]][tracks.feature[rows]])
    mean = np.bincount(tracks.track, scale) / np.maximum(np.bincount(tracks.track), 1)
    away = np.round(np.abs(scale - mean[tracks.track]), 4)  # alike in all builds of the core
    order = np.lexsort((np.arange(len(scale)), away, -tracks.degree, tracks.track))
    first = order[np.unique(tracks.track[order], return_index=True)[1]]
    reference = first[tracks.track]
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
