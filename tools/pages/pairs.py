"""Write docs/pairs.md from the results of ``caloric bench pairs``: ``python -m tools.pages.pairs``."""

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
        "Nothing was chosen on these data. The best of each column is bold, losses are beside wins.",
        "",
        "- *Right matches*: mutual nearest neighbours within 3 px of the truth; for cameras, of the epipolar line. The *filter* is the",
        "  usual one of each: a ratio of 0.8 for SIFT, the default of `caloric.match` for Caloric.",
        "- *Repeated*: the share of frames that have a counterpart at the same place, among equally many of each, one per place.",
        "- *AUC*: the area under the curve of recall against the error of the geometry: the mean error of the corners of the image,",
        "  or the larger of the angles of rotation and translation. The robust estimator is the same for all, at the threshold",
        "  that is best for each. In parentheses: the 95 % interval of a bootstrap over scenes (two scenes say little).",
        "- *refined* moves matches to sub-pixel agreement: `match(..., refine=True)`.",
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


if __name__ == "__main__":
    (DOCS / "pairs.md").write_text(page(), encoding="utf-8")
