"""``python -m tools cost``: CPU time of a collection before COLMAP's mapper, and of COLMAP's SIFT.

Caloric's steps run with one pool of workers, as in ``caloric collection run``; COLMAP extracts and
matches all pairs with its defaults (pycolmap, or the executable). Each run is a process, whose CPU
time includes that of all its workers.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from caloric import collection
from caloric.bench.report import versions
from caloric.bench.speed import processor
from caloric.collection import defaults, sources, workflow
from caloric.collection.engines import Workers
from caloric.errors import InputError
from caloric.interop import colmap
from caloric.runtime import native, threads
from caloric.types import Log, Report
from tools.pages.markdown import table
from tools.registration import extract_and_match

_COLMAP = "COLMAP SIFT"
_COMMAND = [sys.executable, "-m", "tools.cost"]
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux


def _caloric(images: Path, store: Path) -> None:
    """Run all steps up to the export."""
    resolved = workflow.checked_workers(defaults.OPTIONS, Workers(device="cpu"))
    with workflow.running_workers(store, resolved) as workers:
        collection.extract(images, store, workers=workers)
        collection.match(store, workers=workers)
        collection.verify(store, workers=workers)
        collection.refine(images, store, workers=workers)
    collection.export(store, images=images)


def _run(method: str, images: str, work: str) -> None:
    if method == _COLMAP:
        extract_and_match(Path(images), Path(work) / "database.db")
    else:
        _caloric(Path(images), Path(work))


def _measure(method: str, images: str, work: str) -> None:
    """Print the CPU time and the wall time of a method, which runs in a new process."""
    import ctypes
    import resource  # not on Windows

    # Workers outlive the process that started them; as our children, they are counted.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    started = time.perf_counter()
    subprocess.run([*_COMMAND, "run", method, images, work], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - started
    with suppress(ChildProcessError):
        while True:
            os.wait()
    cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    print(json.dumps({"CPU seconds": cpu, "seconds": seconds}))


def _measured(method: str, images: Path, work: Path) -> Report:
    """Return the CPU time and the wall time of a method."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    kind = {} if method == _COLMAP else {native.SETTING: method}
    command = [*_COMMAND, "measure", method, str(images.absolute()), str(work.absolute())]
    result = subprocess.run(command, check=True, env=os.environ | kind, stdout=subprocess.PIPE)
    report: Report = json.loads(result.stdout)
    return report


def run(
    directories: list[Path], work: Path, kinds: list[str], rounds: int, progress: Log
) -> Report:
    """Return the times of COLMAP and of builds of Caloric's core, in turn, for each directory."""
    if sys.platform != "linux":
        raise InputError("the CPU time of all processes of a run can be measured on Linux only")
    results: Report = {}
    for directory in directories:
        times: dict[str, list[Report]] = {method: [] for method in (_COLMAP, *kinds)}
        for number in range(rounds):
            for method, measured in times.items():
                progress(f"{directory.name}: {method}, round {number + 1}")
                measured.append(_measured(method, directory, work))
        images = len(sources.names(str(directory)))
        results[directory.name] = {"images": images, "times": times}
    about = {"versions": versions(), "COLMAP": colmap.version(), "processor": processor(),
             "threads": threads.count()}  # fmt: skip
    return {"about": about, "sets": results}


def lines(report: Report) -> list[str]:
    """Return the Markdown table of the results."""
    rows = []
    for name, result in report["sets"].items():
        seconds = {
            method: [one["CPU seconds"] for one in measured]
            for method, measured in result["times"].items()
        }
        peer = seconds.pop(_COLMAP)
        for kind, values in seconds.items():
            ratios = [one / other for one, other in zip(values, peer, strict=True)]
            ratio = f"{statistics.median(ratios):.2f}"
            if len(ratios) > 1:
                ratio += f" ({min(ratios):.2f} to {max(ratios):.2f})"
            medians = [f"{statistics.median(times):.0f} s" for times in (peer, values)]
            rows.append([name, str(result["images"]), kind, *medians, ratio])
    return [table(["set", "images", "core", _COLMAP, "caloric", "ratio"], rows)]


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    (_measure if task == "measure" else _run)(*arguments)
