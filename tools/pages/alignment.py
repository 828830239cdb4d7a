"""docs/align.md, from the results of ``python -m tools align``."""

from collections.abc import Iterator

from caloric.types import Report
from tools.alignment.benchmark import SEARCH
from tools.alignment.cases import KINDS, STRENGTHS
from tools.pages.markdown import render, table


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _cells(cells: Report) -> str:
    rows = []
    for method, shares in cells["share"].items():
        by_kind = [" ".join(f"{shares[k][f'{t:g}']:.2f}" for t in STRENGTHS) for k in KINDS]
        overall = cells["overall"][method]
        error = overall["median error"]
        shown = "" if error is None else f"{error:.3f} px"
        rows.append([method, *by_kind, shown, _seconds(overall["mean seconds"])])
    return table(["", *KINDS, "median error", "mean time"], rows)


def _honesty(honesty: Report) -> str:
    """Return a sentence on the failures and successes that are reported as failures."""
    reported, alarms = (
        "none" if share is None else f"{share:.1%}"
        for share in (honesty["failures, reported"], honesty["false alarms"])
    )
    return (
        f"{reported} of the {honesty['failures']} failures and {alarms} of the successes report "
        "`converged=False`."
    )


def _conditions(hard: Report) -> str:
    rows = []
    for method in next(iter(hard["conditions"].values())):
        row = [method]
        for condition in hard["conditions"].values():
            result = condition[method]
            error = result["median error"]
            details = [] if error is None else [f"{error:.2f} px"]
            details.append(_seconds(result["mean seconds"]))
            row.append(f"{result['share']:.2f} ({', '.join(details)})")
        rows.append(row)
    return table(["", *hard["conditions"]], rows)


def _confidence(report: Report) -> str:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = [
        [name, f"{v['correct']:.2f}", str(v["incorrect"]), share(v["incorrect, reported"]),
         share(v["false alarms"]), str(v["absent"]), share(v["absent, reported"])]
        for name, v in [*report["groups"].items(), ("all", report["all"])]
    ]  # fmt: skip
    head = ["", "found", "incorrect", "reported, of the incorrect", "reported, of the correct",
            "absent", "reported, of the absent"]  # fmt: skip
    return table(head, rows)


def _settings(settings: Report) -> str:
    names = [name for name in settings if name != "about"]
    kinds = list(settings[names[0]])
    rows = [
        [name]
        + [
            f"{settings[name][k]['share']:.2f} / {settings[name][k]['within 10 px']:.2f}"
            for k in kinds
        ]
        + [_seconds(settings[name][kinds[-1]]["mean seconds"])]
        for name in names
    ]
    return table(["", *kinds, "mean time"], rows)


def _templates(report: Report) -> str:
    rows = [
        [name, f"{v['share']:.2f}", _seconds(v["mean seconds"]), str(v["cases"])]
        for name, v in report.items()
        if name != "about"
    ]
    return table(["50 templates", "correct template and position", "mean time", "cases"], rows)


def _refined(refine: Report) -> str:
    rows = [
        [name, f"{v['matches']:,}", f"{v['median error before']:.3f} px",
         f"{v['median error after']:.3f} px", f"{v['lower by']:.0%}", f"{v['moved']:.0%}",
         f"{v['farthest move in sigmas']:.2f} σ"]
        for name, v in refine.items()
        if name != "about"
    ]  # fmt: skip
    head = ["scene", "verified matches", "before", "after", "reduction", "moved", "largest move"]
    return table(head, rows)


_SECTIONS = {
    "cells": _cells, "hard": _conditions, "confidence": _confidence, "settings": _settings, "templates": _templates,
    "refine": _refined,
}  # fmt: skip


def tables(report: Report) -> Iterator[str]:
    """Yield the tables of the sections that the report has."""
    for name, section in _SECTIONS.items():
        if name in report:
            yield section(report[name])
            if "honesty" in report[name]:
                yield _honesty(report[name]["honesty"])


def page(report: Report) -> str:
    """Return the text of the page."""
    return render(
        "align.md", report=report, strengths=", ".join(map(str, STRENGTHS)), search=SEARCH,
        tables={k: section(report[k]) for k, section in _SECTIONS.items() if k in report},
        honesty={k: _honesty(v["honesty"]) for k, v in report.items() if "honesty" in v},
        mean_time=_seconds(report["cells"]["overall"][SEARCH]["mean seconds"]),
    )  # fmt: skip
