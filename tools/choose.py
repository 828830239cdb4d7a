"""Choose the parameters of the default descriptor, without using Oxford Affine.

    python -m tools.choose --photos PHOTOS --strecha STRECHA/fountain-P11

A seeded coordinate search (five minutes with the compiled core) maximizes the sum of

* mAP on 48 synthetic changes (viewpoint, illumination, blur, noise, JPEG) of 16 photographs, and
* the share of keypoints of fountain-P11 with a mutual nearest neighbor within 1.5 pixels of the
  epipolar line, for images one to three apart,

minus PRICE for every doubling of the cost. Whitening is learned from the images of scikit-image.
The default descriptor reads the result, src/caloric/data/caloric.json: the chosen values, the
search grid, and the scores, including those on 16 held-out photographs.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.recipes import Descriptor, from_numbers
from tools import training

OUT = Path(__file__).parents[1] / "src" / "caloric" / "data" / "caloric.json"
PRICE = 0.004
START: dict[str, Any] = {
    "sigma_d": 0.8, "growth": 0.4, "sigma_r": 0.6, "sigma_s": 0.4,
    "radii": [0.0, 1.0, 2.0, 4.0, 8.0, 16.0], "angles": 6, "directions": 8,
    "reach": 40.0, "finest": 0.6, "pitch": 0.15, "power": 0.3, "harmonics": 4, "t": 0.8,
}  # fmt: skip
GRID: dict[str, list[Any]] = {
    "pitch": [0.15, 0.175, 0.2, 0.225, 0.25],
    "finest": [0.5, 0.6, 0.7, 0.8],
    "harmonics": [3, 4, 5],
    "reach": [30.0, 40.0, 50.0, 60.0],
    "radii": [
        [0.0, 1.0, 2.0, 4.0, 8.0, 16.0], [0.0, 1.0, 2.0, 4.0, 8.0], [0.0, 1.0, 2.5, 6.0, 15.0],
        [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0], [0.0, 1.5, 4.0, 10.0, 20.0],
        [0.0, 1.0, 2.2, 4.8, 10.0, 20.0], [0.0, 0.8, 1.8, 4.0, 9.0, 18.0],
        [0.0, 1.2, 3.0, 7.0, 16.0],
    ],
    "angles": [4, 5, 6, 8],
    "directions": [6, 8, 10],
    "power": [0.2, 0.25, 0.3, 0.35, 0.4],
    "sigma_d": [0.4, 0.5, 0.6, 0.8, 1.0],
    "growth": [0.35, 0.4, 0.45, 0.5, 0.55, 0.6],
    "sigma_s": [0.3, 0.4, 0.5],
    "sigma_r": [0.5, 0.6, 0.7, 0.8],
    "t": [0.7, 0.75, 0.8, 0.85, 0.9, 1.0],
}  # fmt: skip


def work(recipe: Descriptor) -> float:
    """Return the number of multiplications per feature."""
    positions, points = len(recipe.layout.positions()), len(recipe.sampling.points())
    return positions * points * (2 * (recipe.harmonics or 6) + 1)


def mean_precision(
    pairs: list[training.Views], recipe: Descriptor, matrix: NDArray[np.float32]
) -> float:
    """Return the mAP over pairs."""
    scores = [
        training.score(
            pair,
            training.whitened(pair.first, recipe, matrix),
            training.whitened(pair.second, recipe, matrix),
        )
        for pair in pairs
    ]
    return float(np.mean(scores))


def main() -> None:
    """Search, then evaluate the result on held-out photographs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--strecha", type=Path, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    photographs = training.photographs(arguments.photos)
    train = training.for_choosing(photographs)
    sample_views = [training.view(image, 700) for image in training.sample_images()]
    fountain = training.Scene(arguments.strecha)
    evaluated: dict[str, tuple[float, float, float]] = {}

    def value(numbers: dict[str, Any]) -> float:
        key = json.dumps(numbers, sort_keys=True)
        if key not in evaluated:
            started = time.monotonic()
            recipe = from_numbers(numbers)
            matrix = training.learned(sample_views, recipe, numbers["t"], 128)
            synthetic = mean_precision(train, recipe, matrix)
            real = fountain.score([training.whitened(v, recipe, matrix) for v in fountain.views])
            evaluated[key] = (synthetic, real, synthetic + real - PRICE * math.log2(work(recipe)))
            elapsed = time.monotonic() - started
            print(
                f"{evaluated[key][2]:.4f} {synthetic:.4f} {real:.4f} {elapsed:4.1f} s {key}",
                flush=True,
            )
        return evaluated[key][2]

    best, previous = dict(START), -math.inf
    while value(best) > previous:
        previous = value(best)
        for name, options in GRID.items():
            best = max(({**best, name: option} for option in options), key=value)
        print(f"-- pass finished: {value(best):.4f} {best}", flush=True)

    held_out = training.held_out(photographs)

    def held_out_score(numbers: dict[str, Any]) -> float:
        recipe = from_numbers(numbers)
        matrix = training.learned(sample_views, recipe, numbers["t"], 128)
        return round(mean_precision(held_out, recipe, matrix), 4)

    synthetic, real, _ = evaluated[json.dumps(best, sort_keys=True)]
    report = {
        "chosen": best,
        "searched": GRID,
        "start": START,
        "evaluated": len(evaluated),
        "scores": {
            "synthetic mAP": round(synthetic, 4),
            "fountain share": round(real, 4),
            "held-out synthetic mAP": held_out_score(best),
            "held-out synthetic mAP of the start": held_out_score(START),
        },
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["scores"], indent=1))


if __name__ == "__main__":
    main()
