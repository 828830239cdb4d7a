"""The page of the documentation that shows what the benchmarks found, written by them."""

import json
from pathlib import Path

from caloric import recipes
from caloric.benchmarks import report
from caloric.benchmarks.claims import STRENGTHS, Claims
from caloric.benchmarks.methods import DEFAULT

_TITLES = {"oxford": "Oxford Affine", "fischer": "Fischer's data", "hpatches": "HPatches"}


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _groups(data: report.Report, part: str, names: list[str]) -> str:
    groups = list(data[part][names[0]]["groups"])
    head = ["mAP", *groups]
    rows = [
        [name, *(f"{data[part][name]['groups'][g]['mAP']:.3f}" for g in groups)] for name in names
    ]
    return _markdown(head, rows)


def _losses(data: report.Report) -> list[str]:
    """Where another method is ahead of the default in the mean, or in a group by .01 or more."""
    found = []
    for part in report.COLUMNS:
        base = data[part][DEFAULT]
        for name, method in data[part].items():
            if name.startswith(DEFAULT):
                continue
            for figure, gap in method["ahead of it is the default by"].items():
                if gap["mean"] < 0:
                    sure = "" if gap["low"] <= 0 <= gap["high"] else ", and the interval excludes 0"
                    found.append(
                        f"{part}, {figure}: {name} is ahead by {-gap['mean']:.3f} "
                        f"[{-gap['high']:.3f}, {-gap['low']:.3f}]{sure}"
                    )
            for group, figures in method["groups"].items():
                behind = figures["mAP"] - base["groups"][group]["mAP"]
                if behind >= 0.01:
                    found.append(f"{part}, mAP on {group}: {name} is ahead by {behind:.3f}")
    return found


def _dataset(data: report.Report, picture: str) -> str:
    title = _TITLES[data["dataset"]]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items())
    parts = [
        f"## {title}",
        f"{len(data['pairs'])} pairs, {data['parameters']['keypoints']} keypoints an image; "
        f"{versions}.",
        f"![mAP with intervals]({picture})",
    ]
    for part in report.COLUMNS:
        head, rows = report.table(data, part)
        parts += [f"### {part.capitalize()}", _markdown(head, rows)]
    names = [n for n in data["same keypoints"] if n == DEFAULT or "OpenCV" in n or "DSP" in n]
    parts += ["### By sequence", _groups(data, "same keypoints", names)]
    losses = _losses(data)
    parts += ["### Losses", "\n".join(f"- {line}" for line in losses) or "None in these figures."]
    return "\n\n".join(parts)


def _claims(claims: Claims) -> str:
    head = ["mAP at strength", *(f"{s:g}" for s in STRENGTHS)]
    rows = [[n, *(f"{v['mAP']:.3f}" for v in values)] for n, values in claims.accuracy.items()]
    leads = [
        [n, *(f"{v['mean']:+.3f} [{v['low']:+.3f}, {v['high']:+.3f}]" for v in values)]
        for n, values in claims.lead.items()
    ]
    cost = [
        [n, f"{v['median']:.2f}", f"{v['least']:.2f} to {v['most']:.2f}"]
        for n, v in claims.cost.items()
    ]
    return "\n\n".join(
        [
            "## The claims of the paper",
            "Heat against the others as an affine change grows, at equal support and dimension:",
            _markdown(head, rows),
            "By how much heat is ahead in mAP, with 95 % intervals over pairs:",
            _markdown(["heat ahead of", *head[1:]], leads),
            "What describing costs, relative to `sift` in the same run:",
            _markdown(["method", "cost", "range"], cost),
        ]
    )


def write(datasets: list[Path], claims: Path | None, out: Path) -> None:
    """``out`` and a plot beside it for each data set, from the JSON files of the benchmarks."""
    search = recipes.search()
    parts = [
        "# Accuracy",
        "Written by `caloric bench page` from the results of `caloric bench oxford` and "
        "`caloric bench claims`. What the figures mean is said in `caloric.benchmarks.evaluate`; "
        "the last column is a 95 % bootstrap interval over pairs of the difference to the default.",
        "The default descriptor was chosen by `tools/choose.py`, which never reads Oxford Affine: "
        f"{search['evaluated']} descriptors were tried on synthetic changes of photographs and on "
        f"fountain-P11. Its whitening was learned from the pictures inside the scikit-image "
        "package by `tools/learn_whitening.py`. What was searched and what it scored:",
        "```json\n"
        + json.dumps({k: search[k] for k in ("chosen", "scores", "searched")}, indent=None).replace(
            ', "', ',\n "'
        )
        + "\n```",
    ]
    for path in datasets:
        data = json.loads(path.read_text(encoding="utf-8"))
        picture = out.with_name(f"{out.stem}-{data['dataset']}.png")
        report.plot(data, picture)
        parts.append(_dataset(data, picture.name))
    if claims is not None:
        parts.append(_claims(Claims(**json.loads(claims.read_text(encoding="utf-8")))))
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
