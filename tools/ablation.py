"""What each part of the default descriptor is worth, on data that took no part in choosing it.

    python tools/ablation.py --photos PHOTOS --strecha STRECHA/Herz-Jesus-P8 --output FILE.json

One thing is changed at a time. mAP is on 32 synthetic changes of the 16 photographs that the choice
did not see; the other figure is the share of keypoints rightly matched on a scene it did not see.
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
from caloric.descriptor import normalise, whitening
from caloric.descriptor.recipes import Descriptor, from_numbers, search
from caloric.kernels import kernel
from caloric.runtime import threads
from tools import training

Values = NDArray[np.float32]
Plain = Callable[[training.View], Values]
T = search()["chosen"]["t"]


def of(recipe: Descriptor) -> Plain:
    """What a recipe sees, before whitening."""
    return lambda view: training.plain(view, recipe)


def both(first: Plain, second: Plain) -> Plain:
    """Two descriptors side by side."""
    return lambda view: np.concatenate([first(view), second(view)], 1)


def whiten(plain: Plain, views: list[training.View], t: float = T) -> Plain:
    """Whitened to 128 dimensions as the default is."""
    matrix = whitening.learn(np.concatenate([plain(v) for v in views]), t, 128)
    return lambda view: np.asarray(whitening.apply(plain(view), matrix), np.float32)


def supervise(plain: Plain, pairs: list[training.Views], t: float, shrink: float) -> Plain:
    """Whitened by matched pairs."""
    a, b = training.matched(pairs, plain)
    matrix = whitening.learn_supervised(a, b, t, 128, shrink)
    return lambda view: np.asarray(whitening.apply(plain(view), matrix), np.float32)


def bent(plain: Plain, power: float) -> Plain:
    """A second normalisation: entries to a power, signs kept."""

    def values(view: training.View) -> Values:
        x = plain(view)
        return np.asarray(normalise.l2(np.sign(x) * np.abs(x) ** np.float32(power)), np.float32)

    return values


def variants(views: list[training.View], pairs: list[training.Views]) -> dict[str, Plain]:
    """All of them, by what is changed."""
    chosen = from_numbers(search()["chosen"])
    wide = {"sigma_d": chosen.kernel.sigma_d, "growth": chosen.kernel.growth}

    def made(**changes: Any) -> Plain:
        return of(replace(chosen, **changes))

    heat = made(kernel=kernel("heat", sigma_d=0.8, growth=0.25, sigma_a=0.5))
    sift = made(kernel=kernel("sift", **wide, sigma_r=0.6))
    numbers, start = search()["chosen"], search()["start"]
    return {
        "as chosen": whiten(made(), views),
        "before the search": whiten(of(from_numbers(start)), views, start["t"]),
        "not whitened": made(),
        "whitened by matched pairs, t 0.5": supervise(made(), pairs, 0.5, 0.3),
        "whitened by matched pairs, t 0": supervise(made(), pairs, 0.0, 0.3),
        "then entries to the power 0.85": bent(whiten(made(), views), 0.85),
        "weights |g| as in the theory": whiten(made(power=1.0), views),
        "no diffusion over scale": whiten(of(from_numbers({**numbers, "sigma_s": 0.0})), views),
        "heat kernel (its widths not searched for)": whiten(heat, views),
        "sift kernel": whiten(sift, views),
        "heat and similarity together": whiten(both(made(), heat), views),
        "unit length instead of roots": whiten(made(normalisation="l2"), views),
        "samples to 20 σ": whiten(of(from_numbers({**numbers, "reach": 20.0})), views),
    }


@threads.single_threaded_blas
def main() -> None:
    """Score them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--strecha", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    held = training.held_out(training.photographs(arguments.photos))
    scene = training.Scene(arguments.strecha)
    pairs = [pair for pair in training.pairs_of_pictures() if len(pair.truth)]
    views = [view for pair in pairs for view in (pair.first, pair.second)]
    report: dict[str, Any] = {}
    base: NDArray[np.float64] | None = None
    for name, values in variants(views, pairs).items():
        precision = np.array([training.score(p, values(p.first), values(p.second)) for p in held])
        base = precision if base is None else base
        gap = bootstrap(precision - base)
        share = scene.score([values(view) for view in scene.views])
        report[name] = {"mAP": float(precision.mean()), "against chosen": vars(gap), "share": share}
        print(f"{name:34} {precision.mean():.4f} {gap} {share:.4f}", flush=True)
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
