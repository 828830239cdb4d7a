"""docs/speed.md, from the results of ``caloric bench speed``."""

from caloric.bench.speed_report import gains_text, threads_text
from caloric.types import Report
from tools.pages.markdown import render, table

_KINDS = (
    ("amx", "AMX", "products of matrices of bytes, 32-bit sums"),
    ("avx512-vnni", "AVX-512 VNNI", "32-bit sums of four products"),
    ("avx512", "AVX-512", "16-bit sums, one side with 7 bits"),
    ("avx-vnni", "AVX-VNNI", "32-bit sums of four products"),
    ("avx2", "AVX2", "16-bit sums, one side with 7 bits"),
    ("neon-dotprod", "NEON with dot products", "32-bit sums of four products"),
    ("neon", "NEON", "not used"),
    ("portable", "any", "not used"),
)


def page(report: Report, neighbors: Report) -> str:
    """Return the text of the page."""
    common = report["matches in common with faiss"]
    h, w = report["image"]["size"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    large = [
        [f"{row['pixels'] / 1e6:.1f}", f"{row['features']:,}", f"{row['seconds']:.1f}",
         f"{row['seconds'] / row['pixels'] * 1e6:.3f}", f"{row['peak bytes'] / 1e9:.2f} GB"]
        for row in report["large"]
    ]  # fmt: skip
    return render(
        "speed.md",
        report=report,
        machine=f"The image is {report['image']['name']}, {w} x {h}, with "
        f"{report['image']['features']} features. The processor is "
        f"{report['machine']['processor']} with {report['machine']['cores']} cores; Caloric uses the "
        f"{report['path']}. Versions: {versions}.",
        tables=_by_threads(report["threads"], "### {}"),
        alone=_by_threads(report["with OpenCV alone"], "{}:"),
        common=""
        if common is None
        else f"; {common:.2%} of the matches are the same as those of faiss",
        large=table(
            ["megapixels", "features", "seconds", "seconds per megapixel", "peak memory"], large
        ),
        gains=gains_text(report),
        neighbors=neighbors,
        kinds=table(["kind", "instructions", "products of bytes"], [[f"`{k}`", i, p] for k, i, p in _KINDS]),
        machines=table(
            ["processor", "kind", "time", "relative to float32", "relative to faiss"],
            [
                [machine["processor"], _kind(kind), _span(r["seconds"], "ms", 1000, 0),
                 _span(r["to_float32"], "", 1, 2), _span(r["to_faiss"], "", 1, 3)]
                for machine in neighbors["machines"]
                for kind, r in machine["kinds"].items()
            ],
        ),
    )  # fmt: skip


def _kind(name: str) -> str:
    kind, comma, descriptors = name.partition(",")
    return f"`{kind}`{comma}{descriptors}"


def _span(values: list[float], unit: str, factor: float, digits: int) -> str:
    """Return the smallest and the largest of several values as text."""
    low, high = (f"{factor * v:.{digits}f}" for v in (min(values), max(values)))
    return (low if low == high else f"{low} to {high}") + f" {unit}".rstrip()


def _by_threads(by_threads: Report, title: str) -> str:
    """Return a table for each number of threads, with its title."""
    parts = []
    for number, tasks in by_threads.items():
        rows = [
            [task, name, f"**{result['ratio']:.2f}**", "{:.2f} to {:.2f}".format(*result["quartiles"]),
             f"{1000 * result['seconds']:.0f} ms"]
            for task, names in tasks.items()
            for name, result in names.items()
        ]  # fmt: skip
        head = ["task", "method", "ratio", "quartiles", "time"]
        parts += [title.format(threads_text(number)), table(head, rows)]
    return "\n\n".join(parts)
