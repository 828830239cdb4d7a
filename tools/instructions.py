"""Count the instructions that the other platform executes for an image, under emulation.

    make cross && python -m tools.instructions IMAGE [--json docs/results/instructions.json]

Emulation gives no times, but instruction counts: they show what a change of the core costs or saves
on the other platform. It needs the setup of ``make cross``, and takes a quarter of an hour.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tools.cross import other

FEATURES = 2000
# The measured code, with ``image``, ``sift`` (of OpenCV), ``keypoints`` and ``frames`` defined.
CALLS = {
    "OpenCV detectAndCompute": "sift.detectAndCompute(image, None)",
    "extract": f"caloric.extract(image, max_features={FEATURES})",
    "OpenCV compute": "sift.compute(image, keypoints)",
    "describe": "caloric.describe(image, frames)",
}
PROGRAM = f"""
import sys
import cv2
import caloric
cv2.setNumThreads(1)
image = cv2.imread(sys.argv[1], 0)
sift = cv2.SIFT_create({FEATURES})
keypoints = sift.detect(image, None)
frames = caloric.Frames.from_opencv(keypoints)
for _ in range(int(sys.argv[3])):
    eval(sys.argv[2])
"""


def executed(image: Path, call: str, times: int, plugin: Path) -> int:
    """Return the number of instructions of a process that makes the call ``times`` times."""
    target = other()
    lines = (target.folder / "python").read_text(encoding="utf-8").splitlines()
    words = lines[-1].removeprefix("exec ").removesuffix(' "$@"').split()
    paths = re.search(r'PYTHONPATH="([^"]*)"', lines[1])
    assert paths is not None
    environment = {
        **os.environ, "PYTHONPATH": paths[1], "CALORIC_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    command = [words[0], "-plugin", str(plugin), *words[1:], "-c", PROGRAM]
    result = subprocess.run(
        [*command, str(image), call, str(times)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    match = re.search(r"instructions: (\d+)", result.stderr)
    if result.returncode or match is None:
        sys.exit(result.stderr[-2000:])
    return int(match[1])


def main() -> None:
    """Count, print and write the instructions of all calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    target = other()
    plugin = target.folder / "instructions.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", plugin, source], check=True)
    result: dict[str, float | str] = {"platform": target.machine, "features": FEATURES}
    for name, call in CALLS.items():
        # The first call builds cached tables: the second is the cost of an image.
        once, twice = (executed(arguments.image, call, times, plugin) for times in (1, 2))
        result[name] = round((twice - once) / 1e6, 1)
        print(f"{name}: {result[name]} million", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
