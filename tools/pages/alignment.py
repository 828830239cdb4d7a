"""Write docs/align.md from the results of the alignment benchmark."""

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
    yield "The share of cases with a mean error below 1 pixel, at strengths"
    yield f"{', '.join(map(str, STRENGTHS))}; {cells['cases a cell']} cases per strength and kind."
    yield ""
    yield from table(["", *KINDS, "median error", "mean time"], rows)


def _honesty(title: str, honesty: Report) -> Iterator[str]:
    said, alarms = honesty["failures that say so"], honesty["false alarms"]
    share = "none" if said is None else f"{said:.1%}"
    yield f"{title}: {share} of {honesty['failures']} failures report `converged=False`;"
    yield f"{'none' if alarms is None else f'{alarms:.1%}'} of the successes do."
    yield ""


def _absent(absent: Report) -> Iterator[str]:
    said = f"{absent['that say so']:.0%}"
    yield f"When {absent['cases']} templates were searched for in images of another scene, {said}"
    yield "of the results reported failure."
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
    yield f"All kinds of motion are combined at half strength, with {count} cases per column. Each cell"
    yield "has the share within 1 pixel and, in brackets, the median error of those cases and the mean"
    yield "time. Only Caloric has an option for inverted contrast (`inverted=True`)."
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
    yield "The templates are random squares of each size, including smooth ones; those of the last three"
    yield "rows before *all* have texture in each quarter. All kinds of motion are combined at half"
    yield "strength, and the whole image is searched. *Found* is the share within 1 pixel. *Absent*: the"
    yield "template is from another scene than the image. *Reported*: the result has `converged=False`."
    yield ""
    head = ["", "found", "wrong", "reported, of the wrong", "reported, of the right", "absent",
            "reported, of the absent"]  # fmt: skip
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
    yield "The share of cases within 1 pixel / within 10 pixels."
    yield ""
    yield from table(["", *kinds, "mean time"], rows)


def _templates(found: Report) -> Iterator[str]:
    rows = [
        [name, f"{v['share']:.2f}", _seconds(v["mean seconds"]), str(v["cases"])]
        for name, v in found.items()
        if name != "about"
    ]
    yield from table(["50 templates", "right template and position", "mean time", "cases"], rows)


def _refined(refine: Report) -> Iterator[str]:
    rows = [
        [name, f"{v['matches']:,}", f"{v['median error before']:.3f} px",
         f"{v['median error after']:.3f} px", f"{v['lower by']:.0%}", f"{v['moved']:.0%}",
         f"{v['farthest move in sigmas']:.2f} σ"]
        for name, v in refine.items()
        if name != "about"
    ]  # fmt: skip
    head = ["scene", "verified matches", "before", "after", "reduction", "moved", "largest move"]
    yield from table(head, rows)


def tables(report: Report) -> Iterator[str]:
    """Yield the tables of the sections that the report has."""
    if "cells" in report:
        yield from _cells(report["cells"])
        yield from _honesty("Both rows of Caloric together", report["cells"]["honesty"])
    if "hard" in report:
        yield from _conditions(report["hard"])
        yield from _honesty("Caloric under these conditions", report["hard"]["honesty"])
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
    """Return the text of the page."""
    cells = report["cells"]
    ours, photographs = cells["overall"][SEARCH], cells["about"]["photographs"]
    ratio = cells["error over what the covariance tells"]
    lines = [
        "# Alignment, measured",
        "",
        "<!-- Written by `python -m tools page alignment`; edit tools/pages/alignment.py instead. -->",
        "",
        "`caloric.align` is the algorithm of the theory without the shortcuts of SIFT. It diffuses the",
        "density of gradient orientations, warps the image by the current estimate, and reduces the",
        "diffusion step by step ([how it differs from the theory](aligning.md)).",
        "",
        f"The templates are 128 x 128 pixels, the images 288 x 288; both are cut from {photographs}",
        "photographs. Every case has a gamma of 0.5 to 2, shading of up to 50 %, noise of 0.02 and a",
        "blur of up to 1.2 pixels. Strength 1 is a shift of 40 % of the template, a rotation of 45",
        "degrees, a scale of 1.65 (or its inverse), an affine change of norm 0.4, or all of them",
        "together. Every method estimates an affine map with its own defaults. Methods that need a",
        "starting point begin with the template upright in the middle of the image; so does the row",
        "*from the identity*. The benchmark is `python -m tools align`.",
        "",
        *_cells(cells),
        f"With the search, an alignment takes {_seconds(ours['mean seconds'])} on average. The median",
        f"ratio of its error to the error that its covariance predicts is {ratio:.2f}.",
        "",
        "## Does it report its failures?",
        "",
        *_honesty("Both rows of Caloric together", cells["honesty"]),
    ]
    sections = (
        ("hard", "Occlusion, blur, inverted contrast", _conditions),
        ("confidence", "Templates of any size, present or absent", _confidence),
        ("settings", "The columns of the paper, and other settings", _settings),
        ("templates", "Which template is it?", _templates),
        ("refine", "Refined matches", _refined),
    )
    for name, title, section in sections:
        if name in report:
            lines += [f"## {title}", "", *section(report[name])]
            if name == "hard":
                lines += _honesty("Caloric under these conditions", report["hard"]["honesty"])
                lines += _absent(report["hard"]["not there"])
            if name == "confidence":
                lines += [
                    "The coefficients of the confidence were fitted to other squares of the same",
                    f"photographs. The fit of this run is {_numbers(report[name]['fitted'])}; the",
                    f"coefficients in use are {_numbers(report[name]['used'])}. The constants of the",
                    "search and of the schedule of σ were chosen on these photographs too.",
                    "",
                ]
            if name == "templates":
                lines += [
                    "One of the 50 templates is the right one, 20 are copies of it with a quarter to",
                    "a half replaced, and 29 are from other photographs. A result is right if it",
                    "names the right template and puts its centre within 5 pixels. Normalised",
                    "cross-correlation tries the same rotations and scales at a quarter of the size,",
                    "and the best thirty again at full size.",
                    "",
                ]
            if name == "refine":
                lines += [
                    "*Before* and *after* are median distances from the epipolar lines of the",
                    "published cameras, without and with `caloric.match(..., refine=True)`. Each",
                    "image is matched with the next two.",
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"
