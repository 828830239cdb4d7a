"""docs/wide.md, from the results of ``python -m tools wide`` and ``python -m tools geometry``."""

from pathlib import Path

import numpy as np

from caloric.types import Report
from tools import wide
from tools.pages import geometry
from tools.pages.markdown import render, table

_MODELS = ("homography", "fundamental", "essential")
_COLUMNS = ("run", "first", "second", "seed", "tilt", "views", "level", "correct", "matches",
            "inliers", *_MODELS)  # fmt: skip


def _share(values: list[bool]) -> str:
    return f"{np.mean(values):.0%}" if values else ""


def real(report: Report) -> str:
    """Return the tables of real pairs."""
    tables: list[str] = []
    for name in ("wide", "oxford"):
        if name in report:
            head = ["pair", "level", "inliers", "correct matches", "time", "confidence",
                    "mean error", "confidence, exchanged", "mean error, exchanged"]  # fmt: skip
            rows = [
                [pair, str(v["level"]), str(v["inliers"]), str(v["correct"]),
                 f"{v['seconds']:.1f} s",
                 *(text for c, e in zip(v["confidences"], v["errors"], strict=True)
                   for text in (f"{c:.3f}", "" if e is None else f"{e:.1f} px"))]
                for pair, v in report[name].items()
            ]  # fmt: skip
            tables.append(table(head, rows))
    return "\n\n".join(tables)


def rendered(report: Report) -> str:
    """Return the table of rendered views."""
    related = [row for row in report["pairs"] if row["tilt"]]
    tilts = sorted({row["tilt"] for row in related})
    rows = []
    for views in ("none", "auto"):
        cells = [
            _share([
                row["correct"] and row["homography"] > 0.5
                for row in related
                if row["tilt"] == tilt and row["views"] == views
            ])
            for tilt in tilts
        ]  # fmt: skip
        rows.append([views, *cells])
    return table(["views", *(f"tilt {tilt:g}" for tilt in tilts)], rows)


def unrelated(report: Report) -> str:
    """Return the table of unrelated pairs."""
    selected = [row for row in report["pairs"] if not row["tilt"]]
    rows = [
        [model, str(len(selected)), str(sum(row[model] > 0.5 for row in selected)),
         f"{max(row[model] for row in selected):.2f}"]
        for model in _MODELS
    ]  # fmt: skip
    return table(["model", "unrelated pairs", "accepted", "largest confidence"], rows)


def times(report: Report) -> str:
    """Return the table of times."""
    seconds = report["times"]
    rows = [
        [str(level), f"{seconds[str(level)]['features']:,}",
         *(f"{seconds[str(level)][k]:.2f} s" for k in ("extract", "match", "verify", "match_images"))]
        for level in wide.LEVELS
    ]  # fmt: skip
    head = ["views up to tilt", "features", "extract both", "match", "verify", "`match_images`"]
    return table(head, rows)


def lines(report: Report) -> list[str]:
    """Return the tables of a report in Markdown."""
    return [part(report) for part in (real, rendered, unrelated)]


def page(report: Report, geometry_report: Report, parts_report: Report) -> str:
    """Return the text of the page."""
    return render(
        "wide.md", real=real(report), rendered=rendered(report),
        rendered_pairs=len({row["seed"] for row in report["pairs"] if row["tilt"]}), unrelated=unrelated(report),
        times_table=times(report), times=report["times"], tolerance=report["tolerance"],
        parts=geometry.parts(parts_report), photographs_of_parts=parts_report["photographs"],
        threads=report["about"]["threads"], platform=report["about"]["platform"], **geometry.values(geometry_report),
    )  # fmt: skip


def packed(reports: list[Report]) -> Report:
    """Return merged reports, with rows of pairs as lists; the other sections are the first's."""
    rows = [
        [run, *(row[column] for column in _COLUMNS[1:])]
        for run, report in enumerate(reports)
        for row in report["pairs"]
    ]
    for row in rows:
        for i in (1, 2):  # the images, without directories
            row[i] = Path(row[i]).name
    first = {k: v for k, v in reports[0].items() if k != "pairs"}
    return first | {"columns": _COLUMNS, "pairs": rows}


def unpacked(report: Report) -> Report:
    """Return a report of :func:`packed` with rows as dictionaries."""
    rows = [dict(zip(report["columns"], row, strict=True)) for row in report["pairs"]]
    return report | {"pairs": rows}
