"""docs/accuracy.md, from the results of the accuracy benchmarks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caloric.bench import report
from caloric.bench.methods import DEFAULT
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.types import Report
from tools.claims import STRENGTHS, Claims
from tools.pages.markdown import render, table

_TITLES = {"oxford": "Oxford Affine", "fischer": "Fischer's data", "hpatches": "HPatches"}


def _groups(data: Report, part: str, names: list[str]) -> str:
    groups = list(data[part][names[0]]["groups"])
    head = ["mAP", *groups]
    rows = [
        [name, *(f"{data[part][name]['groups'][g]['mAP']:.3f}" for g in groups)] for name in names
    ]
    return table(head, rows)


def _losses(data: Report) -> list[str]:
    """Return one line per metric in which another method has a better mean than the default.

    A method is bold if the interval of the difference excludes 0.
    """
    lines = []
    for part in report.COLUMNS:
        leads: dict[str, list[tuple[float, str]]] = {}
        for name, method in data[part].items():
            for metric, gap in method["ahead of it is the default by"].items():
                if gap["mean"] < 0 and metric != "features":
                    by = f"{-gap['mean']:.0f}" if metric in report.COUNTS else f"{-gap['mean']:.3f}"
                    text = f"{name} by {by}"
                    significant = gap["high"] < 0
                    leads.setdefault(report.LABELS.get(metric, metric), []).append(
                        (gap["mean"], f"**{text}**" if significant else text)
                    )
        lines += [
            f"{part}, {metric}: " + ", ".join(text for _, text in sorted(texts))
            for metric, texts in leads.items()
        ]
        base = data[part][DEFAULT]["groups"]
        for group in base:
            better = [
                (base[group]["mAP"] - method["groups"][group]["mAP"], name)
                for name, method in data[part].items()
            ]
            texts = [f"{name} by {-gap:.3f}" for gap, name in sorted(better) if gap < 0]
            if texts:
                lines.append(f"{part}, mAP on {group}: {', '.join(texts)}")
    return lines


def _read(path: Path, convert: Callable[[Any], Any]) -> Any:
    """Return the results of a JSON file, converted."""
    try:
        return convert(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path}: not results of this version of Caloric; run the benchmark again"
        ) from None


def plot_name(dataset: str) -> str:
    """Return the file name of the plot of a data set."""
    return f"accuracy-{dataset}.png"


def _dataset(data: Report) -> Report:
    names = [n for n in data["same keypoints"] if n == DEFAULT or "OpenCV" in n or "DSP" in n]
    return {
        "title": _TITLES[data["dataset"]],
        "pairs": len(data["pairs"]),
        "keypoints": data["parameters"]["keypoints"],
        "versions": ", ".join(f"{k} {v}" for k, v in data["versions"].items()),
        "plot": plot_name(data["dataset"]),
        "tables": {part: table(*report.table(data, part)) for part in report.COLUMNS},
        "groups": _groups(data, "same keypoints", names),
        "losses": _losses(data),
    }


def _verdicts(claims: Claims) -> list[str]:
    """Return lines that summarize the tables."""
    lines = []
    for name, values in claims.lead.items():
        sides = {
            "ahead of": [s for s, v in zip(STRENGTHS, values, strict=True) if v["low"] > 0],
            "behind": [s for s, v in zip(STRENGTHS, values, strict=True) if v["high"] < 0],
        }
        verdicts = [
            f"{side} {name} at strengths {', '.join(f'{s:g}' for s in strengths)}"
            for side, strengths in sides.items()
            if strengths
        ]
        lines.append("Heat is " + (" and ".join(verdicts) or f"not distinguishable from {name}"))
    cost = {name: v["median"] for name, v in claims.cost.items()}
    strongest = {name: values[-1]["mAP"] for name, values in claims.accuracy.items()}
    for name in ("dsp-inner", "dsp-both", "dsp-domain", "DSP-SIFT by resampling"):
        lines.append(
            f"{name} takes {cost[name]:.2f} times as long as sift; at strength "
            f"{STRENGTHS[-1]:g} its mAP is {strongest[name]:.3f}, that of sift is "
            f"{strongest['sift']:.3f}"
        )
    return lines


def _claims(claims: Claims) -> Report:
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
    return {
        "verdicts": _verdicts(claims),
        "accuracy": table(head, rows),
        "lead": table(["lead of heat over", *head[1:]], leads),
        "cost": table(["method", "median", "range"], cost),
    }


def _ablation(lines: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, line in lines.items():
        gap = line["against chosen"]
        change = f"{gap['mean']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
        rows.append([name, f"{line['mAP']:.3f}", change, f"{line['share']:.3f}"])
    head = ["variant", "mAP, held-out", "difference to the default", "share, Herz-Jesus-P8"]
    return table(head, rows)


def _edges(search: dict[str, Any]) -> list[str]:
    """Return the parameters whose chosen value is the first or the last of the grid."""
    chosen, searched = search["chosen"], search["searched"]
    return [f"`{k}`" for k, tried in searched.items() if chosen[k] in (tried[0], tried[-1])]


def page(datasets: list[Path], claims: Path | None, ablation: Path | None) -> str:
    """Return the text of the page, from the JSON files of the benchmarks."""
    search = recipes.search()
    choice = [
        [f"`{name}`", str(search["chosen"][name]), ", ".join(str(value) for value in tried)]
        for name, tried in search["searched"].items()
    ]
    return render(
        "accuracy.md",
        datasets=[_read(path, _dataset) for path in datasets],
        search=search,
        choice=table(["parameter", "chosen", "grid"], choice),
        edges=_edges(search),
        ablation=None if ablation is None else _read(ablation, _ablation),
        claims=None if claims is None else _read(claims, lambda data: _claims(Claims(**data))),
    )
