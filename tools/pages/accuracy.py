"""Write docs/accuracy.md from the results of the accuracy benchmarks."""

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
    """Return one line per figure in which another method has a better mean than the default.

    A method is bold where the interval of the difference excludes 0.
    """
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
    """Return the part of the page that ``write`` makes from a JSON file of results."""
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
        f"{len(data['pairs'])} pairs, {data['parameters']['keypoints']} keypoints per image. "
        f"Versions: {versions}.",
        f"![mAP with 95 % intervals]({picture.name})",
    ]
    for part in report.COLUMNS:
        head, rows = report.table(data, part)
        parts += [f"### {part.capitalize()}", _markdown(head, rows)]
    names = [n for n in data["same keypoints"] if n == DEFAULT or "OpenCV" in n or "DSP" in n]
    parts += ["### By scene or type of change", _groups(data, "same keypoints", names)]
    losses = _losses(data)
    parts += [
        "### Losses",
        "These methods have a better mean than the default. A method is bold where the interval of "
        "the difference excludes 0.",
        "\n".join(f"- {line}" for line in losses)
        or "No method is better than the default in these figures.",
    ]
    return "\n\n".join(parts)


def _verdicts(claims: Claims) -> list[str]:
    """Return a list in words of what the tables show."""
    lines = []
    for name, values in claims.lead.items():
        sides = {
            "ahead of": [s for s, v in zip(STRENGTHS, values, strict=True) if v["low"] > 0],
            "behind": [s for s, v in zip(STRENGTHS, values, strict=True) if v["high"] < 0],
        }
        said = [
            f"{side} {name} at strengths {', '.join(f'{s:g}' for s in at)}"
            for side, at in sides.items()
            if at
        ]
        lines.append("- Heat is " + (" and ".join(said) or f"not distinguishable from {name}"))
    cost = {name: v["median"] for name, v in claims.cost.items()}
    strongest = {name: values[-1]["mAP"] for name, values in claims.accuracy.items()}
    for name in ("dsp-inner", "dsp-both", "dsp-domain", "DSP-SIFT by resampling"):
        lines.append(
            f"- {name} takes {cost[name]:.2f} times as long as sift; at strength "
            f"{STRENGTHS[-1]:g} its mAP is {strongest[name]:.3f}, that of sift is "
            f"{strongest['sift']:.3f}"
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
            "mAP of heat and of the other descriptors as the strength of an affine change grows, at "
            "equal support and dimension:",
            _markdown(head, rows),
            "The lead of heat in mAP over each of the others, with 95 % intervals over pairs:",
            _markdown(["heat ahead of", *head[1:]], leads),
            "The time to describe, relative to `sift` in the same run:",
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
            "## Ablation: what each part of the default contributes",
            "`python -m tools.ablation` measures this table on photographs and on a scene that were "
            "not used to choose the default. Variants that gain here were not adopted afterwards, "
            "because that would be choosing on the held-out data.",
            _markdown(head, rows),
        ]
    )


def _edges(search: dict[str, Any]) -> list[str]:
    """Return the parameters whose chosen value is the first or the last of those tried."""
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
            "`python -m tools.choose` chose the default and never reads Oxford Affine. It tried "
            f"{search['evaluated']} descriptors on synthetic changes of photographs and on "
            "fountain-P11. `python -m tools.learn_whitening` learned the whitening from the pictures "
            "inside the scikit-image package.",
            _markdown(["parameter", "chosen", "tried"], rows),
            "\n".join(scores),
            "The chosen values of these parameters are at the edge of the searched range, so values "
            "beyond it may be better: "
            + ", ".join(_edges(search))
            + ". For these scores the whitening was learned from the unchanged pictures. The "
            "whitening that is shipped was learned from changed versions of them too.",
        ]
    )


def write(datasets: list[Path], claims: Path | None, ablation: Path | None, out: Path) -> None:
    """Write the page ``out``, and a plot beside it for each data set, from JSON results."""
    parts = [
        "# Accuracy",
        "<!-- Written by `python -m tools accuracy-page`; edit tools/pages/accuracy.py instead. -->",
        "The figures are from `caloric bench oxford`, `python -m tools claims` and "
        "`python -m tools.ablation`. For each pair of images, every frame of the first image is "
        "matched with its nearest neighbour in the second. The columns are:",
        "- **mAP**: the matches are ranked by distance; the precision at each right match is "
        "averaged over the frames that have a counterpart. A match is right when the two regions "
        "(3 σ) overlap by more than half. *Normalised*: the regions are first scaled to a radius of "
        "30 pixels\n"
        "- **R@1**: the share of those frames whose nearest neighbour is right\n"
        "- **MMA 3**: the share of mutual nearest neighbours that are within 3 pixels of the truth, "
        "without a ratio test. **right**: the number of such matches\n"
        "- **corners 3**: the share of image pairs whose estimated homography is right to 3 pixels "
        "at the corners, averaged over ratio thresholds from .6 to 1\n"
        "- The last columns: the lead of the default, with 95 % bootstrap intervals over whole "
        "scenes",
    ]
    for path in datasets:
        parts.append(_from(path, lambda data: _dataset(data, out)))
    parts.append(_choice(recipes.search()))
    if ablation is not None:
        parts.append(_from(ablation, _ablation))
    if claims is not None:
        parts.append(_from(claims, lambda data: _claims(Claims(**data))))
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
