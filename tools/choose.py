"""Choose the default descriptor. It never reads Oxford Affine.

    python tools/choose.py --photos PHOTOS --strecha STRECHA/fountain-P11

Coordinate search, seeded, about a quarter of an hour on two cores. What is maximised is the sum of

* mAP on 48 synthetic changes (view, light, blur, noise, JPEG) of 16 photographs, and
* the share of keypoints of fountain-P11 that are mutual nearest neighbours within 1.5 pixels of
  each other's epipolar lines, images one to three apart,

minus PRICE for every doubling of the work. Whitening is learned from the pictures of scikit-image.
The result is src/caloric/data/caloric.json: what was chosen, what was searched, what it scored,
also on 16 photographs that took no part. The default descriptor reads it.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from caloric import whitening
from caloric.benchmarks import training
from caloric.benchmarks.methods import opencv_keypoints
from caloric.frames import Frames
from caloric.images import to_grey
from caloric.matching import neighbours
from caloric.recipes import Descriptor, from_numbers
from caloric.scalespace import build
from caloric.threads import one_blas_thread

OUT = Path(__file__).parents[1] / "src" / "caloric" / "data" / "caloric.json"
PRICE = 0.002
START: dict[str, Any] = {
    "sigma_d": 0.8, "growth": 0.3, "sigma_r": 0.6, "sigma_s": 0.3,
    "radii": [0.0, 2.4, 5.6, 12.0], "angles": 8, "directions": 8,
    "reach": 30.0, "finest": 0.8, "pitch": 0.15, "power": 0.5, "harmonics": 6, "t": 0.6,
}  # fmt: skip
GRID: dict[str, list[Any]] = {
    "radii": [
        [0.0, 2.4, 5.6, 12.0], [0.0, 2.0, 4.0, 8.0, 16.0], [0.0, 1.5, 3.0, 6.0, 12.0],
        [0.0, 1.5, 3.0, 6.0, 12.0, 20.0], [0.0, 1.5, 3.0, 6.0, 12.0, 24.0],
        [0.0, 1.0, 2.0, 4.0, 8.0, 16.0],
    ],
    "angles": [4, 5, 6, 8],
    "reach": [20.0, 30.0, 40.0],
    "power": [0.3, 0.4, 0.5, 1.0],
    "sigma_d": [0.4, 0.6, 0.8, 1.0],
    "growth": [0.25, 0.3, 0.35, 0.4],
    "sigma_s": [0.2, 0.3, 0.4],
    "sigma_r": [0.5, 0.6, 0.7],
    "directions": [6, 8, 12],
    "harmonics": [4, 5, 6],
    "pitch": [0.15, 0.2],
    "finest": [0.6, 0.8, 1.0],
    "t": [0.5, 0.6, 0.7, 0.8],
}  # fmt: skip


class Fountain:
    """fountain-P11 at half its size: keypoints, and the fundamental matrices of pairs."""

    def __init__(self, folder: Path, count: int = 1000) -> None:
        """Read cameras and images; everything is kept in memory."""
        cameras = json.loads((folder / "cameras.json").read_text())
        self.views, self.poses = [], []
        for name in sorted(cameras):
            image = cv2.imread(str(folder / "images" / name), cv2.IMREAD_GRAYSCALE)
            small = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            frames = Frames.from_opencv(opencv_keypoints(small, count))
            self.views.append(training.View(build(to_grey(small)).ladder(), frames))
            half = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]])
            self.poses.append(
                tuple(
                    np.array(v)
                    for v in (
                        half @ cameras[name]["K"],
                        cameras[name]["R_world_to_cam"],
                        cameras[name]["centre"],
                    )
                )
            )

    def fundamental(self, i: int, j: int) -> np.ndarray:
        """From image i to image j."""
        (k_i, r_i, c_i), (k_j, r_j, c_j) = self.poses[i], self.poses[j]
        t = r_j @ (c_i - c_j)
        cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
        return np.linalg.inv(k_j).T @ cross @ r_j @ r_i.T @ np.linalg.inv(k_i)

    @one_blas_thread
    def score(self, recipe: Descriptor, matrix: np.ndarray) -> float:
        """The mean share of keypoints matched rightly."""
        values = [whitening.apply(training.plain(view, recipe), matrix) for view in self.views]
        shares = []
        for i in range(len(values)):
            for j in range(i + 1, min(i + 4, len(values))):
                found = neighbours(values[i], values[j], None, 0.0)
                rows = np.flatnonzero(found.mutual)
                p = self.views[i].frames.xy[rows]
                q = self.views[j].frames.xy[found.nearest[rows]]
                x, y = (np.column_stack([v, np.ones(len(v))]) for v in (p, q))
                f = self.fundamental(i, j)
                in_j, in_i = x @ f.T, y @ f
                off = np.abs((y * in_j).sum(1))
                far = np.maximum(off / np.hypot(*in_j.T[:2]), off / np.hypot(*in_i.T[:2]))
                shares.append((far < 1.5).sum() / len(values[i]))
        return float(np.mean(shares))


def work(recipe: Descriptor) -> float:
    """Products a feature."""
    places, points = len(recipe.layout.places()), len(recipe.sampling.points())
    return places * points * (2 * (recipe.harmonics or 6) + 1)


def main() -> None:
    """Search, then score what was found on what took no part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--strecha", type=Path, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    photographs = training.photographs(arguments.photos)
    order = np.random.default_rng(0).permutation(len(photographs))
    train = [training.changed(photographs[i], (k, i)) for k in (1, 2, 3) for i in order[:16]]
    pictures = [training.view(image, 700) for image in training.pictures()]
    fountain = Fountain(arguments.strecha)
    known: dict[str, tuple[float, float, float]] = {}

    def value(numbers: dict[str, Any]) -> float:
        key = json.dumps(numbers, sort_keys=True)
        if key not in known:
            started = time.monotonic()
            recipe = from_numbers(numbers)
            matrix = training.learned(pictures, recipe, numbers["t"], 128)
            synthetic = float(training.score(train, recipe, matrix)[:, 0].mean())
            real = fountain.score(recipe, matrix)
            known[key] = (synthetic, real, synthetic + real - PRICE * math.log2(work(recipe)))
            took = time.monotonic() - started
            print(f"{known[key][2]:.4f} {synthetic:.4f} {real:.4f} {took:4.1f} s {key}", flush=True)
        return known[key][2]

    best, before = dict(START), -math.inf
    while value(best) > before:
        before = value(best)
        for name, options in GRID.items():
            best = max(({**best, name: option} for option in options), key=value)
        print(f"-- a pass: {value(best):.4f} {best}", flush=True)

    held = [training.changed(photographs[i], (k, i)) for k in (1, 2) for i in order[16:32]]

    def on_held(numbers: dict[str, Any]) -> float:
        recipe = from_numbers(numbers)
        matrix = training.learned(pictures, recipe, numbers["t"], 128)
        return round(float(training.score(held, recipe, matrix)[:, 0].mean()), 4)

    synthetic, real, _ = known[json.dumps(best, sort_keys=True)]
    report = {
        "chosen": best,
        "searched": GRID,
        "start": START,
        "evaluated": len(known),
        "scores": {
            "synthetic mAP": round(synthetic, 4),
            "fountain share": round(real, 4),
            "held-out synthetic mAP": on_held(best),
            "held-out synthetic mAP of the start": on_held(START),
        },
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["scores"], indent=1))


if __name__ == "__main__":
    main()
