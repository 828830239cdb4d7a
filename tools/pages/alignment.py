"""The page of the documentation on alignment, written from the benchmark's figures alone."""

from collections.abc import Iterator
from typing import Any

from tools.alignment.benchmark import SEARCH
from tools.alignment.cases import KINDS, STRENGTHS
from tools.pages.markdown import table

Report = dict[str, Any]


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{v:.2f}" for v in values)


def _cells(cells: Report) -> Iterator[str]:
    rows = []
    for method, shares in cells["share"].items():
        own = [" ".join(f"{shares[k][f'{t:g}']:.2f}" for t in STRENGTHS) for k in KINDS]
        overall = cells["overall"][method]
        error = overall["median error"]
        shown = "" if error is None else f"{error:.3f} px"
        rows.append([method, *own, shown, _seconds(overall["mean seconds"])])
    yield f"Share with a mean error below 1 pixel, at strengths {', '.join(map(str, STRENGTHS))};"
    yield f"{cells['cases a cell']} cases a cell."
    yield ""
    yield from table(["", *KINDS, "median error", "mean time"], rows)


def _honesty(title: str, honesty: Report) -> Iterator[str]:
    said, alarms = honesty["failures that say so"], honesty["false alarms"]
    share = "none" if said is None else f"{said:.1%}"
    yield f"{title}: of {honesty['failures']} failures {share} say `converged=False`;"
    yield f"of the successes {'none' if alarms is None else f'{alarms:.1%}'} do."
    yield ""


def _absent(absent: Report) -> Iterator[str]:
    said = f"{absent['that say so']:.0%}"
    yield f"Of {absent['cases']} templates looked for in another scene {said} say that they failed."
    yield ""


def _conditions(hard: Report) -> Iterator[str]:
    rows = []
    names = list(next(iter(hard["conditions"].values())))
    for method in names:
        row = [method]
        for condition in hard["conditions"].values():
            found = condition[method]
            error = found["median error"]
            own = [] if error is None else [f"{error:.2f} px"]
            told = ", ".join([*own, _seconds(found["mean seconds"])])
            row.append(f"{found['share']:.2f} ({told})")
        rows.append(row)
    count = next(iter(hard["conditions"].values()))[SEARCH]["cases"]
    yield f"All kinds of motion at half strength, {count} cases each; the median error of what is"
    yield "found, and the mean time."
    yield "Only ours can be told that contrast is inverted (`inverted=True`)."
    yield ""
    yield from table(["", *hard["conditions"]], rows)


def _confidence(found: Report) -> Iterator[str]:
    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = [
        [name, f"{v['right']:.2f}", str(v["wrong"]), share(v["wrong that say so"]),
         share(v["false alarms"]), str(v["not there"]), share(v["not there that say so"])]
        for name, v in [*found["groups"].items(), ("all", found["all"])]
    ]  # fmt: skip
    yield "Random squares of each size, smooth ones among them; the last three with texture in each"
    yield "quarter. Every kind of motion at half strength, the whole image searched. *Not there*:"
    yield "the template is of another scene than the image."
    yield ""
    head = ["", "found", "wrong", "that say so", "right, but say no", "not there", "that say so"]
    yield from table(head, rows)


def _settings(settings: Report) -> Iterator[str]:
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
    yield "Share within 1 pixel / within 10."
    yield ""
    yield from table(["", *kinds, "mean time"], rows)


def _templates(found: Report) -> Iterator[str]:
    rows = [
        [name, f"{v['share']:.2f}", _seconds(v["mean seconds"]), str(v["cases"])]
        for name, v in found.items()
        if name != "about"
    ]
    yield from table(["50 templates", "right one, right place", "mean time", "cases"], rows)


def _refined(refine: Report) -> Iterator[str]:
    rows = [
        [name, f"{v['matches']:,}", f"{v['median error before']:.3f} px",
         f"{v['median error after']:.3f} px", f"{v['lower by']:.0%}", f"{v['moved']:.0%}",
         f"{v['farthest move in sigmas']:.2f} σ"]
        for name, v in refine.items()
        if name != "about"
    ]  # fmt: skip
    head = ["scene", "verified matches", "before", "after", "lower by", "moved", "farthest"]
    yield from table(head, rows)


def tables(report: Report) -> Iterator[str]:
    """The tables of the sections there are."""
    if "cells" in report:
        yield from _cells(report["cells"])
        yield from _honesty("Both of ours together", report["cells"]["honesty"])
    if "hard" in report:
        yield from _conditions(report["hard"])
        yield from _honesty("Ours under these", report["hard"]["honesty"])
        yield from _absent(report["hard"]["not there"])
    if "confidence" in report:
        yield from _confidence(report["confidence"])
    if "settings" in report:
        yield from _settings(report["settings"])
    if "templates" in report:
        yield from _templates(report["templates"])
    if "refine" in report:
        yield from _refined(report["refine"])


def page(report: Report) -> str:
    """The whole page."""
    cells = report["cells"]
    ours, photographs = cells["overall"][SEARCH], cells["about"]["photographs"]
    ratio = cells["error over what the covariance tells"]
    lines = [
        "# Alignment, measured",
        "",
        "<!-- Written by `caloric bench align --page`; edit bench/align_page.py instead. -->",
        "",
        "`caloric.align` is the theory's algorithm without SIFT's shortcuts: the density of",
        "gradient orientations, diffused, warped by the current estimate, and sharpened step by",
        "step ([how it departs from the theory](aligning.md)).",
        f"Templates of 128 x 128 in images of 288 x 288, cut from {photographs} photographs; in",
        "every case gamma 0.5 to 2, shading to 50 %, noise of 0.02 and a blur of up to 1.2 pixels.",
        "Strength 1 is a shift of 40 % of the template, a turn of 45 degrees, a scale of 1.65 (or",
        "its inverse), an affine change of norm 0.4, and all of them together. Every method looks",
        "for an affine map with its own defaults; those that need a start have the template",
        "upright in the middle, as the row *from the identity* has.",
        "",
        *_cells(cells),
        f"With the search it takes {_seconds(ours['mean seconds'])} on average. The error of an",
        f"alignment is {ratio:.2f} times what its covariance tells, in the median.",
        "",
        "## Does it know when it failed?",
        "",
        *_honesty("Both rows of ours together", cells["honesty"]),
    ]
    sections = (
        ("hard", "Covered, blurred, inverted", _conditions),
        ("confidence", "Templates of any size, there or not", _confidence),
        ("settings", "The paper's columns, and other settings", _settings),
        ("templates", "Which template is it?", _templates),
        ("refine", "Refined matches", _refined),
    )
    for name, title, section in sections:
        if name in report:
            lines += [f"## {title}", "", *section(report[name])]
            if name == "hard":
                lines += _honesty("Ours under these", report["hard"]["honesty"])
                lines += _absent(report["hard"]["not there"])
            if name == "confidence":
                lines += [
                    "The confidence's coefficients were fitted to other squares of the same",
                    f"photographs; here they are {_numbers(report[name]['fitted'])}, in use",
                    f"are {_numbers(report[name]['used'])}. The constants of the search and of the",
                    "schedule of σ were chosen on these photographs too.",
                    "",
                ]
            if name == "templates":
                lines += [
                    "One is right, 20 are that one with a quarter to a half of it replaced, 29 are",
                    "of other photographs. Right means this one, its middle within 5 pixels.",
                    "Normalised cross-correlation goes over the same turns and scales at a quarter",
                    "of the size, and over the best thirty again at full size.",
                    "",
                ]
            if name == "refine":
                lines += [
                    "Distance from the epipolar lines of the published cameras, neighbours and",
                    "next neighbours, before and after `caloric.match(..., refine=True)`.",
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"
