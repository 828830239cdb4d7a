"""Write docs/scale.md: what collections of any size cost, by the measured rates and sizes."""

from typing import Any

from tools.pages.markdown import table

Report = dict[str, Any]
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
    """Return core-hours, bytes and pairs of a collection of so many images, by measured rates."""
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


SPREAD = ("hash", "extract", "vectors", "match", "verify")  # steps that workers share


def _table(report: Report) -> list[str]:
    found = {name: costs(report, count) for name, count in SIZES.items()}

    def row(label: str, of: Any) -> list[str]:
        return [label, *(of(found[name]) for name in SIZES)]

    def wall(name: str) -> str:
        hours = sum(found[name][step] for step in SPREAD) / CORES[SIZES[name]]
        return f"{_time(hours)} on {CORES[SIZES[name]]:,}"

    rows = [
        row("hash the files", lambda c: _time(c["hash"])),
        row("extract", lambda c: _time(c["extract"])),
        row("compute retrieval vectors", lambda c: _time(c["vectors"])),
        row("match", lambda c: _time(c["match"])),
        row("verify", lambda c: _time(c["verify"])),
        ["sum of these, on a number of cores", *(wall(name) for name in SIZES)],
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


def _measured(report: Report) -> list[str]:
    rates, tiny, plan, index = (report[k] for k in ("rates", "tiny", "plan", "index"))
    one, two = (
        rates[f"{n} process{'es' * (n == 'two')}"]["images a second"] for n in ("one", "two")
    )
    dask = [
        rates[f"{n} Dask worker{'s' * (n == 'two')}"]["images a second"] for n in ("one", "two")
    ]
    same = "the same bytes" if rates["the same bytes from all"] else "NOT the same bytes"
    cells, compared = index["in cells"], index["all compared"]
    return [
        f"The collection has {rates['images']} photographs of {rates['megapixels']:.2f} megapixels "
        f"with {rates['features an image']:,.0f} features each. Workers have one thread each, on a "
        "machine with two cores:",
        "",
        *table(
            ["images per second", "one worker", "two workers", "ratio"],
            [
                ["process pool", f"{one:.1f}", f"{two:.1f}", f"{two / one:.2f}"],
                ["Dask", f"{dask[0]:.1f}", f"{dask[1]:.1f}", f"{dask[1] / dask[0]:.2f}"],
            ],
        ),
        f"All four runs write {same}. Per second, one core hashes "
        f"{rates['hashing, images a second']:,.0f} images, computes "
        f"{rates['vectors, images a second']:.0f} vectors, matches "
        f"{rates['matching, pairs a second']:.0f} pairs and verifies "
        f"{rates['verifying, pairs a second']:.0f} pairs. An image file takes "
        f"{_bytes(rates['bytes of an image'])}, its features "
        f"{_bytes(rates['bytes of its features'])}, and the matches and geometry of a pair "
        f"{_bytes(rates['bytes of a pair'])}.",
        "",
        "Simulations show how a large collection loads the parts that more workers do not speed up:",
        "",
        f"- Dask processes {tiny['images']:,} images, {tiny['pixels']} pixels wide and high, in "
        f"{tiny['shards']:,} shards and {tiny['seconds']:.0f} s. The client uses at most "
        f"{_bytes(tiny['client, bytes'])} of memory, the scheduler {_bytes(tiny['scheduler, bytes'])}.",
        f"- Planning the extraction of {plan['images']:,} images in {plan['shards']:,} shards takes "
        f"{plan['seconds']:.1f} s and {_bytes(plan['bytes'])}.",
        f"- Planning the matching of {report['pairs']['pairs']:,} pairs of "
        f"{report['pairs']['images']:,} images in {report['pairs']['shards']:,} shards takes "
        f"{report['pairs']['seconds']:.1f} s and {_bytes(report['pairs']['bytes'])}.",
        f"- An index holds {index['vectors']:,} vectors of {index['dimensions']} numbers: 20 vectors "
        f"per place, and the places lie in random directions. It uses {index['threads']} threads. "
        "Exhaustive search, "
        f"used up to a million vectors, takes {compared['milliseconds a query']:.1f} ms per query. "
        f"Search in cells, used beyond a million, takes {cells['build, seconds']:.0f} s to build and "
        f"{cells['milliseconds a query']:.2f} ms per query, and finds "
        f"{cells['of the exact neighbours']:.0%} of the nearest vectors. Random directions are the "
        "hardest case: cells group images that have something in common, and these have nothing in "
        "common.",
        "",
        f"Retrieval on the {report['retrieval']['queries']} images of Oxford Affine: for "
        f"{report['retrieval']['with all five in ten']} of them, all five other images of the same "
        "sequence are among the ten nearest.",
        "",
    ]


def page(report: Report) -> str:
    """Return the text of the page."""
    lines = [
        "# A thousand, a million, a billion images",
        "",
        "<!-- Written by `python -m tools page collections`; edit tools/pages/collections.py instead. -->",
        "",
        "This page estimates what [collections](collections.md) cost, from rates and sizes that",
        "`python -m tools scale` measured on one machine. Nobody has run a billion images: that column",
        "is an estimate that shows where to look for bottlenecks.",
        "",
        "## Measured",
        "",
        *_measured(report),
        "## Estimated",
        "",
        "Times are core time, unless the row gives a number of cores. Pairs come from retrieval.",
        "Photographs have the size above; larger ones take longer.",
        "",
        *_table(report),
        "## Where the bottleneck moves",
        "",
        "- **A thousand** images take minutes on one machine. Matching all pairs would already take",
        "  longer than all other steps; use `--pairs retrieval` or `--pairs sequential`.",
        "- **A million** images keep a hundred cores busy for an hour or two. Matching and extraction take",
        "  most of the time, and both are distributed over workers. The unit of work is a shard: each",
        "  worker reads and writes its own shards, and the scheduler sees only their names. Matching reads",
        "  the features of each image and of its partners, which is more data than the images themselves.",
        "  So put the store where the network is fast, or order the work by location. One machine still",
        "  makes the plan, holds all vectors, and compares them.",
        "- **A billion** images are too many for that machine. The first limits are the plan, the vectors,",
        "  and the exhaustive comparison, which grows with the square of the number of images. The",
        "  collection then becomes a thousand stores of a million images, divided by the place or time of",
        "  the photographs, and vectors are compared in cells between stores. Disk and network are then",
        "  the larger part of the cost.",
        "- A GPU extracts features as fast as a rack of CPU cores ([On a GPU](gpu.md)). Decoding the files",
        "  is then the slowest step of extraction.",
        "",
        "`python -m tools kills` kills processes, workers and schedulers twenty times and checks the store;",
        "see [Collections](collections.md).",
    ]
    return "\n".join(lines).rstrip() + "\n"
