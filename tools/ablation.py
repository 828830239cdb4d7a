"""Ablation of the default descriptor, on data that was not used to choose it.

    python -m tools.ablation --photos PHOTOS --strecha STRECHA/Herz-Jesus-P8 --output FILE.json

One thing is changed at a time. The report has the mAP over 32 synthetic changes of 16 photographs,
and the share of correctly matched keypoints of a scene.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.bench.metrics import bootstrap
from caloric.descriptor import normalize, whitening
from caloric.descriptor.recipes import Descriptor, from_numbers, search
from caloric.kernels import kernel
from caloric.runtime import threads
from tools import training

Values = NDArray[np.float32]
Describe = Callable[[training.View], Values]
T = search()["chosen"]["t"]


def unwhitened(recipe: Descriptor) -> Describe:
    """Return the descriptor of a recipe without whitening."""
    return lambda view: training.plain(view, recipe)


def concatenated(first: Describe, second: Describe) -> Describe:
    """Return the concatenation of two descriptors."""
    return lambda view: np.concatenate([first(view), second(view)], 1)


def whiten(describe: Describe, views: list[training.View], t: float = T) -> Describe:
    """Return a descriptor whitened to 128 dimensions, as the default is."""
    matrix = whitening.learn(np.concatenate([describe(v) for v in views]), t, 128)
    return lambda view: np.asarray(whitening.apply(describe(view), matrix), np.float32)


def supervise(describe: Describe, pairs: list[training.Views], t: float, shrink: float) -> Describe:
    """Return a descriptor with supervised whitening, learned from matched pairs."""
    a, b = training.matched(pairs, describe)
    matrix = whitening.learn_supervised(a, b, t, 128, shrink)
    return lambda view: np.asarray(whitening.apply(describe(view), matrix), np.float32)


def to_power(describe: Describe, power: float) -> Describe:
    """Return a descriptor with signed powers of its entries, normalized again."""

    def values(view: training.View) -> Values:
        x = describe(view)
        return np.asarray(normalize.l2(np.sign(x) * np.abs(x) ** np.float32(power)), np.float32)

    return values


def variants(views: list[training.View], pairs: list[training.Views]) -> dict[str, Describe]:
    """Return all variants by name."""
    chosen = from_numbers(search()["chosen"])
    widths = {"sigma_d": chosen.kernel.sigma_d, "growth": chosen.kernel.growth}

    def changed(**changes: Any) -> Describe:
        return unwhitened(replace(chosen, **changes))

    heat = changed(kernel=kernel("heat", sigma_d=0.8, growth=0.25, sigma_a=0.5))
    sift = changed(kernel=kernel("sift", **widths, sigma_r=0.6))
    numbers, start = search()["chosen"], search()["start"]
    return {
        "default": whiten(changed(), views),
        "starting point of the search": whiten(unwhitened(from_numbers(start)), views, start["t"]),
        "not whitened": changed(),
        "supervised whitening, t 0.5": supervise(changed(), pairs, 0.5, 0.3),
        "supervised whitening, t 0": supervise(changed(), pairs, 0.0, 0.3),
        "whitened entries to the power 0.85": to_power(whiten(changed(), views), 0.85),
        "gradient weights |g|, as in the theory": whiten(changed(power=1.0), views),
        "no diffusion over scale": whiten(
            unwhitened(from_numbers({**numbers, "sigma_s": 0.0})), views
        ),
        "heat kernel (widths not optimized)": whiten(heat, views),
        "sift kernel": whiten(sift, views),
        "heat and similarity concatenated": whiten(concatenated(changed(), heat), views),
        "L2 normalization instead of root": whiten(changed(normalisation="l2"), views),
        "samples up to 20 σ": whiten(unwhitened(from_numbers({**numbers, "reach": 20.0})), views),
    }


@threads.single_threaded_blas
def main() -> None:
    """Evaluate all variants and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--strecha", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    held_out = training.held_out(training.photographs(arguments.photos))
    scene = training.Scene(arguments.strecha)
    pairs = [pair for pair in training.whitening_pairs() if len(pair.truth)]
    views = [view for pair in pairs for view in (pair.first, pair.second)]
    report: dict[str, Any] = {}
    base: NDArray[np.float64] | None = None
    for name, describe in variants(views, pairs).items():
        precision = np.array(
            [training.score(p, describe(p.first), describe(p.second)) for p in held_out]
        )
        base = precision if base is None else base
        gap = bootstrap(precision - base)
        share = scene.score([describe(view) for view in scene.views])
        report[name] = {"mAP": float(precision.mean()), "against chosen": vars(gap), "share": share}
        print(f"{name:34} {precision.mean():.4f} {gap} {share:.4f}", flush=True)
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
