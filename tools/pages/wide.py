"""Write docs/wide.md from docs/results/wide.json: ``python -m tools.pages.wide [RESULTS...]``.

With results of ``python -m tools wide`` they are put together first, each a run of its own.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from caloric.matching import confidence
from tools import wide
from tools.pages.markdown import table

Report = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results" / "wide.json"
_COLUMNS = ("run", "half", "first", "second", "seed", "tilt", "level", "right", "matches", "inliers",
            "confidence, fundamental", "evidence")  # fmt: skip


def _share(values: list[bool]) -> str:
    return f"{np.mean(values):.0%}" if values else ""


def believed(row: Report) -> float:
    """Return the confidence in the homography of a row by the coefficients of the library."""
    if "with frames" not in row["evidence"]:
        return 0.0
    z = float(np.dot(confidence.WITH_FRAMES, row["evidence"]["with frames"]))
    return float(1 / (1 + np.exp(-z)))


def real(report: Report) -> list[str]:
    """Return the tables of real pairs."""
    text: list[str] = []
    for name in ("wide", "oxford"):
        if name in report:
            head = ["pair", "level", "confidence", "inliers", "right matches", "error", "time"]
            rows = [
                [pair, str(v["level"]), f"{v['confidence']:.3f}", str(v["inliers"]),
                 str(v["right"]), f"{v['error']:.1f} px" if "error" in v else "",
                 f"{v['seconds']:.1f} s"]
                for pair, v in report[name].items()
            ]  # fmt: skip
            text += table(head, rows)
    return text


def rendered(report: Report) -> list[str]:
    """Return the table of rendered views."""
    related = [row for row in report["pairs"] if row["tilt"]]
    tilts = sorted({row["tilt"] for row in related})
    rows = []
    for level in (*wide.LEVELS, "auto"):
        cells = []
        for tilt in tilts:
            ended = _ended([row for row in related if row["tilt"] == tilt], level)
            cells.append(_share([row["right"] and believed(row) > 0.5 for row in ended]))
        rows.append([str(level), *cells])
    return table(["views to tilt", *(f"tilt {tilt:g}" for tilt in tilts)], rows)


def unrelated(report: Report) -> list[str]:
    """Return the table of unrelated pairs."""
    rows = []
    for level in wide.LEVELS:
        at = [row for row in report["pairs"] if not row["tilt"] and row["level"] == level]
        rows.append(
            [str(level), str(len(at)), str(sum(believed(row) > 0.5 for row in at)),
             str(sum(row["confidence, fundamental"] > 0.5 for row in at))]
        )  # fmt: skip
    return table(
        ["views to tilt", "unrelated pairs", "homography believed", "fundamental matrix"], rows
    )


def calibrated(report: Report) -> list[str]:
    """Return the tables of what confidences of the other half of the scenes are worth."""
    text = []
    for name, title in (("with frames", "with frames"), ("without", "of points alone")):
        found = wide.calibration(report["pairs"], name)
        rows = [
            [f"{b['from']:g} to {b['to']:g}", str(b["geometries"]),
             "" if b["right"] is None else f"{b['right']:.1%}"]
            for b in found["bins"]
        ]  # fmt: skip
        text += table([f"confidence, {title}", "geometries", "of them right"], rows)
        text += [
            f"Of the {found['above .9']} above 0.9, {found['of them right']:.1%} are right.",
            "",
        ]
    return text


def lines(report: Report) -> list[str]:
    """Return the tables of a report as lines of Markdown, and the coefficients."""
    text = [*real(report), *rendered(report), *unrelated(report), *calibrated(report)]
    for name in ("with frames", "without"):
        fitted = wide.calibration(report["pairs"], name)["coefficients"]
        text.append(f"coefficients {name}: {', '.join(f'{c:.3f}' for c in fitted)}")
    return text


def times(report: Report) -> list[str]:
    """Return the table of times."""
    found = report["times"]
    rows = [
        [str(level), f"{found[str(level)]['features']:,}",
         *(f"{found[str(level)][k]:.2f} s" for k in ("extract", "match", "verify", "match_images"))]
        for level in wide.LEVELS
    ]  # fmt: skip
    head = ["views to tilt", "features", "extract both", "match", "verify", "`match_images`"]
    return table(head, rows)


def page(report: Report) -> str:
    """Return the text of docs/wide.md."""
    pairs = len(report["pairs"]) // len(wide.LEVELS)
    tolerated = report["tolerance"]
    found = report["times"]
    text = [
        "# Wide baselines: the same wall seen from aside",
        "",
        "<!-- Written by `python -m tools.pages.wide`. -->",
        "",
        "A wall photographed from the front and from 76 degrees aside has hardly a feature in common: each is compressed to a quarter along one",
        "direction. Caloric therefore simulates how an image would look from aside, takes features of these views too, and brings them back",
        "into the coordinates of the image. By default this happens only where the images themselves give no geometry with a confidence above",
        "0.9, or fewer than 40 inliers:",
        "",
        "    caloric match front.jpg aside.jpg -o matches.png     # --views auto, none, 2, 4 or 8",
        "",
        "In Python:",
        "",
        "    pair = caloric.match_images(\"front.jpg\", \"aside.jpg\")  # views=\"auto\"",
        "    pair.level                # 1: no views were needed; 2, 4, 8: the largest tilt of the views that were",
        "    pair.geometry.confidence  # the probability that it is right",
        "    features = caloric.extract(image, views=4)  # for matching of your own",
        "",
        "A view of tilt t is the image turned by an angle, blurred by 0.8 √(t² − 1) along x and compressed by t, as a plane looks from",
        "acos(1 / t) aside: 60 degrees for 2, 76 for 4, 83 for 8. Turns are 60 / t degrees apart, so that no view of a plane up to the largest tilt is farther than a tilt",
        f"of 1.71 from a simulated one; after a tilt of 1.7 the descriptor keeps {tolerated['1.7']:.0%} of its right matches, after 2",
        f"{tolerated['2.0']:.0%}, after 2.8 {tolerated['2.8']:.0%}. Images of more than 4 megapixels are reduced before views are taken, and there are no",
        "views of an image less than 32 pixels wide or high.",
        "",
        "## Real pairs",
        "",
        "Planes far apart with checked points, and the widest pairs of Oxford Affine, by `match_images` as it is: the level at which it stopped, matches",
        "within 5 px of the truth, the median error of the geometry at the checked points, and the time on two ARM cores.",
        "",
        *real(report),
        "`notredame` is not a plane: with its images exchanged the geometry is off by 17 px, and its confidence near 1 all the same. The confidence",
        "is of the plane that most matches are on; how far a scene is from it, it does not say.",
        "",
        "## Rendered views",
        "",
        "Photographs as a camera would see them from aside, before another photograph, with changes of light, noise and compression: how many",
        "homographies are believed and right within 5 pixels. Among the pictures are pages of text and a clock, on which most failures are.",
        "",
        *rendered(report),
        "## Unrelated pairs",
        "",
        "Photographs of different scenes, and how many of their geometries have a confidence above 0.5.",
        "",
        *unrelated(report),
        "## What a confidence is worth",
        "",
        f"The confidence of a homography is a logistic regression over {pairs} pairs, related and not, at four levels each, with the default",
        "descriptor and refinement; affine maps use the same ([the module](internals.md) has the formula). In these tables the coefficients were fitted to one half of the scenes and tested on the",
        "other; *right* means within 5 pixels in the median over what both images show. Where features have frames, their agreement with the",
        "geometry counts. The confidence of fundamental and essential matrices says only that chance gives no such geometry.",
        "",
        *calibrated(report),
        "## Times",
        "",
        f"Two unrelated photographs of 800 x 640 pixels on {found['threads']} x86 threads. `auto` goes through all levels in",
        f"{found['auto, all levels']:.1f} s where there is nothing to find. 30,000 by 30,000 descriptors are matched in",
        f"{found['30,000 by 30,000']:.1f} s.",
        "",
        *times(report),
        "## What views cannot do",
        "",
        "Day to night, summer to winter, visible to infrared: there learned features are far ahead. Their matches can be made more precise",
        "with [`caloric.refine`](refining.md).",
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def packed(reports: list[Report]) -> Report:
    """Return reports as one, with the rows of pairs as lists; the first has the other figures."""
    rows = [
        [run, *(row[column] for column in _COLUMNS[1:])]
        for run, report in enumerate(reports)
        for row in report["pairs"]
    ]
    for row in rows:
        for i in (2, 3):  # no folders
            row[i] = Path(row[i]).name
    first = {k: v for k, v in reports[0].items() if k != "pairs"}
    return first | {"columns": _COLUMNS, "pairs": rows}


def unpacked(report: Report) -> Report:
    """Return what :func:`packed` packed."""
    rows = [dict(zip(report["columns"], row, strict=True)) for row in report["pairs"]]
    return report | {"pairs": rows}


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
        best = group[0]
        for row in group[1:]:
            sure = believed(best) > 0.9
            if sure and best["inliers"] >= 40:
                break
            best = max(best, row, key=lambda r: (min(believed(r), 0.9), r["inliers"]))
            if sure:
                break
        ended.append(best)
    return ended


if __name__ == "__main__":
    given = [json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:]]
    if given:
        RESULTS.write_text(json.dumps(packed(given)), encoding="utf-8")
    (DOCS / "wide.md").write_text(page(unpacked(json.loads(RESULTS.read_text("utf-8")))), "utf-8")
