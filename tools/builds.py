"""How far the builds of the core, and the plain path, agree: features of ten photographs, compared.

    python tools/builds.py write here.npz            # by every build that this machine has
    python tools/builds.py compare here.npz there.npz [--json FILE]

``make cross`` writes the other platform's file. What is promised is in docs/platforms.md.
"""

import argparse
import json
import platform
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from skimage import data

import caloric
from caloric import native
from caloric.benchmarks.speed import setting

PICTURES = (
    "astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "page",
    "rocket",
)  # fmt: skip
FEATURES = 1000
NEAR = 0.01  # pixels, and as a share of sigma

Arrays = dict[str, NDArray[Any]]


def write(path: Path) -> None:
    """Frames and descriptors of every picture by every build: "kind/picture/maps" and so on."""
    import caloric_native

    arrays: Arrays = {}
    # "portable" is for processors that nobody has named yet: it is compared in the tests.
    kinds = [kind for kind in caloric_native.kinds() if kind != "portable"]
    for kind in (*kinds, "0"):
        name = f"{platform.machine()} {'plain' if kind == '0' else kind}"
        with setting(**{native.SETTING: kind}):
            for picture in PICTURES:
                print(f"{name}: {picture}", file=sys.stderr, flush=True)
                image = getattr(data, picture)()
                found = caloric.extract(image, max_features=FEATURES)
                arrays[f"{name}/{picture}/maps"] = found.frames.maps
                arrays[f"{name}/{picture}/descriptors"] = found.descriptors
    caloric_native.use(caloric_native.kinds()[0])
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _key(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where a frame is, how large and which way up, in numbers that are near if the frames are."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    turn = maps[:, :, 0] / np.linalg.norm(maps[:, :, 0], axis=1, keepdims=True)
    return np.concatenate([maps[:, :, 2], np.log(sigma)[:, None], turn], 1)


def agreement(a: Arrays, b: Arrays) -> dict[str, float]:
    """Over all pictures: the share of frames that both have, and cosines of descriptors there."""
    shares, cosines, equal = [], [], []
    for picture in PICTURES:
        one, other = a[f"{picture}/maps"], b[f"{picture}/maps"]
        apart, nearest = cKDTree(_key(other)).query(_key(one), p=np.inf)
        common = apart <= NEAR
        shares.append(common)
        x, y = a[f"{picture}/descriptors"][common], b[f"{picture}/descriptors"][nearest[common]]
        cosines.append((x.astype(np.float64) * y).sum(1) / np.linalg.norm(x, axis=1))
        equal.append(one.tobytes() == other.tobytes() and x.tobytes() == y.tobytes())
    every = np.concatenate(cosines)
    return {
        "frames of both": float(np.concatenate(shares).mean()),
        "worst picture": float(min(share.mean() for share in shares)),
        "lowest cosine": float(every.min()),
        "cosine, lowest in a thousand": float(np.quantile(every, 1e-3)),
        "pictures with the same bytes": float(sum(equal)),
    }


def compare(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Every two builds in the files."""
    builds: dict[str, Arrays] = {}
    for path in paths:
        with np.load(path) as stored:
            for name in stored.files:
                build, rest = name.split("/", 1)
                builds.setdefault(build, {})[rest] = stored[name]
    return {f"{a} and {b}": agreement(builds[a], builds[b]) for a, b in combinations(builds, 2)}


def main() -> None:
    """See above."""
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
