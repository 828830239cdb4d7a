"""How far the builds of the core, and the plain path, agree: features of ten photographs, compared.

python tools/builds.py write here.npz            # by every build that this machine has
.cross/aarch64/python tools/builds.py write there.npz      # and by the other platform's
python tools/builds.py compare here.npz there.npz --json docs/results/builds.json
python tools/builds.py page docs/platforms.md
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
from caloric.bench.speed import setting
from caloric.runtime import native

PICTURES = (
    "astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "page",
    "rocket",
)  # fmt: skip
FEATURES = 1000
NEAR = 0.01  # pixels, and as a share of sigma
# What is promised of any two builds and the plain path, of the features of a photograph.
PROMISED = {"worst picture": 0.99, "cosine, lowest in a thousand": 0.9999}
RESULTS = Path(__file__).parents[1] / "docs" / "results"

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


def key(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where a frame is, how large and which way up, in numbers that are near if the frames are."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    turn = maps[:, :, 0] / np.linalg.norm(maps[:, :, 0], axis=1, keepdims=True)
    return np.concatenate([maps[:, :, 2], np.log(sigma)[:, None], turn], 1)


def share(maps: NDArray[np.float64], wanted: NDArray[np.float64], near: float = NEAR) -> float:
    """How many of the wanted frames are among others: place, logarithm of size, direction."""
    return float(np.mean(cKDTree(key(maps)).query(key(wanted), p=np.inf)[0] <= near))


def agreement(a: Arrays, b: Arrays, pictures: Sequence[str] = PICTURES) -> dict[str, float]:
    """Over some pictures: the share of frames that both have, and cosines of descriptors there."""
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
    """Every two builds in the files."""
    builds: dict[str, Arrays] = {}
    for path in paths:
        with np.load(path) as stored:
            for name in stored.files:
                build, rest = name.split("/", 1)
                builds.setdefault(build, {})[rest] = stored[name]
    return {f"{a} and {b}": agreement(builds[a], builds[b]) for a, b in combinations(builds, 2)}


PAGE = """# Platforms

<!-- Written from docs/results by tools/builds.py; edit that instead. -->

Caloric is Python, with a compiled core that is optional everywhere (`pip install ./native .` from a clone, which `make`
does). `caloric info` says which build of the core is in use.

| platform | the core | how it is tested |
|---|---|---|
| Linux, x86-64 | AVX-512 or AVX2, chosen at run time | `make demo` and `make test` on such machines, GCC and Clang |
| Linux, aarch64 | NEON | the core and its tests under emulation (`make cross`), and a GitHub workflow |
| macOS, arm64 | NEON | a GitHub workflow; not tried by us |
| Windows, x86-64 | AVX2, by clang-cl | a GitHub workflow; not tried by us. Collections need Linux or macOS |
| others | `portable`, or none | the portable build is tested on the first two |

What is not to be had everywhere: pycolmap has no wheel for Linux on ARM. A `colmap` executable (Debian: `apt-get install
colmap`) is used there instead; with neither, everything else works, and what needs COLMAP says so before it starts.

## The same bytes

| | what is promised |
|---|---|
| any number of threads | the same bytes, with any build of the core and without it |
| tiles and the whole image | the same bytes, with any build of the core. Without it OpenCV smooths, and what it rounds depends on the position: tiles differ by about 1e-4 |
| AVX2, AVX-512 and NEON, GCC and Clang | every function of the core gives the same bytes for the same input. The source says of each product whether it is rounded before it is added, and no compiler may choose |
| two machines | no more than that: between the core's functions NumPy computes sines and logarithms, which differ in the last digit between processors, so that the features of a photograph agree to that, and as the next row says |
| any two builds, and the plain path | at least {common:.0%} of the frames of a photograph are found by both, within {near} pixels, {near:.0%} of their size and {near} radians; their descriptors have a cosine of at least {cosine}, but for one in a thousand |

Measured on ten photographs that come with scikit-image, {features} features each; aarch64 under emulation:

| | frames that both find | in the worst photograph | cosine, lowest in a thousand | lowest | photographs with the same bytes |
|---|---|---|---|---|---|
{rows}

What is left are extrema that only just pass a limit, or directions that are only just strong enough, in one path and not
in the other. The tests hold every build to the promise, the portable one too, wherever they run.

## Speed on ARM

Emulation has no clock, but it counts. Instructions executed on aarch64 for graf img1 (800 x 640), 2,000 features, one
thread, in millions (`tools/instructions.py`); how long they take on a real processor is still to be measured:

| | OpenCV SIFT | Caloric | ratio |
|---|---|---|---|
| detect and describe | {cv_both:,.0f} | {extract:,.0f} | {ratio_extract:.2f} |
| describe given keypoints | {cv_compute:,.0f} | {describe:,.0f} | {ratio_describe:.2f} |

On x86-64, where there is a clock: [speed](speed.md).
"""


def page() -> str:
    """docs/platforms.md, from the results."""
    compared, counted = (
        json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        for name in ("builds", "instructions")
    )
    rows = [
        f"| {name} | {one['frames of both']:.3%} | {one['worst picture']:.2%} "
        f"| {one['cosine, lowest in a thousand']:.6f} | {one['lowest cosine']:.4f} "
        f"| {one['pictures with the same bytes']:.0f} of {len(PICTURES)} |"
        for name, one in compared.items()
    ]
    both, alone = counted["OpenCV detectAndCompute"], counted["OpenCV compute"]
    return PAGE.format(
        near=NEAR, common=PROMISED["worst picture"],
        cosine=PROMISED["cosine, lowest in a thousand"], features=f"{FEATURES:,}",
        rows="\n".join(rows), cv_both=both, cv_compute=alone, extract=counted["extract"],
        describe=counted["describe"], ratio_extract=counted["extract"] / both,
        ratio_describe=counted["describe"] / alone,
    )  # fmt: skip


def main() -> None:
    """See above."""
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
