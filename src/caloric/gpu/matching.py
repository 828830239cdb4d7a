"""Nearest neighbors of image pairs on a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caloric.features import Features
from caloric.gpu.download import DeviceFeatures
from caloric.gpu.neighbors import Set, neighbors
from caloric.matching.neighbors import Neighbors, as_descriptors, check_dimensions


def nearest_of_pairs(
    pairs: Sequence[tuple[Any, Any]], radius: float | None, device: Any
) -> list[Neighbors | None]:
    """Return the nearest neighbors of each pair of features or arrays (n, d).

    The result is None if a set is empty. With a radius, positions decide which second neighbors
    count. Features that occur in several pairs are uploaded once.
    """
    results: list[Neighbors | None] = [None] * len(pairs)
    searches: dict[tuple[bool, int], _Search] = {}
    for index, (a, b) in enumerate(pairs):
        with_xy = radius is not None and _has_positions(a) and _has_positions(b)
        left, right = _set(a, "first set", with_xy), _set(b, "second set", with_xy)
        if 0 in (len(left.values), len(right.values)):
            continue
        dimensions = left.values.shape[1], right.values.shape[1]
        check_dimensions(*dimensions)
        search = searches.setdefault((with_xy, dimensions[0]), _Search([], {}, [], []))
        search.pairs.append((search.set_index(a, left), search.set_index(b, right)))
        search.pair_indices.append(index)
    for search in searches.values():
        nearest = neighbors(search.sets, search.pairs, radius or 0.0, device)
        for index, result in zip(search.pair_indices, nearest, strict=True):
            results[index] = result
    return results


@dataclass(frozen=True, eq=False)
class _Search:
    """Pairs of sets that are searched together.

    ``set_indices`` maps the id of features to their set; ``pair_indices`` are the indices among all
    pairs.
    """

    sets: list[Set]
    set_indices: dict[int, int]
    pairs: list[tuple[int, int]]
    pair_indices: list[int]

    def set_index(self, features: Any, values: Set) -> int:
        """Return the index of a set, adding it if the features are new."""
        index = self.set_indices.setdefault(id(features), len(self.sets))
        if index == len(self.sets):
            self.sets.append(values)
        return index


def _has_positions(features: Any) -> bool:
    return isinstance(features, Features | DeviceFeatures)


def _set(features: Any, name: str, with_xy: bool) -> Set:
    if isinstance(features, DeviceFeatures):
        return Set(features.descriptors, features.maps[:, :, 2] if with_xy else None)
    if isinstance(features, Features):
        return Set(features.descriptors, features.frames.xy if with_xy else None)
    return Set(as_descriptors(features, name))
