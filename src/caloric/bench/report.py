"""The report of a benchmark: JSON with all results, tables for the terminal, and a plot."""

import json
import platform
from importlib import metadata
from pathlib import Path

import cv2
import numpy as np

import caloric
from caloric.bench.datasets import Pair
from caloric.bench.evaluate import NORMALIZED, PIXELS, RATIOS, Result
from caloric.bench.methods import DEFAULT, KEYPOINTS
from caloric.bench.metrics import bootstrap
from caloric.descriptor import recipes
from caloric.types import FloatArray, Report
from caloric.viz import plots


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that the results depend on."""
    result = {"caloric": caloric.__version__, "opencv": cv2.__version__}
    result |= {"numpy": np.__version__, "python": platform.python_version()}
    for package in ("kornia", "torch", "pycolmap", "faiss-cpu"):
        try:
            result[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return result


def _metrics(result: Result) -> dict[str, FloatArray]:
    """Return all metrics of a method by pair; corners are averaged over the ratios."""
    corners = {f"corners {t:g}": (result.corners < t).mean(1) for t in PIXELS}
    return {**result.metrics, **corners}


def _method(result: Result, pairs: list[Pair], reference: Result) -> Report:
    groups, scenes = [pair.group for pair in pairs], [str(pair.first) for pair in pairs]
    metrics, base = _metrics(result), _metrics(reference)
    return {
        "detects": result.detects,
        "dimension": result.dimension,
        "corners 3 by ratio": (result.corners < 3).mean(0).tolist(),
        "results": {name: vars(bootstrap(values, scenes)) for name, values in metrics.items()},
        "ahead of it is the default by": {
            name: vars(bootstrap(base[name] - values, scenes))
            for name, values in metrics.items()
            if result is not reference
        },
        "groups": {
            group: {
                name: float(np.mean([v for v, g in zip(values, groups, strict=True) if g == group]))
                for name, values in metrics.items()
            }
            for group in dict.fromkeys(groups)
        },
        "pairs": {name: values.tolist() for name, values in metrics.items()},
    }


def _differences(results: list[Result], pairs: list[Pair]) -> Report:
    """Return the lead in mAP of each method over each other one."""
    scenes = [str(pair.first) for pair in pairs]
    return {
        a.method: {
            b.method: vars(bootstrap(a.metrics["mAP"] - b.metrics["mAP"], scenes))
            for b in results
            if b is not a
        }
        for a in results
    }


def summarize(dataset: str, pairs: list[Pair], results: list[Result]) -> Report:
    """Return all results with their intervals, ready for JSON."""
    report: Report = {
        "dataset": dataset,
        "pairs": [pair.name for pair in pairs],
        "versions": versions(),
        "parameters": {
            "keypoints": KEYPOINTS,
            "ratios": RATIOS,
            "radius of normalized regions": NORMALIZED,
            "default": repr(recipes.descriptor(DEFAULT)),
        },
    }
    for part, detects in (("same keypoints", False), ("own detectors", True)):
        chosen = [r for r in results if r.detects == detects]
        report[part] = {r.method: _method(r, pairs, chosen[0]) for r in chosen}
        report[f"differences of mAP, {part}"] = _differences(chosen, pairs)
    return report


COLUMNS = {
    "same keypoints": ("mAP", "R@1", "mAP, normalized", "MMA 3", "right", "corners 3"),
    "own detectors": (
        "features", "repeatability", "correspondences", "mAP", "R@1", "MMA 3", "right", "corners 3",
    ),
}  # fmt: skip
COUNTS = ("features", "correspondences", "right")
LABELS = {"right": "correct matches"}  # in tables


def _cell(name: str, interval: dict[str, float]) -> str:
    if name in COUNTS:
        return f"{interval['mean']:.0f}"
    return f"{interval['mean']:.3f}"


def table(report: Report, part: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table: metrics, and the lead of the default."""
    labels = [LABELS.get(name, name) for name in COLUMNS[part]]
    head = ["method", "d", *labels, "lead of the default (mAP)", "(R@1)"]
    rows = []
    for method_name, method in report[part].items():
        row = [method_name, str(method["dimension"])]
        row += [_cell(c, method["results"][c]) for c in COLUMNS[part]]
        for name in ("mAP", "R@1"):
            lead = method["ahead of it is the default by"].get(name)
            row.append(
                f"{lead['mean']:+.3f} [{lead['low']:+.3f}, {lead['high']:+.3f}]" if lead else ""
            )
        rows.append(row)
    return head, rows


def plot(report: Report, path: Path) -> None:
    """Plot mAP with intervals, and the accuracy of homographies against the ratio threshold."""
    methods = report["same keypoints"]
    names = sorted(methods, key=lambda n: methods[n]["results"]["mAP"]["mean"])
    figure = plots.new_figure(figsize=(11, 0.32 * len(names) + 1.6))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    base = methods[DEFAULT]["results"]["mAP"]["mean"]
    for row, name in enumerate(names):
        color = "tab:red" if name == DEFAULT else "tab:gray"
        gap = methods[name]["ahead of it is the default by"].get("mAP")
        if gap is not None:
            ends = [base - gap["low"], base - gap["high"]]
            left.plot(ends, [row, row], color=color, lw=2, alpha=0.5)
        left.plot(methods[name]["results"]["mAP"]["mean"], row, "o", color=color)
    left.axvline(base, color="tab:red", lw=0.8, alpha=0.5)
    left.set_yticks(range(len(names)), names)
    left.set_xlabel(f"mAP on {report['dataset']}; bars: 95% interval of the lead of the default")
    left.grid(axis="x", alpha=0.3)
    for name in names[::-1]:
        if name == DEFAULT or "OpenCV" in name or "resampling" in name:
            right.plot(RATIOS, methods[name]["corners 3 by ratio"], "o-", ms=3, label=name)
    right.set_xlabel("ratio threshold")
    right.set_ylabel("share of pairs with corner error below 3 px")
    right.set_ylim(0, 1)
    right.grid(alpha=0.3)
    right.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


def dumps(report: Report) -> str:
    """Return the report as JSON text."""
    return json.dumps(report, indent=1)
