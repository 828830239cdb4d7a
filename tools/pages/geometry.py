"""Tables and plots of confidence and estimators, from results of ``python -m tools geometry``."""

from pathlib import Path
from typing import Any

from caloric.types import Report
from caloric.viz import plots
from tools.geometry.estimators import LIMITS
from tools.pages.markdown import table

PLOT = "reliability.png"
_UNITS = {"homography": "px", "fundamental": "px", "essential": "°"}


def _diagrams(report: Report) -> dict[str, Any]:
    """Return the reliability of each model with frames and with points."""
    groups = (report["calibration"][group] for group in ("planar", "epipolar"))
    return {name: v for group in groups for name, v in group.items() if name != "coefficients"}


def reliability(report: Report) -> str:
    """Return the table of calibration errors, and of incorrect geometries with high confidence."""
    head = [
        "model, evidence", "geometries", "calibration error", "confidence above 0.9",
        "of these incorrect", "error above 20 px", "unrelated", "accepted",
    ]  # fmt: skip
    keys = (
        "geometries", "error", "confidence above .9", "of these incorrect", "of these above 20 px",
        "unrelated", "unrelated above .5",
    )  # fmt: skip
    rows = []
    for name, values in _diagrams(report).items():
        rows.append([name, *(_cell(values[k]) for k in keys)])
    return table(head, rows)


def _cell(value: float | None) -> str:
    """Return a number as text; empty if it was not measured."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def choices(report: Report) -> str:
    """Return the table of models chosen by ``model="auto"``."""
    head = ["scene", "pairs", "homography chosen", "at least as good as the better model"]
    rows = [
        [kind, str(v["pairs"]), str(v["homography"]), f"{v['as good as the better'] / v['pairs']:.0%}"]
        for kind, v in report["auto"].items()
    ]  # fmt: skip
    pairs, good = (
        sum(v[k] for v in report["auto"].values()) for k in ("pairs", "as good as the better")
    )
    chosen = sum(v["homography"] for v in report["auto"].values())
    return table(head, [*rows, ["all", str(pairs), str(chosen), f"{good / pairs:.1%}"]])


def parts(report: Report) -> str:
    """Return the table of parts of photographs that are accepted."""
    head = ["common part", "model", "pairs", "accepted", "correct inliers of these"]
    rows = [
        ["none" if line["overlap"] < 0 else f"{line['overlap']:.0%}", line["model"], str(line["pairs"]),
         str(line["accepted"]), "" if line["overlap"] < 0 else f"{line['correct inliers']:.1%}"]
        for line in report["summary"]
    ]  # fmt: skip
    return table(head, rows)


def estimators(report: Report) -> str:
    """Return one table per model that compares the estimators; the best value is bold."""
    tables = []
    for model, limits in LIMITS.items():
        results = report["estimators"].get(model, {})
        if not results:
            continue
        best = [max(v["AUC"][i] for v in results.values()) for i in range(len(limits))]
        rows = []
        for name, values in results.items():
            cells = [
                f"**{auc:.3f}**" if auc == highest else f"{auc:.3f}"
                for auc, highest in zip(values["AUC"], best, strict=True)
            ]
            rows.append([name, *cells, f"{values['milliseconds']:.1f} ms"])
        pairs = next(iter(results.values()))["pairs"]
        columns = [f"AUC {limit:g} {_UNITS[model]}" for limit in limits]
        tables.append(table([f"{model}, {pairs} pairs", *columns, "time"], rows))
    return "\n\n".join(tables)


def values(report: Report) -> dict[str, object]:
    """Return the values of the template."""
    return {
        "photographs": report["photographs"], "scenes": len(report["calibration"]["scenes"]),
        "reliability": reliability(report), "reliability_plot": PLOT, "choices": choices(report),
        "estimators": estimators(report), "calibration_note": report.get("note", ""),
    }  # fmt: skip


def draw(report: Report, path: Path) -> None:
    """Draw the reliability diagrams: the share of correct geometries by confidence."""
    figure = plots.new_figure(figsize=(10, 3.4))
    panels = figure.subplots(1, 3, sharey=True)
    for panel, model in zip(panels, LIMITS, strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, marker in (("frames", "o"), ("points", "s")):
            diagram = _diagrams(report).get(f"{model}, {name}", {}).get("diagram", [])
            confidence, correct = ([row[i] for row in diagram] for i in range(2))
            sizes = [8 + 12 * len(str(row[2])) for row in diagram]
            panel.plot(confidence, correct, linewidth=1)
            panel.scatter(confidence, correct, sizes, marker=marker, label=name)
        panel.set_title(model)
        panel.set_xlabel("confidence")
    panels[0].set_ylabel("share of correct geometries")
    panels[0].legend()
    figure.savefig(path, dpi=110, metadata={"Software": None})
