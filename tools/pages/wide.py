"""Write docs/wide.md from the results of ``python -m tools wide``: ``python -m tools.pages.wide``."""

from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.markdown import table

Report = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
_LEVELS = (1, 2, 4, 8)


def _share(values: list[bool]) -> str:
    return f"{np.mean(values):.0%}" if values else ""


def lines(report: Report) -> list[str]:
    """Return the tables of a report as lines of Markdown."""
    text: list[str] = []
    for name in ("wide", "oxford"):
        if name in report:
            head = ["pair", "level", "confidence", "inliers", "right matches", "error", "time"]
            rows = [
                [pair, str(v["level"]), f"{v['confidence']:.3f}", str(v["inliers"]), str(v["right"]),
                 f"{v['error']:.1f} px" if "error" in v else "", f"{v['seconds']:.1f} s"]
                for pair, v in report[name].items()
            ]  # fmt: skip
            text += table(head, rows)
    related = [row for row in report["pairs"] if row["tilt"]]
    tilts = sorted({row["tilt"] for row in related})
    rows = []
    for level in (*_LEVELS, "auto"):
        cells = []
        for tilt in tilts:
            ended = _ended([row for row in related if row["tilt"] == tilt], level)
            cells.append(_share([row["right"] and row["confidence"] > 0.5 for row in ended]))
        rows.append([str(level), *cells])
    text += table(["views to tilt", *(f"tilt {tilt:g}" for tilt in tilts)], rows)
    unrelated = [row for row in report["pairs"] if not row["tilt"]]
    rows = []
    for level in _LEVELS:
        at = [row for row in unrelated if row["level"] == level]
        rows.append(
            [str(level), str(len(at)), str(sum(row["confidence"] > 0.5 for row in at)),
             str(sum(row["confidence, fundamental"] > 0.5 for row in at))]
        )  # fmt: skip
    text += table(["views to tilt", "unrelated pairs", "homography believed", "fundamental"], rows)
    for name, found in report["calibration"].items():
        head = [f"confidence {name}", "geometries", "right"]
        rows = [
            [f"{b['from']:g} to {b['to']:g}", str(b["geometries"]),
             "" if b["right"] is None else f"{b['right']:.1%}"]
            for b in found["bins"]
        ]  # fmt: skip
        text += table(head, rows)
        coefficients = ", ".join(f"{c:.3f}" for c in found["coefficients"])
        text += [
            f"Above 0.9: {found['of them right']:.1%} right. Fitted to all: {coefficients}.",
            "",
        ]
    return text


def _ended(rows: list[Report], level: int | str) -> list[Report]:
    """Return the rows of one level, or those at which "auto" stops."""
    if level != "auto":
        return [row for row in rows if row["level"] == level]
    by_pair: dict[tuple[str, int], list[Report]] = {}
    for row in rows:
        by_pair.setdefault((row["first"], row["seed"]), []).append(row)
    ended = []
    for group in by_pair.values():
        group.sort(key=lambda row: row["level"])
        sure = [row for row in group if row["confidence"] > 0.9]
        ended.append(sure[0] if sure else max(group, key=lambda row: row["confidence"]))
    return ended
