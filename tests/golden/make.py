"""Write descriptors.npz beside this file. Run it only when descriptors are meant to change, and say
so in the CHANGELOG: ``python tests/golden/make.py``."""

from pathlib import Path

import numpy as np

import caloric
from caloric.kernels import KERNELS


def patches() -> np.ndarray:
    """Three 16 x 16 uint8 patches: an edge with a corner, a blob, and noise."""
    y, x = np.mgrid[-1:1:16j, -1:1:16j]
    corner = ((x > -0.2) & (y > 0.1)) * 0.8 + 0.1
    blob = np.exp(-((x - 0.2) ** 2 + 2 * (y + 0.1) ** 2) / 0.3)
    noise = np.random.default_rng(0).random((16, 16))
    return np.rint(255 * np.array([corner, blob, noise])).astype(np.uint8)


if __name__ == "__main__":
    made = {name: caloric.describe_patches(patches(), name) for name in KERNELS}
    np.savez_compressed(Path(__file__).with_name("descriptors.npz"), patches=patches(), **made)
