"""The page of the documentation that shows what the benchmarks found, written by them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caloric.bench import report
from caloric.bench.methods import DEFAULT
from caloric.descriptor import recipes
from caloric.errors import InputError
from tools.claims import STRENGTHS, Claims
from tools.pages.markdown import table

_TITLES = {"oxford": "Oxford Affine", "fischer": "Fischer's data", "hpatches": "HPatches"}


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(table(head, rows)[:-1])


def _groups(data: report.Report, part: str, names: list[str]) -> str:
    groups = list(data[part][names[0]]["groups"])
    head = ["mAP", *groups]
    rows = [
        [name, *(f"{data[part][name]['groups'][g]['mAP']:.3f}" for g in groups)] for name in names
    ]
    return _markdown(head, rows)


def _losses(data: report.Report) -> list[str]:
    """Who is ahead of the default in what, in the mean; bold where the interval excludes 0."""
    found = []
    for part in report.COLUMNS:
        ahead: dict[str, list[tuple[float, str]]] = {}
        for name, method in data[part].items():
            for figure, gap in method["ahead of it is the default by"].items():
                if gap["mean"] < 0 and figure != "features":
                    by = f"{-gap['mean']:.0f}" if figure in report.COUNTS else f"{-gap['mean']:.3f}"
                    text = f"{name} by {by}"
                    sure = gap["high"] < 0
                    ahead.setdefault(figure, []).append(
                        (gap["mean"], f"**{text}**" if sure else text)
                    )
        found += [
            f"{part}, {figure}: " + ", ".join(text for _, text in sorted(lines))
            for figure, lines in ahead.items()
        ]
        base = data[part][DEFAULT]["groups"]
        for group in base:
            better = [
                (base[group]["mAP"] - method["groups"][group]["mAP"], name)
                for name, method in data[part].items()
            ]
            texts = [f"{name} by {-gap:.3f}" for gap, name in sorted(better) if gap < 0]
            if texts:
                found.append(f"{part}, mAP on {group}: {', '.join(texts)}")
    return found


def _from(path: Path, write: Callable[[Any], str]) -> str:
    """A part of the page from a file of results."""
    try:
        return write(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not results of this version; run the benchmark again") from None


def _dataset(data: report.Report, out: Path) -> str:
    picture = out.with_name(f"{out.stem}-{data['dataset']}.png")
    report.plot(data, picture)
    title = _TITLES[data["dataset"]]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items())
    parts = [
        f"## {title}",
        f"{len(data['pairs'])} pairs, {data['parameters']['keypoints']} keypoints an image; "
        f"{versions}.",
        f"![mAP with intervals]({picture.name})",
    ]
    for part in report.COLUMNS:
        head, rows = report.table(data, part)
        parts += [f"### {part.capitalize()}", _markdown(head, rows)]
    names = [n for n in data["same keypoints"] if n == DEFAULT or "OpenCV" in n or "DSP" in n]
    parts += ["### By scene or kind of change", _groups(data, "same keypoints", names)]
    losses = _losses(data)
    parts += [
        "### Losses",
        "Who is ahead of the default, in bold where the interval of the difference excludes 0:",
        "\n".join(f"- {line}" for line in losses) or "Nobody in these figures.",
    ]
    return "\n\n".join(parts)


def _verdicts(claims: Claims) -> list[str]:
    """What the tables say, in words."""
    lines = []
    for name, values in claims.lead.items():
        sides = {
            "ahead of": [s for s, v in zip(STRENGTHS, values, strict=True) if v["low"] > 0],
            "behind": [s for s, v in zip(STRENGTHS, values, strict=True) if v["high"] < 0],
        }
        said = [
            f"{side} {name} at {', '.join(f'{s:g}' for s in at)}"
            for side, at in sides.items()
            if at
        ]
        lines.append("- Heat is " + (" and ".join(said) or f"not distinguishable from {name}"))
    cost = {name: v["median"] for name, v in claims.cost.items()}
    strongest = {name: values[-1]["mAP"] for name, values in claims.accuracy.items()}
    for name in ("dsp-inner", "dsp-both", "dsp-domain", "DSP-SIFT by resampling"):
        lines.append(
            f"- {name} costs {cost[name]:.2f} times what sift does, and at strength "
            f"{STRENGTHS[-1]:g} has mAP {strongest[name]:.3f}, sift {strongest['sift']:.3f}"
        )
    return ["\n".join(lines)]


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
            *_verdicts(claims),
            "Heat against the others as an affine change grows, at equal support and dimension:",
            _markdown(head, rows),
            "By how much heat is ahead in mAP, with 95 % intervals over pairs:",
            _markdown(["heat ahead of", *head[1:]], leads),
            "What describing costs, relative to `sift` in the same run:",
            _markdown(["method", "cost", "range"], cost),
        ]
    )


def _ablation(lines: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, line in lines.items():
        gap = line["against chosen"]
        change = f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
        rows.append([name, f"{line['mAP']:.3f}", change, f"{line['share']:.3f}"])
    head = ["one thing changed", "mAP, held-out", "against the default", "share, Herz-Jesus-P8"]
    return "\n\n".join(
        [
            "## What its parts are worth",
            "By `tools/ablation.py`, on photographs and a scene that took no part in the choice. "
            "What gains here was not taken up afterwards: that would be choosing on them.",
            _markdown(head, rows),
        ]
    )


def _edges(search: dict[str, Any]) -> list[str]:
    """Parameters whose chosen value is the first or the last of those tried."""
    chosen, searched = search["chosen"], search["searched"]
    return [f"`{k}`" for k, tried in searched.items() if chosen[k] in (tried[0], tried[-1])]


def _choice(search: dict[str, Any]) -> str:
    rows = [
        [f"`{name}`", str(search["chosen"][name]), ", ".join(str(value) for value in tried)]
        for name, tried in search["searched"].items()
    ]
    scores = [f"- {name}: {value:.3f}" for name, value in search["scores"].items()]
    return "\n\n".join(
        [
            "## How the default was chosen",
            f"By `tools/choose.py`, which never reads Oxford Affine: {search['evaluated']} "
            "descriptors were tried on synthetic changes of photographs and on fountain-P11. Its "
            "whitening was learned from the pictures inside the scikit-image package by "
            "`tools/learn_whitening.py`.",
            _markdown(["parameter", "chosen", "tried"], rows),
            "\n".join(scores),
            "At the edge of what was searched, so that there may be more beyond: "
            + ", ".join(_edges(search))
            + ". The scores are with whitening learned from the pictures as they are; what is "
            "shipped was learned from changes of them too.",
        ]
    )


def write(datasets: list[Path], claims: Path | None, ablation: Path | None, out: Path) -> None:
    """``out`` and a plot beside it for each data set, from the JSON files of the benchmarks."""
    parts = [
        "# Accuracy",
        "Written by `caloric bench page` from what `caloric bench oxford`, `caloric bench claims` "
        "and `tools/ablation.py` found. For each pair of images every frame of the first takes its "
        "nearest neighbour in the second:",
        "- **mAP**: matches ranked by distance; the precision at each right one, averaged over the "
        "frames that have a counterpart. A match is right when the regions (3 σ) overlap by more "
        "than half; *normalised*: the regions brought to a radius of 30 pixels first\n"
        "- **R@1**: the share of those frames whose nearest neighbour is right\n"
        "- **MMA 3**: of mutual nearest neighbours, the share within 3 pixels of the truth, with "
        "no ratio asked for; **right**: how many those are\n"
        "- **corners 3**: the share of pairs whose estimated homography is right to 3 pixels at "
        "the corners, averaged over ratio thresholds from .6 to 1\n"
        "- The last columns: by how much the default is ahead, with 95 % bootstrap intervals over "
        "whole scenes",
    ]
    for path in datasets:
        parts.append(_from(path, lambda data: _dataset(data, out)))
    parts.append(_choice(recipes.search()))
    if ablation is not None:
        parts.append(_from(ablation, _ablation))
    if claims is not None:
        parts.append(_from(claims, lambda data: _claims(Claims(**data))))
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
