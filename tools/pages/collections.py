"""docs/scale.md: the cost of collections by size, from the results of ``python -m tools scale``."""

from collections.abc import Callable

from caloric.types import Report
from tools.pages.markdown import render, table

SIZES = {"1 thousand": 10**3, "1 million": 10**6, "1 billion": 10**9}
CORES = {10**3: 2, 10**6: 100, 10**9: 10_000}


def _bytes(count: float) -> str:
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def _time(hours: float) -> str:
    for unit, size in (("years", 8766.0), ("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= 1.5 * size:
            return (
                f"{hours / size:.3g} {unit}"
                if hours < 1000 * size
                else f"{hours / size:,.0f} {unit}"
            )
    return f"{hours * 3600:.3g} seconds"


def costs(report: Report, images: int) -> dict[str, float]:
    """Return core-hours, bytes and pairs of a collection, extrapolated from measured rates."""
    rates, compared = report["rates"], report["index"]["all compared"]
    pairs = images * rates["pairs"] / rates["images"]
    per_query = compared["milliseconds a query"] * report["index"]["threads"] / 1000
    hours = {
        "hash": images / rates["hashing, images a second"] / 3600,
        "extract": images / rates["one process"]["images a second"] / 3600,
        "vectors": images / rates["vectors, images a second"] / 3600,
        "search": images * per_query * images / report["index"]["vectors"] / 3600,
        "match": pairs / rates["matching, pairs a second"] / 3600,
        "verify": pairs / rates["verifying, pairs a second"] / 3600,
    }
    all_pairs = images * (images - 1) / 2
    return hours | {
        "match all": all_pairs / rates["matching, pairs a second"] / 3600,
        "pairs": pairs,
        "all pairs": all_pairs,
        "features": images * rates["bytes of its features"],
        "matches": pairs * rates["bytes of a pair"],
        "images": images * rates["bytes of an image"],
        "read to match": pairs * rates["bytes of its features"],
        "index": images * 4.0 * report["index"]["dimensions"],
        "plan": images * report["plan"]["bytes"] / report["plan"]["images"],
        "plan of pairs": images * report["pairs"]["bytes"] / report["pairs"]["images"],
    }


DISTRIBUTED = ("hash", "extract", "vectors", "match", "verify")  # steps run by workers


def _costs_table(report: Report) -> str:
    estimates = {name: costs(report, count) for name, count in SIZES.items()}

    def row(label: str, of: Callable[[dict[str, float]], str]) -> list[str]:
        return [label, *(of(estimates[name]) for name in SIZES)]

    def wall(name: str) -> str:
        hours = sum(estimates[name][step] for step in DISTRIBUTED) / CORES[SIZES[name]]
        return f"{_time(hours)} on {CORES[SIZES[name]]:,} cores"

    rows = [
        row("hash the files", lambda c: _time(c["hash"])),
        row("extract", lambda c: _time(c["extract"])),
        row("compute retrieval vectors", lambda c: _time(c["vectors"])),
        row("match", lambda c: _time(c["match"])),
        row("verify", lambda c: _time(c["verify"])),
        ["sum of these, in parallel", *(wall(name) for name in SIZES)],
        row(
            "search for the 20 nearest, exhaustive, on the client only",
            lambda c: _time(c["search"]),
        ),
        row("match all pairs instead of retrieved pairs", lambda c: _time(c["match all"])),
        row("images, read twice", lambda c: _bytes(2 * c["images"])),
        row("features on disk", lambda c: _bytes(c["features"])),
        row("features read for matching", lambda c: _bytes(c["read to match"])),
        row("matches and geometries on disk", lambda c: _bytes(c["matches"])),
        row("vectors, in the memory of one machine", lambda c: _bytes(c["index"])),
        row("the client's extraction plan, in memory", lambda c: _bytes(c["plan"])),
        row("the client's matching plan, in memory", lambda c: _bytes(c["plan of pairs"])),
    ]
    return table(["", *SIZES], rows)


def _workers(rates: Report) -> str:
    rows = []
    for name, kind, plural in (("process pool", "process", "es"), ("Dask", "Dask worker", "s")):
        one, two = (rates[k]["images a second"] for k in (f"one {kind}", f"two {kind}{plural}"))
        rows.append([name, f"{one:.1f}", f"{two:.1f}", f"{two / one:.2f}"])
    return table(["images per second", "one worker", "two workers", "ratio"], rows)


def _runs(runs: list[Report]) -> str:
    rows = []
    for run in runs:
        seconds = run["seconds"]
        where = f"{run['threads']} cores" + ("" if run["device"] == "cpu" else " and a GPU")
        where += "" if run["cluster"] == "none" else ", Dask"
        rows.append([
            f"{run['images']:,}", where, *(f"{value:,.0f} s" for value in seconds.values()),
            f"{run['images a second']:.3g}", f"{run['pairs']:,}", f"{run['verified pairs']:,}",
            f"{run['recall of selected pairs']:.1%}", f"{run['recall of verified pairs']:.1%}",
            _bytes(run["bytes an image"]), _bytes(run["memory of all processes, bytes"]),
        ])  # fmt: skip
    head = [
        "images", "machine", *runs[0]["seconds"], "images per second", "pairs", "verified",
        "overlapping pairs selected", "overlapping pairs verified", "store, per image",
        "memory of all processes",
    ]  # fmt: skip
    return table(head, rows)


def _exhaustive(runs: list[Report]) -> str:
    """Return what retrieval misses of the pairs that are verified if all are matched."""
    complete = next(run for run in runs if run["pairs"] == run["images"] * (run["images"] - 1) // 2)
    retrieved = next(
        run for run in runs
        if run["images"] == complete["images"] and run["threads"] == complete["threads"]
        and run is not complete
    )  # fmt: skip
    total, selected = complete["verified pairs"], retrieved["verified pairs"]
    return (
        f"If all pairs of {complete['images']:,} images are matched, {total:,} are verified. Retrieval "
        f"selects {selected:,} of them, {selected / total:.0%}. The others show the same part of a photograph in "
        "different scenes, with other rotations and stretches, and do not count as overlapping."
    )


def page(report: Report) -> str:
    """Return the text of the page."""
    return render(
        "scale.md", workers=_workers(report["rates"]), costs=_costs_table(report), size=_bytes,
        runs_table=_runs(report["runs"]), exhaustive=_exhaustive(report["runs"]), **report,
    )  # fmt: skip
