"""docs/wide.md, from the results of ``python -m tools wide`` and ``python -m tools geometry``."""

from pathlib import Path

import numpy as np

from caloric.types import Report
from tools import wide
from tools.pages import geometry
from tools.pages.markdown import render, table

_COLUMNS = ("run", "first", "second", "seed", "tilt", "level", "correct", "matches", "inliers",
            "confidence", "confidence, fundamental")  # fmt: skip


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
    for level in (*wide.LEVELS, "auto"):
        cells = []
        for tilt in tilts:
            chosen = _selected([row for row in related if row["tilt"] == tilt], level)
            cells.append(_share([row["correct"] and row["confidence"] > 0.5 for row in chosen]))
        rows.append([str(level), *cells])
    return table(["views up to tilt", *(f"tilt {tilt:g}" for tilt in tilts)], rows)


def unrelated(report: Report) -> str:
    """Return the table of unrelated pairs."""
    rows = []
    for level in wide.LEVELS:
        selected = [row for row in report["pairs"] if not row["tilt"] and row["level"] == level]
        rows.append(
            [str(level), str(len(selected)), str(sum(row["confidence"] > 0.5 for row in selected)),
             str(sum(row["confidence, fundamental"] > 0.5 for row in selected))]
        )  # fmt: skip
    return table(
        [
            "views up to tilt",
            "unrelated pairs",
            "homographies accepted",
            "fundamental matrices accepted",
        ],
        rows,
    )


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


def page(report: Report, geometry_report: Report) -> str:
    """Return the text of the page."""
    return render(
        "wide.md", real=real(report), rendered=rendered(report), unrelated=unrelated(report),
        times_table=times(report), times=report["times"], tolerance=report["tolerance"],
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


def _selected(rows: list[Report], level: int | str) -> list[Report]:
    """Return the rows of one level, or those at which "auto" stops."""
    if level != "auto":
        return [row for row in rows if row["level"] == level]
    by_pair: dict[tuple[str, int], list[Report]] = {}
    for row in rows:
        by_pair.setdefault((row["first"], row["seed"]), []).append(row)
    chosen = []
    for group in by_pair.values():
        group.sort(key=lambda row: row["level"])
        best = group[0]
        for row in group[1:]:
            is_confident = best["confidence"] > 0.9
            if is_confident and best["inliers"] >= 40:
                break
            best = max(best, row, key=lambda r: (min(r["confidence"], 0.9), r["inliers"]))
            if is_confident:
                break
        chosen.append(best)
    return chosen
