"""What a benchmark tells: JSON with everything, tables for the terminal, a plot, a page."""

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import caloric
from caloric import recipes
from caloric.benchmarks.datasets import Pair
from caloric.benchmarks.evaluate import NORMALISED, PIXELS, RATIOS, Result
from caloric.benchmarks.methods import DEFAULT, KEYPOINTS
from caloric.benchmarks.metrics import bootstrap

Report = dict[str, Any]


def _versions() -> dict[str, str]:
    found = {"caloric": caloric.__version__, "opencv": cv2.__version__}
    found |= {"numpy": np.__version__, "python": platform.python_version()}
    for package in ("kornia", "torch", "pycolmap"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _interval(values: Any) -> dict[str, float]:
    return vars(bootstrap(np.asarray(values, np.float64)))


def _method(result: Result, pairs: list[Pair], reference: Result) -> Report:
    groups = [pair.group for pair in pairs]
    ratio = result.best_ratio()
    figures = dict(result.figures)
    for t in PIXELS:
        figures[f"corners {t:g}"] = (result.corners[:, ratio] < t).astype(float)
    base = dict(reference.figures)
    for t in PIXELS:
        column = reference.corners[:, reference.best_ratio()]
        base[f"corners {t:g}"] = (column < t).astype(float)
    return {
        "detects": result.detects,
        "dimension": result.dimension,
        "ratio": RATIOS[ratio],
        "corners 3 by ratio": (result.corners < 3).mean(0).tolist(),
        "figures": {name: _interval(values) for name, values in figures.items()},
        "ahead of it is the default by": {
            name: _interval(base[name] - values)
            for name, values in figures.items()
            if result is not reference
        },
        "groups": {
            group: {
                name: float(np.mean([v for v, g in zip(values, groups, strict=True) if g == group]))
                for name, values in figures.items()
            }
            for group in dict.fromkeys(groups)
        },
        "pairs": {name: values.tolist() for name, values in result.figures.items()},
    }


def summarise(dataset: str, pairs: list[Pair], results: list[Result]) -> Report:
    """All figures with their intervals, as JSON can hold them."""
    report: Report = {
        "dataset": dataset,
        "pairs": [pair.name for pair in pairs],
        "versions": _versions(),
        "parameters": {
            "keypoints": KEYPOINTS,
            "ratios": RATIOS,
            "radius of normalised regions": NORMALISED,
            "default": repr(recipes.descriptor(DEFAULT)),
        },
    }
    for part, detects in (("same keypoints", False), ("own detectors", True)):
        chosen = [r for r in results if r.detects == detects]
        report[part] = {r.method: _method(r, pairs, chosen[0]) for r in chosen}
    return report


COLUMNS = {
    "same keypoints": ("mAP", "R@1", "mAP, normalised", "MMA 3", "right", "corners 3"),
    "own detectors": (
        "repeatability", "correspondences", "mAP", "R@1", "MMA 3", "right", "corners 3",
    ),
}  # fmt: skip
COUNTS = ("correspondences", "right")


def _cell(name: str, interval: dict[str, float]) -> str:
    if name in COUNTS:
        return f"{interval['mean']:.0f}"
    return f"{interval['mean']:.3f}"


def table(report: Report, part: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows: figures, and by how much the default is ahead in mAP."""
    head = ["method", "d", *COLUMNS[part], "ratio", "default ahead by (mAP)"]
    rows = []
    for name, method in report[part].items():
        row = [name, str(method["dimension"])]
        row += [_cell(c, method["figures"][c]) for c in COLUMNS[part]]
        ahead = method["ahead of it is the default by"].get("mAP")
        gap = f"{ahead['mean']:+.3f} [{ahead['low']:+.3f}, {ahead['high']:+.3f}]" if ahead else ""
        rows.append([*row, f"{method['ratio']:g}", gap])
    return head, rows


def plot(report: Report, path: Path) -> None:
    """mAP with intervals, and how right homographies are against the ratio threshold."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    methods = report["same keypoints"]
    names = sorted(methods, key=lambda n: methods[n]["figures"]["mAP"]["mean"])
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 0.32 * len(names) + 1.6), width_ratios=(3, 2), layout="constrained"
    )
    base = methods[DEFAULT]["figures"]["mAP"]["mean"]
    for row, name in enumerate(names):
        colour = "tab:red" if name == DEFAULT else "tab:gray"
        gap = methods[name]["ahead of it is the default by"].get("mAP")
        if gap is not None:
            ends = [base - gap["low"], base - gap["high"]]
            left.plot(ends, [row, row], color=colour, lw=2, alpha=0.5)
        left.plot(methods[name]["figures"]["mAP"]["mean"], row, "o", color=colour)
    left.axvline(base, color="tab:red", lw=0.8, alpha=0.5)
    left.set_yticks(range(len(names)), names)
    left.set_xlabel(f"mAP on {report['dataset']}; bars: 95 % of the difference to the default")
    left.grid(axis="x", alpha=0.3)
    for name in names[::-1]:
        shown = name == DEFAULT or "OpenCV" in name or "resampling" in name
        if shown:
            right.plot(RATIOS, methods[name]["corners 3 by ratio"], "o-", ms=3, label=name)
    right.set_xlabel("ratio threshold")
    right.set_ylabel("share of pairs with corners within 3 px")
    right.set_ylim(0, 1)
    right.grid(alpha=0.3)
    right.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def dumps(report: Report) -> str:
    """The same bytes each time."""
    return json.dumps(report, indent=1)
