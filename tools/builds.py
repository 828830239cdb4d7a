"""Compare features of ten photographs between builds of the compiled core and NumPy code.

python -m tools.builds write x86.npz                      # all builds for this machine
.cross/aarch64/bin/python -m tools.builds write arm.npz   # all builds for the other platform
python -m tools.builds compare x86.npz arm.npz --json docs/results/builds.json
python -m tools pages
"""

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from skimage import data

import caloric
from caloric.bench.speed_contenders import setting
from caloric.runtime import native

IMAGES = (
    "astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "page",
    "rocket",
)  # fmt: skip
FEATURES = 1000
NEAR = 0.01  # pixels, relative to sigma, radians
# Minimum agreement, stated in docs/platforms.md, between any two builds or a build and NumPy.
# Rounding of σ may change the level that a frame is read from. Between the core and NumPy, on four
# photographs with 2,000 features, the lowest cosine in a thousand is 0.9989.
PROMISED = {"worst image": 0.99, "cosine, lowest in a thousand": 0.9985}

Arrays = dict[str, NDArray[Any]]


def distinct(kinds: list[str]) -> list[str]:
    """Return one kind per build: kinds for int8 products differ only in the search for neighbors."""
    return [kind for kind in kinds if "-" not in kind]


def write(path: Path) -> None:
    """Write frames and descriptors of each image and build to a file, as "build/image/maps"."""
    import caloric_native

    arrays: Arrays = {}
    # The tests compare "portable", the build for all other processors.
    kinds = [kind for kind in distinct(caloric_native.kinds()) if kind != "portable"]
    for kind in (*kinds, "0"):
        name = f"{platform.machine()} {'plain' if kind == '0' else kind}"
        with setting(**{native.SETTING: kind}):
            for image_name in IMAGES:
                print(f"{name}: {image_name}", file=sys.stderr, flush=True)
                image = getattr(data, image_name)()
                features = caloric.extract(image, max_features=FEATURES)
                arrays[f"{name}/{image_name}/maps"] = features.frames.maps
                arrays[f"{name}/{image_name}/descriptors"] = features.descriptors
    caloric_native.use(caloric_native.kinds()[0])
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def key(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return position, log of sigma and orientation vector (n, 5); similar frames have similar rows."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    direction = maps[:, :, 0] / np.linalg.norm(maps[:, :, 0], axis=1, keepdims=True)
    return np.concatenate([maps[:, :, 2], np.log(sigma)[:, None], direction], 1)


def share(maps: NDArray[np.float64], expected: NDArray[np.float64], near: float = NEAR) -> float:
    """Return the share of expected frames that have a frame of ``maps`` within ``near``."""
    return float(np.mean(cKDTree(key(maps)).query(key(expected), p=np.inf)[0] <= near))


def agreement(a: Arrays, b: Arrays, images: Sequence[str] = IMAGES) -> dict[str, float]:
    """Return the shares of common frames, and the cosines of their descriptors, over images."""
    shares, cosines, equal = [], [], []
    for image in images:
        one, other = a[f"{image}/maps"], b[f"{image}/maps"]
        distances, nearest = cKDTree(key(other)).query(key(one), p=np.inf)
        common = distances <= NEAR
        shares.append(min(share(other, one), share(one, other)))
        x, y = a[f"{image}/descriptors"][common], b[f"{image}/descriptors"][nearest[common]]
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        cosines.append((x.astype(np.float64) * y).sum(1) / lengths)
        equal.append(one.tobytes() == other.tobytes() and x.tobytes() == y.tobytes())
    all_cosines = np.concatenate(cosines)
    return {
        "frames of both": float(np.mean(shares)),
        "worst image": float(min(shares)),
        "lowest cosine": float(all_cosines.min()),
        "cosine, lowest in a thousand": float(np.quantile(all_cosines, 1e-3)),
        "bit-identical images": float(sum(equal)),
    }


def compare(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Return the agreement of each pair of builds in the files."""
    builds: dict[str, Arrays] = {}
    for path in paths:
        with np.load(path) as stored:
            for name in stored.files:
                build, rest = name.split("/", 1)
                builds.setdefault(build, {})[rest] = stored[name]
    return {f"{a} and {b}": agreement(builds[a], builds[b]) for a, b in combinations(builds, 2)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.files[0])
        return
    result = compare(arguments.files)
    for name, numbers in result.items():
        print(name + ": " + ", ".join(f"{k} {v:.6g}" for k, v in numbers.items()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
