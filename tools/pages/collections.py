"""The page of the documentation on scale: what the benchmark's rates and sizes come to."""

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
    """Core-hours, bytes and pairs of a collection of so many images, by the measured rates."""
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


SPREAD = ("hash", "extract", "vectors", "match", "verify")  # over workers


def _table(report: Report) -> list[str]:
    found = {name: costs(report, count) for name, count in SIZES.items()}

    def row(label: str, of: Any) -> list[str]:
        return [label, *(of(found[name]) for name in SIZES)]

    def wall(name: str) -> str:
        hours = sum(found[name][step] for step in SPREAD) / CORES[SIZES[name]]
        return f"{_time(hours)} on {CORES[SIZES[name]]:,}"

    rows = [
        row("hash the files, core time", lambda c: _time(c["hash"])),
        row("extract", lambda c: _time(c["extract"])),
        row("vectors", lambda c: _time(c["vectors"])),
        row("match them", lambda c: _time(c["match"])),
        row("verify", lambda c: _time(c["verify"])),
        ["all of that, on so many cores", *(wall(name) for name in SIZES)],
        row("nearest 20, all compared: by the client's cores alone", lambda c: _time(c["search"])),
        row("match all pairs instead", lambda c: _time(c["match all"])),
        row("images read, twice", lambda c: _bytes(2 * c["images"])),
        row("features on disk", lambda c: _bytes(c["features"])),
        row("features read to match", lambda c: _bytes(c["read to match"])),
        row("matches and geometries on disk", lambda c: _bytes(c["matches"])),
        row("vectors in one machine's memory", lambda c: _bytes(c["index"])),
        row("the client's plan of extraction, in memory", lambda c: _bytes(c["plan"])),
        row("its plan of matching", lambda c: _bytes(c["plan of pairs"])),
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
        f"{rates['images']} photographs of {rates['megapixels']:.2f} megapixels, "
        f"{rates['features an image']:,.0f} features each, workers of one thread on a machine of two "
        "cores:",
        "",
        *table(
            ["images a second", "one worker", "two", "times"],
            [
                ["a pool of processes", f"{one:.1f}", f"{two:.1f}", f"{two / one:.2f}"],
                ["Dask", f"{dask[0]:.1f}", f"{dask[1]:.1f}", f"{dask[1] / dask[0]:.2f}"],
            ],
        ),
        f"All four leave {same}. A core hashes {rates['hashing, images a second']:,.0f} images a "
        f"second, makes {rates['vectors, images a second']:.0f} vectors, matches "
        f"{rates['matching, pairs a second']:.0f} pairs and verifies "
        f"{rates['verifying, pairs a second']:.0f}. An image has {_bytes(rates['bytes of an image'])}, "
        f"its features {_bytes(rates['bytes of its features'])}, a pair "
        f"{_bytes(rates['bytes of a pair'])}.",
        "",
        "Simulated, to check what a large collection does to the parts that do not grow with the",
        "number of workers:",
        "",
        f"- {tiny['images']:,} images of {tiny['pixels']} pixels through Dask, {tiny['shards']:,} "
        f"shards, in {tiny['seconds']:.0f} s: the client had at most "
        f"{_bytes(tiny['client, bytes'])}, the scheduler {_bytes(tiny['scheduler, bytes'])}.",
        f"- A plan of {plan['images']:,} images, {plan['shards']:,} shards: {plan['seconds']:.1f} s, "
        f"{_bytes(plan['bytes'])}.",
        f"- A plan of {report['pairs']['pairs']:,} pairs of {report['pairs']['images']:,} images, "
        f"{report['pairs']['shards']:,} shards: {report['pairs']['seconds']:.1f} s, "
        f"{_bytes(report['pairs']['bytes'])}.",
        f"- {index['vectors']:,} vectors of {index['dimensions']} numbers in random directions, 20 of "
        f"each place, on {index['threads']} threads: with all compared, as is done up to a million, "
        f"{compared['milliseconds a query']:.1f} ms a query; in cells, as beyond it, "
        f"{cells['build, seconds']:.0f} s to build and {cells['milliseconds a query']:.2f} ms a "
        f"query, which find {cells['of the exact neighbours']:.0%} of the nearest. That is the "
        "hardest case: cells follow what images have in common, and these have nothing.",
        "",
        f"Retrieval itself, on the {report['retrieval']['queries']} images of Oxford Affine: for "
        f"{report['retrieval']['with all five in ten']} of them all five others of the same sequence "
        "are among the ten nearest.",
        "",
    ]


def page(report: Report) -> str:
    """The whole page."""
    lines = [
        "# A thousand, a million, a billion images",
        "",
        "<!-- Written by `caloric bench scale --page`; edit bench/scale_page.py instead. -->",
        "",
        "What [collections](collections.md) cost, worked out from rates and sizes that were measured",
        "on one machine. The last column was not run by anybody; it says where to look first.",
        "",
        "## Measured",
        "",
        *_measured(report),
        "## Worked out",
        "",
        "Core time, with pairs by retrieval; photographs as above, so larger ones take more:",
        "",
        *_table(report),
        "## Where the bottleneck moves",
        "",
        "- **A thousand** images are minutes on one machine. Matching all pairs would already take",
        "  longer than all the rest: `--pairs retrieval`, or `sequential`.",
        "- **A million** keep a hundred cores busy for an hour or two. Matching and extraction take most, and",
        "  both are spread over workers; shards are the unit, a worker reads and writes its own, and",
        "  the scheduler sees names alone. Reading the partners of each image to match moves more than",
        "  the images themselves: put the store where the network is, or order the work by place. One",
        "  machine still plans, holds all vectors, and compares them.",
        "- **A billion** do not fit into that machine: the plan, the vectors and comparing all of them,",
        "  which grows with the square, come first. So it is a thousand stores of a million, by where",
        "  or when the photographs were taken, with vectors compared in cells between stores; and the",
        "  disk and the network are then the larger part of the bill.",
        "- A GPU extracts as fast as a rack of cores ([On a GPU](gpu.md)); then decoding files, and not",
        "  features, is the slowest step of extraction.",
        "",
        "Twenty kills of processes, workers and schedulers: `caloric bench kills`, and",
        "[Collections](collections.md).",
    ]
    return "\n".join(lines).rstrip() + "\n"
