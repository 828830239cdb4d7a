"""Learn the default descriptor's whitening: the same bytes each time, in half a minute.

    python tools/learn_whitening.py [--supervised]

From the pictures inside the scikit-image package and two synthetic changes of each: images that may
be used for it. Writes src/caloric/data/caloric.npy. The supervised form is there to be compared: on
photographs that took no part it was a tie at best (the accuracy page of the documentation).
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
    """(D, 128), rounded so that the last bits of a machine's arithmetic do not show."""
    chosen = search()["chosen"]
    recipe, t = from_numbers(chosen), chosen["t"]
    pairs = training.pairs_of_pictures()
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
