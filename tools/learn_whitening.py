"""Learn the whitening of the default descriptor (half a minute, reproducible).

    python -m tools.learn_whitening [--supervised]

It is learned from the images of the scikit-image package, which may be used for this purpose, and
two synthetic changes of each. It is written to src/caloric/data/caloric.npy. The supervised variant
is for comparison: on held-out photographs it was not better (see the accuracy page).
"""

import argparse
from pathlib import Path

import numpy as np

from caloric.descriptor import whitening
from caloric.descriptor.recipes import from_numbers, search
from caloric.runtime import threads
from tools import training

DATA = Path(__file__).parents[1] / "src" / "caloric" / "data"
DIMENSION = 128


@threads.single_threaded_blas
def learn(supervised: bool) -> np.ndarray:
    """Return the matrix (D, 128), rounded so that it is the same on all machines."""
    chosen = search()["chosen"]
    recipe, t = from_numbers(chosen), chosen["t"]
    pairs = training.whitening_pairs()
    if supervised:
        a, b = training.matched(pairs, lambda view: training.plain(view, recipe))
        return np.round(whitening.learn_supervised(a, b, t, DIMENSION), 5)
    views = [view for pair in pairs for view in (pair.first, pair.second)]
    return np.round(training.learned(views, recipe, t, DIMENSION), 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--supervised", action="store_true")
    parser.add_argument("--output", type=Path, default=DATA / "caloric.npy")
    arguments = parser.parse_args()
    matrix = learn(arguments.supervised).astype(np.float32)
    np.save(arguments.output, matrix)
    print(f"{arguments.output}: {matrix.shape}, {arguments.output.stat().st_size} bytes")
