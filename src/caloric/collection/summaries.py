"""Summaries of matched pairs."""

from dataclasses import dataclass
from pathlib import Path

from caloric.collection import matching


@dataclass(frozen=True)
class PairSummary:
    """The numbers of matches and inliers of two images.

    ``confidence`` is that of their geometry, 0 if there is none; ``is_verified`` is true if it was
    accepted.
    """

    name_a: str
    name_b: str
    matches: int
    inliers: int
    confidence: float
    is_verified: bool


def summaries(store: Path) -> list[PairSummary]:
    """Return a summary of each matched pair of a store, sorted by names."""
    matched, stored = matching.shards(store), matching.geometries(store)
    columns = ["name_a", "name_b", "count", "confidence", "matrix"]
    verified = {
        (row["name_a"], row["name_b"]): row
        for path in stored.all()
        for row in stored.read(path, columns)
    }
    result = []
    for path in matched.all():
        for row in matched.read(path, ["name_a", "name_b", "count"]):
            a, b = row["name_a"], row["name_b"]
            geometry = verified.get((a, b), {"count": 0, "confidence": 0.0, "matrix": ()})
            result.append(
                PairSummary(
                    a, b, row["count"], geometry["count"], geometry["confidence"],
                    len(geometry["matrix"]) > 0,
                )
            )  # fmt: skip
    return sorted(result, key=lambda pair: (pair.name_a, pair.name_b))
