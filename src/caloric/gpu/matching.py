"""Matching of many pairs of images on a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caloric.features import Features
from caloric.gpu.download import DeviceFeatures
from caloric.gpu.neighbors import Set, neighbors
from caloric.matching.neighbors import Matches, as_descriptors, check_dimensions, selected


def match(
    pairs: Sequence[tuple[Any, Any]],
    mutual: bool,
    ratio: float | None,
    radius: float,
    device: Any,
) -> list[Matches]:
    """Return the matches of each pair of features or arrays (n, d): see :func:`caloric.match`.

    Features that occur in several pairs are sent to the device once.
    """
    results = [Matches.empty() for _ in pairs]
    searches: dict[tuple[bool, int], _Search] = {}
    for number, (a, b) in enumerate(pairs):
        placed = ratio is not None and _placed(a) and _placed(b)
        left, right = _set(a, "first set", placed), _set(b, "second set", placed)
        if 0 in (len(left.values), len(right.values)):
            continue
        dimensions = left.values.shape[1], right.values.shape[1]
        check_dimensions(*dimensions)
        search = searches.setdefault((placed, dimensions[0]), _Search([], {}, [], []))
        search.pairs.append((search.number(a, left), search.number(b, right)))
        search.wanted.append(number)
    for search in searches.values():
        found = neighbors(search.sets, search.pairs, radius, device)
        for number, result in zip(search.wanted, found, strict=True):
            results[number] = selected(result, mutual, ratio)
    return results


@dataclass(frozen=True, eq=False)
class _Search:
    """Pairs of sets that are searched together; ``wanted`` are their numbers among all pairs."""

    sets: list[Set]
    known: dict[int, int]
    pairs: list[tuple[int, int]]
    wanted: list[int]

    def number(self, features: Any, values: Set) -> int:
        """Return the number of a set; the same features are one set."""
        number = self.known.setdefault(id(features), len(self.sets))
        if number == len(self.sets):
            self.sets.append(values)
        return number


def _placed(features: Any) -> bool:
    return isinstance(features, Features | DeviceFeatures)


def _set(features: Any, which: str, placed: bool) -> Set:
    if isinstance(features, DeviceFeatures):
        return Set(features.descriptors, features.maps[:, :, 2] if placed else None)
    if isinstance(features, Features):
        return Set(features.descriptors, features.frames.xy if placed else None)
    return Set(as_descriptors(features, which))
