"""Write docs/pairs.md and its figure from the results of ``caloric bench pairs``.

``python -m tools.pages.pairs``
"""

import json
from pathlib import Path
from typing import Any

from tools.pages.markdown import table

DOCS = Path(__file__).parents[2] / "docs"
_DATA = {
    "oxford": "Oxford Affine: 40 pairs of 8 scenes, with their homographies",
    "strecha": "Strecha: 83 pairs of fountain-P11 and Herz-Jesus-P8, with their cameras",
}
_COLUMNS = {
    "right": "right matches",
    "right, filtered": "right after the filter",
    "error": "median error of those [px]",
    "repeatability 1 px": "repeated within 1 px",
    "repeatability 3 px": "within 3 px",
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


def _cell(figure: dict[str, float], key: str, best: bool) -> str:
    mean = figure["mean"]
    text = f"{mean:,.0f}" if mean >= 20 else f"{mean:.3f}"
    text = f"**{text}**" if best else text
    if key in _INTERVAL:
        text += f" ({figure['low']:.3f} to {figure['high']:.3f})"
    return text


def _table(report: dict[str, Any]) -> list[str]:
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
    """Return the text of docs/pairs.md."""
    lines = [
        "# From two photographs to their geometry",
        "",
        "<!-- Written by `python -m tools.pages.pairs`. -->",
        "",
        "What a user gets in the end, with everybody's own detector and at most 2,048 features per image: `caloric bench pairs`.",
        "Oxford Affine and Herz-Jesus-P8 were never used to choose anything, fountain-P11 was. The best of each column is bold, losses are beside wins.",
        "",
        "- *Right matches*: mutual nearest neighbours within 3 px of the truth; for cameras, of the epipolar line. The *filter* is the",
        "  usual one of each: a ratio of 0.8 for SIFT, the default of `caloric.match` for Caloric.",
        "- *Repeated*: the share of frames that have a counterpart at the same place, among equally many of each, one per place.",
        "- *AUC*: the area under the curve of recall against the error of the geometry: the mean error of the corners of the image,",
        "  or the larger of the angles of rotation and translation. The robust estimator is the same for all, at the threshold",
        "  that is best for each. In parentheses: the 95 % interval of a bootstrap over scenes (two scenes say little).",
        "- Matches are refined to sub-pixel agreement by default ([precision](refining.md)); *not refined*: without. Refinement works on",
        "  anyone's matches: OpenCV's are shown with and without.",
        "",
        "![The share of matches within so many pixels of the epipolar line, and of pairs with a pose within so many degrees](pairs.png)",
        "",
        "*Strecha. Left: how near matches are to the truth, before (dashed) and after refinement. Right: how many pairs get their relative pose",
        "within so many degrees.*",
        "",
    ]
    for name, title in _DATA.items():
        report = json.loads((DOCS / "results" / f"pairs-{name}.json").read_text("utf-8"))
        lines += [f"## {title}", "", *_table(report)]
    lines += [
        "## On your own data",
        "",
        "    caloric bench pairs --data FOLDER                       # Oxford, HPatches or Fischer; cameras; or any photographs",
        "    caloric bench pairs --data FOLDER --features mine.h5    # beside features of another method, as hloc writes them",
        "",
        "Photographs without a known geometry are changed synthetically.",
    ]
    return "\n".join(lines) + "\n"


def summary() -> list[str]:
    """Return the table of the README, as lines."""
    oxford, strecha = (
        json.loads((DOCS / "results" / f"pairs-{name}.json").read_text("utf-8"))["contenders"]
        for name in _DATA
    )
    columns = (
        ("right matches", oxford, "right"),
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


_COLOURS = {
    "caloric": "tab:red",
    "caloric, not refined": "tab:red",
    "OpenCV RootSIFT, refined": "tab:blue",
    "OpenCV RootSIFT": "tab:blue",
    "COLMAP SIFT": "tab:green",
}


def draw(path: Path) -> None:
    """Draw the errors of matches before and after refinement, and the curve of poses."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    report = json.loads((DOCS / "results" / "pairs-strecha.json").read_text("utf-8"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, colour in _COLOURS.items():
        if name not in report["contenders"]:
            continue
        contender = report["contenders"][name]
        style = "-" if name in ("caloric", "OpenCV RootSIFT, refined") else "--"
        limits, shares = contender["share of the filtered matches within these pixels"]
        left.plot(limits, [100 * v for v in shares], style, color=colour, label=name)
        errors = contender["errors of the geometry, sorted"]
        recall = [100 * (i + 1) / len(errors) for i in range(len(errors))]
        right.step(errors, recall, style, where="post", color=colour, label=name)
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
    plt.close(figure)


if __name__ == "__main__":
    draw(DOCS / "pairs.png")
    (DOCS / "pairs.md").write_text(page(), encoding="utf-8")
