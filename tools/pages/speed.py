"""docs/speed.md, from the results of ``caloric bench speed``."""

from caloric.bench.speed_report import gains_text, threads_text
from caloric.types import Report
from tools.pages.markdown import render, table


def page(report: Report) -> str:
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
    )


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
