"""Write descriptors.npz and pipeline.npz beside this file: what users have stored, and rely on.

Run it only when results are meant to change, and say so in the CHANGELOG:
``python tests/golden/make.py``. tests/test_golden.py holds every path to them.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import caloric
import photographs
from caloric.kernels import KERNELS

DEFAULTS = ("caloric", "caloric-64", "caloric-unlearned")
FEATURES = 400
MOVED = photographs.similarity(0.9, 12.0, (5.0, -3.0), (256.0, 256.0))
CORNER, SIDE = (190, 140), 128  # of the template: column and row


def patches() -> np.ndarray:
    """Three 16 x 16 uint8 patches: an edge with a corner, a blob, and noise."""
    y, x = np.mgrid[-1:1:16j, -1:1:16j]
    corner = ((x > -0.2) & (y > 0.1)) * 0.8 + 0.1
    blob = np.exp(-((x - 0.2) ** 2 + 2 * (y + 0.1) ** 2) / 0.3)
    noise = np.random.default_rng(0).random((16, 16))
    return np.rint(255 * np.array([corner, blob, noise])).astype(np.uint8)


def images() -> tuple[np.ndarray, np.ndarray]:
    """A photograph, and the same turned, shrunk and moved."""
    image = photographs.grey("camera")
    return image, photographs.warp(image, MOVED)


def template() -> np.ndarray:
    """A part of the photograph, to be found in the moved one."""
    (x, y), image = CORNER, images()[0]
    return image[y : y + SIDE, x : x + SIDE]


def frames() -> caloric.Frames:
    """Frames as anybody may bring them: round, sheared, turned, mirrored, at the rim and beyond."""
    rng = np.random.default_rng(0)
    count = 80
    maps = rng.integers(-64, 65, (count, 2, 3)) / 16
    maps[:, 0, 0] += 5.0
    maps[:, 1, 1] += 5.0 * rng.choice([-1, 1], count)
    maps[:, :, :2] *= 2.0 ** rng.integers(-1, 3, count)[:, None, None]
    maps[:, :, 2] = rng.integers(-20, 532, (count, 2)) + rng.integers(0, 16, (count, 2)) / 16
    return caloric.Frames(maps, np.zeros(count))


def pipeline() -> dict[str, np.ndarray]:
    """Every stage from pixels to geometry."""
    a, b = images()
    features = [caloric.extract(image, max_features=FEATURES) for image in (a, b)]
    matches = caloric.match(*features)
    made = {
        "image_b": b,  # kept: OpenCV's own warps differ between processors
        "found_maps": features[0].frames.maps,
        "found_scores": features[0].frames.scores,
        "points_a": features[0].frames.xy[matches.indices[:, 0]],
        "points_b": features[1].frames.xy[matches.indices[:, 1]],
        "distances": matches.distances,
        "homography": caloric.verify(*features, matches).matrix,
        "affine_maps": caloric.detect(a, max_features=FEATURES, affine=True).maps,
        "alignment": caloric.align(template(), b).transform,
    }
    for name in DEFAULTS:
        made[f"descriptors {name}"] = caloric.describe(a, frames(), name)
    return made


if __name__ == "__main__":
    here = Path(__file__).parent
    by_patch = {name: caloric.describe_patches(patches(), name) for name in KERNELS}
    np.savez_compressed(here / "descriptors.npz", patches=patches(), **by_patch)
    np.savez_compressed(here / "pipeline.npz", **pipeline())
