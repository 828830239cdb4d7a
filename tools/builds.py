"""Compare the builds of the core and the plain path: features of ten photographs.

python -m tools.builds write here.npz                       # every build of this machine
.cross/aarch64/python -m tools.builds write there.npz       # and of the other platform
python -m tools.builds compare here.npz there.npz --json docs/results/builds.json
python -m tools.builds page docs/platforms.md
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

PICTURES = (
    "astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "page",
    "rocket",
)  # fmt: skip
FEATURES = 1000
NEAR = 0.01  # pixels, share of sigma, radians
# What is promised for the features of a photograph, between any two builds and the plain path.
PROMISED = {"worst picture": 0.99, "cosine, lowest in a thousand": 0.9999}
RESULTS = Path(__file__).parents[1] / "docs" / "results"

Arrays = dict[str, NDArray[Any]]


def write(path: Path) -> None:
    """Write frames and descriptors of every picture by every build, as "kind/picture/maps"."""
    import caloric_native

    arrays: Arrays = {}
    # "portable" is for processors without a build of their own: the tests compare it.
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


def key(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n, 5) position, log of sigma and direction: similar frames have similar rows."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    turn = maps[:, :, 0] / np.linalg.norm(maps[:, :, 0], axis=1, keepdims=True)
    return np.concatenate([maps[:, :, 2], np.log(sigma)[:, None], turn], 1)


def share(maps: NDArray[np.float64], wanted: NDArray[np.float64], near: float = NEAR) -> float:
    """Return the share of the wanted frames that have a frame of ``maps`` within ``near``."""
    return float(np.mean(cKDTree(key(maps)).query(key(wanted), p=np.inf)[0] <= near))


def agreement(a: Arrays, b: Arrays, pictures: Sequence[str] = PICTURES) -> dict[str, float]:
    """Return the shares of common frames, and cosines of their descriptors, over pictures."""
    shares, cosines, equal = [], [], []
    for picture in pictures:
        one, other = a[f"{picture}/maps"], b[f"{picture}/maps"]
        apart, nearest = cKDTree(key(other)).query(key(one), p=np.inf)
        common = apart <= NEAR
        shares.append(min(share(other, one), share(one, other)))
        x, y = a[f"{picture}/descriptors"][common], b[f"{picture}/descriptors"][nearest[common]]
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
        cosines.append((x.astype(np.float64) * y).sum(1) / lengths)
        equal.append(one.tobytes() == other.tobytes() and x.tobytes() == y.tobytes())
    every = np.concatenate(cosines)
    return {
        "frames of both": float(np.mean(shares)),
        "worst picture": float(min(shares)),
        "lowest cosine": float(every.min()),
        "cosine, lowest in a thousand": float(np.quantile(every, 1e-3)),
        "pictures with the same bytes": float(sum(equal)),
    }


def compare(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Return the agreement of every two builds in the files."""
    builds: dict[str, Arrays] = {}
    for path in paths:
        with np.load(path) as stored:
            for name in stored.files:
                build, rest = name.split("/", 1)
                builds.setdefault(build, {})[rest] = stored[name]
    return {f"{a} and {b}": agreement(builds[a], builds[b]) for a, b in combinations(builds, 2)}


PAGE = """# Platforms

<!-- Written by `python -m tools.builds page`; edit tools/builds.py instead. -->

Caloric is written in Python. It has a compiled core, which is optional on every platform (`pip install ./native .` from a
clone; `make` does this). `caloric info` shows which build of the core is in use.

| platform | builds of the core | tests |
|---|---|---|
| Linux, x86-64 | AVX-512 or AVX2, selected at run time | `make demo` and `make test` on such machines, with GCC and Clang |
| Linux, aarch64 | NEON | `make demo` and `make test` on such a machine, with GCC |
| macOS, arm64 | NEON | a GitHub workflow; we have not tried it |
| Windows, x86-64 | AVX2, compiled with clang-cl | a GitHub workflow; we have not tried it. Collections need Linux or macOS |
| others | `portable`, or none | the portable build is tested on the first two platforms |

One dependency is not available on every platform: pycolmap has no wheel for Linux on ARM. There Caloric uses a `colmap`
executable instead (Debian: `apt-get install colmap`). With neither, everything else works, and commands that need COLMAP
report the problem before they start.

## Reproducibility

| between | promise |
|---|---|
| any number of threads | the same bytes, with any build of the core and without it |
| tiles and the whole image | the same bytes, with any build of the core. Without the core OpenCV does the smoothing, and its rounding depends on the position: tiles differ by about 1e-4 |
| AVX2, AVX-512 and NEON, GCC and Clang | every function of the core gives the same bytes for the same input. The source states for each product whether it is rounded before it is added; the compiler may not choose |
| two machines | the functions of the core give the same bytes, as above. Between these functions NumPy computes sines and logarithms, whose last digit differs between processors. The features of a photograph therefore agree up to this difference, and as the next row says |
| any two builds, and the plain path | both find at least {common:.0%} of the frames of a photograph, within {near} pixels, {near:.0%} of their size and {near} radians. The descriptors of these frames have a cosine of at least {cosine}, except for one in a thousand |

This table was measured on ten photographs from scikit-image with {features} features each, on machines of both kinds:

| builds | frames that both find | in the worst photograph | cosine, lowest in a thousand | lowest cosine | photographs with the same bytes |
|---|---|---|---|---|---|
{rows}

The remaining differences are extrema that barely pass a threshold, or orientations that are barely strong enough, in one
path and not in the other. The tests check this promise for every build, including the portable one, on every machine
where they run.

## Speed on ARM

Measured by `caloric bench speed` on {processor} ({cores} cores), with graf img1 (800 x 640) and 2,000 features. Numbers are
the time of Caloric divided by that of the other library, which runs in turn with it; below 1 Caloric is faster.

| | beside | 1 thread | 2 threads |
|---|---|---|---|
{times}

For times on x86-64 see [speed](speed.md).
"""


def page() -> str:
    """Return the text of docs/platforms.md, from the results."""
    compared, speed = (
        json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        for name in ("builds", "speed-arm")
    )
    times = []
    for task in ("extract", "detect", "describe", "match"):
        ratios = [speed["threads"][n][task]["caloric, core"]["ratio"] for n in ("1", "2")]
        beside = next(iter(speed["threads"]["1"][task]))
        times.append(f"| {task} | {beside} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    rows = [
        f"| {name} | {one['frames of both']:.3%} | {one['worst picture']:.2%} "
        f"| {one['cosine, lowest in a thousand']:.6f} | {one['lowest cosine']:.4f} "
        f"| {one['pictures with the same bytes']:.0f} of {len(PICTURES)} |"
        for name, one in compared.items()
    ]
    return PAGE.format(
        near=NEAR, common=PROMISED["worst picture"],
        cosine=PROMISED["cosine, lowest in a thousand"], features=f"{FEATURES:,}",
        rows="\n".join(rows), times="\n".join(times),
        processor=speed["machine"]["processor"], cores=speed["machine"]["cores"],
    )  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("write", "compare", "page"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.files[0])
        return
    if arguments.command == "page":
        arguments.files[0].write_text(page(), encoding="utf-8")
        return
    result = compare(arguments.files)
    for name, numbers in result.items():
        print(name + ": " + ", ".join(f"{k} {v:.6g}" for k, v in numbers.items()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
