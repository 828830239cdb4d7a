"""docs/pairs.md and its plot, from the results of ``caloric bench pairs``."""

from pathlib import Path

from caloric.types import Report
from caloric.viz import plots
from tools.pages.markdown import render, results, table

_COLUMNS = {
    "right": "correct matches",
    "right, filtered": "correct after the filter",
    "error": "median error [px]",
    "repeatability 1 px": "repeatability 1 px",
    "repeatability 3 px": "3 px",
    "AUC 1 px": "AUC 1 px",
    "AUC 3 px": "AUC 3 px",
    "AUC 5 px": "AUC 5 px",
    "AUC 1 degrees": "AUC 1°",
    "AUC 5 degrees": "AUC 5°",
    "AUC 10 degrees": "AUC 10°",
    "seconds an image": "s per image",
    "seconds a pair": "s per pair",
}
_LOWER = ("error", "seconds an image", "seconds a pair")
_INTERVAL = ("AUC 5 px", "AUC 5 degrees")


def _cell(result: Report, key: str, best: bool) -> str:
    mean = result["mean"]
    text = f"{mean:,.0f}" if mean >= 20 else f"{mean:.3f}"
    text = f"**{text}**" if best else text
    if key in _INTERVAL:
        text += f" ({result['low']:.3f} to {result['high']:.3f})"
    return text


def _table(report: Report) -> str:
    contenders = report["contenders"]
    first = next(iter(contenders.values()))
    keys = [key for key in _COLUMNS if key in first]
    best = {
        key: (min if key in _LOWER else max)(c[key]["mean"] for c in contenders.values())
        for key in keys
    }
    rows = [
        [name, *(_cell(c[key], key, c[key]["mean"] == best[key]) for key in keys)]
        for name, c in contenders.items()
    ]
    return table(["", *(_COLUMNS[key] for key in keys)], rows)


def page() -> str:
    """Return the text of the page."""
    return render(
        "pairs.md",
        oxford=_table(results("pairs-oxford")),
        strecha=_table(results("pairs-strecha")),
    )


def summary() -> str:
    """Return the table of the README."""
    oxford, strecha = (results(f"pairs-{name}")["contenders"] for name in ("oxford", "strecha"))
    columns = (
        ("correct matches", oxford, "right"),
        ("AUC 5 px", oxford, "AUC 5 px"),
        ("AUC 1°", strecha, "AUC 1 degrees"),
        ("5°", strecha, "AUC 5 degrees"),
        ("10°", strecha, "AUC 10 degrees"),
        ("s per image", strecha, "seconds an image"),
        ("s per pair", strecha, "seconds a pair"),
    )
    rows = []
    for name in oxford:
        cells = []
        for _, report, key in columns:
            values = [contender[key]["mean"] for contender in report.values()]
            value = report[name][key]["mean"]
            text = f"{value:,.0f}" if value >= 20 else f"{value:.{2 if key in _LOWER else 3}f}"
            best = (min if key in _LOWER else max)(values)
            cells.append(f"**{text}**" if value == best else text)
        rows.append([name, *cells])
    return table(["", *(title for title, _, _ in columns)], rows)


_COLORS = {
    "caloric": "tab:red",
    "caloric, not refined": "tab:red",
    "OpenCV RootSIFT, refined": "tab:blue",
    "OpenCV RootSIFT": "tab:blue",
    "COLMAP SIFT": "tab:green",
}


def draw(path: Path) -> None:
    """Plot the cumulative distributions of match errors and pose errors."""
    report = results("pairs-strecha")
    figure = plots.new_figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2)
    for name, color in _COLORS.items():
        if name not in report["contenders"]:
            continue
        contender = report["contenders"][name]
        style = "-" if name in ("caloric", "OpenCV RootSIFT, refined") else "--"
        limits, shares = contender["share of the filtered matches within these pixels"]
        left.plot(limits, [100 * v for v in shares], style, color=color, label=name)
        errors = contender["errors of the geometry, sorted"]
        recall = [100 * (i + 1) / len(errors) for i in range(len(errors))]
        right.step(errors, recall, style, where="post", color=color, label=name)
    left.set(xscale="log", xlabel="distance from the true epipolar line [px]", ylabel="matches [%]")
    left.set_xticks(
        [0.05, 0.1, 0.2, 0.5, 1, 2, 3], labels=["0.05", "0.1", "0.2", "0.5", "1", "2", "3"]
    )
    left.minorticks_off()
    right.set(
        xlim=(0, 2),
        ylim=(0, 100),
        xlabel="error of the relative pose [degrees]",
        ylabel="pairs [%]",
    )
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=110)
