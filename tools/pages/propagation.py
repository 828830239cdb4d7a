"""The plots of docs/propagation.md: what agreement and propagation add, and where they fail."""

from pathlib import Path
from typing import Any

import numpy as np
from skimage import data

import caloric
from caloric.matching.neighbors import ORIGINS
from caloric.viz import plots

PLOT, FAILURES = "propagation.jpg", "propagation-failures.jpg"
_INCORRECT = 3  # pixels from the position that the known disparity gives
_COLORS = {
    "rejected": "#d62728",
    "ratio": "#1f77b4",
    "inliers": "#1f77b4",
    "agreement": "#ff7f0e",
    "propagation": "#2ca02c",
    "correct": "#2ca02c",
    "incorrect": "#d62728",
}


def draw(path: Path) -> None:
    """Draw the matched positions of the first image of a stereo pair, by how they were found."""
    left, right = data.stereo_motorcycle()[:2]  # type: ignore[no-untyped-call]
    pair = caloric.match_images(left, right, model="fundamental", max_features=2048)
    count = len(pair.features_a) - pair.propagated_features[0]
    features_a = pair.features_a[:count]
    features_b = pair.features_b[: len(pair.features_b) - pair.propagated_features[1]]
    candidates = caloric.match(features_a, features_b, ratio=None)
    xy = pair.all_points()[0]
    inliers_by = {name: xy[pair.matches.is_from(name) & pair.geometry.inliers] for name in ORIGINS}
    rejected = features_a.frames.xy[
        np.setdiff1d(candidates.indices[:, 0], pair.matches.indices[:, 0])
    ]
    h, w = left.shape[:2]
    figure = plots.new_figure(figsize=(12, 6 * h / w + 0.5), dpi=110)
    panels = figure.subplots(1, 2)
    _show(panels[0], left, {"rejected": rejected} | {n: inliers_by[n] for n in ORIGINS[:2]})
    known = np.concatenate([inliers_by["ratio"], inliers_by["agreement"]])
    _show(panels[1], left, {"inliers": known, "propagation": inliers_by["propagation"]})
    panels[0].set_title(
        f"{len(inliers_by['ratio'])} inliers by the ratio test, {len(inliers_by['agreement'])} by "
        f"agreement; {len(rejected)} candidates rejected"
    )
    panels[1].set_title(f"{len(known)} inliers, and {len(inliers_by['propagation'])} propagated")
    figure.savefig(path, pil_kwargs={"quality": 85})


def draw_failures(path: Path) -> None:
    """Draw the propagated matches of a stereo pair with known disparity that are incorrect."""
    left, right, disparity = data.stereo_motorcycle()  # type: ignore[no-untyped-call]
    pair = caloric.match_images(left, right, model="fundamental", max_features=2048)
    inliers = pair.geometry.inliers
    p, q = (points[inliers] for points in pair.all_points())
    column, row = np.round(p).astype(int).T
    shift = disparity[row, column]
    known = np.isfinite(shift)
    errors = np.hypot(p[:, 0] - shift - q[:, 0], p[:, 1] - q[:, 1])
    h, w = left.shape[:2]
    figure = plots.new_figure(figsize=(12, 6 * h / w + 0.5), dpi=110)
    titles = {"ratio": "by the ratio test", "propagation": "by propagation"}
    for panel, (name, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        mask = pair.matches.is_from(name)[inliers] & known
        bad = mask & (errors > _INCORRECT)
        _show(panel, left, {"correct": p[mask & ~bad], "incorrect": p[bad]})
        panel.set_title(f"{mask.sum()} inliers {title}, {bad.sum()} incorrect")
    figure.savefig(path, pil_kwargs={"quality": 85})


def _show(panel: Any, image: Any, groups: dict[str, Any]) -> None:
    panel.imshow(image, alpha=0.5)
    for name, points in groups.items():
        panel.scatter(points[:, 0], points[:, 1], 6, color=_COLORS[name], linewidths=0, label=name)
    panel.legend(loc="lower left", markerscale=3)
    panel.axis("off")
