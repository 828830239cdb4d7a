"""``caloric bench speed``: speed relative to other libraries, interleaved in one run.

Absolute times vary with load and clock rate, so each round times all contenders in turn. The report
has the median and the quartiles of the ratio of a contender's time to that of the reference.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench.methods import read_gray
from caloric.bench.report import versions
from caloric.bench.speed_contenders import (
    Contender,
    extracting,
    images,
    match_overlap,
    matching,
    rounds,
    searching,
    set_threads,
    setting,
    with_settings,
)
from caloric.errors import InputError
from caloric.runtime import native, threads
from caloric.types import Log, Report

MATCHED = 8192
SIZES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # megapixels on the curve


@dataclass(frozen=True)
class Settings:
    """The image file, features per image, thread counts, rounds, and megapixels of large images."""

    path: Path
    count: int
    thread_counts: list[int]
    repeat: int
    sizes: list[float]


def _scaled(pixels: NDArray[np.uint8], megapixels: float) -> NDArray[np.uint8]:
    """Return the image at a given size, cropped or extended by mirrored tiles."""
    h, w = pixels.shape
    scale = np.sqrt(megapixels * 1e6 / (h * w))
    rows, columns = round(h * scale), round(w * scale)
    block = np.block([[pixels, pixels[:, ::-1]], [pixels[::-1], pixels[::-1, ::-1]]])
    times = (-(-rows // (2 * h)), -(-columns // (2 * w)))
    return np.ascontiguousarray(np.tile(block, times)[:rows, :columns])


def _with_threads(number: int, run: Callable[[], Any]) -> Callable[[], Any]:
    def wrapped() -> Any:
        set_threads(number)
        return run()

    return with_settings(wrapped, **{threads.SETTING: str(number)})


def curves(pixels: NDArray[np.uint8], count: int, repeat: int) -> Report:
    """Return the times of Caloric and OpenCV against pixels, features and threads."""

    def seconds_by_name(image: NDArray[np.uint8], max_features: int) -> dict[str, float]:
        times = rounds(extracting(image, max_features), repeat)["extract"]
        return {name: result["seconds"] for name, result in times.items()}

    report: Report = {"pixels": [], "features": [], "threads": []}
    for megapixels in SIZES:
        image = _scaled(pixels, megapixels)
        report["pixels"].append({"at": image.size, **seconds_by_name(image, 0)})
    for limit in (250, 500, 1000, 2000):
        report["features"].append({"at": limit, **seconds_by_name(pixels, limit)})
    thread_counts = range(1, (os.cpu_count() or 1) + 1)
    contenders = [
        Contender(
            "threads",
            f"{thread_count} {contender.name}",
            _with_threads(thread_count, contender.run),
        )
        for thread_count in thread_counts
        for contender in extracting(pixels, count)
    ]
    seconds = {name: v["seconds"] for name, v in rounds(contenders, 3 * repeat)["threads"].items()}
    for thread_count in thread_counts:
        names = [contender.name for contender in extracting(pixels, count)]
        report["threads"].append(
            {"at": thread_count} | {n: seconds[f"{thread_count} {n}"] for n in names}
        )
    return report


def _processes(arguments: list[str], count: int, **settings: str) -> list[Any]:
    """Return the JSON that ``count`` parallel processes of this module print."""
    command = [sys.executable, "-m", "caloric.bench.speed", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=os.environ | settings, **pipes) for _ in range(count)]
    outputs = [process.communicate() for process in running]
    for process, (_, errors) in zip(running, outputs, strict=True):
        if process.returncode:
            last = (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
            raise InputError(f"{' '.join(arguments)}: {last}")
    return [json.loads(text) for text, _ in outputs]


def large(path: Path, megapixels: float) -> Report:
    """Return the time, features and peak memory of one large image, in a separate process."""
    result: Report = _processes(["large", str(path), str(megapixels)], 1)[0]
    return result


def with_opencv(path: Path, count: int, number: int, repeat: int) -> Report:
    """Return the times of OpenCV and Caloric in a process without the other libraries.

    The other libraries leave free memory in the process. This speeds up OpenCV, which allocates its
    buffers for each image.
    """
    arguments = ["pair", str(path), str(count), str(repeat)]
    result: Report = _processes(arguments, 1, **{threads.SETTING: str(number)})[0]
    return result


def side_by_side(path: Path, count: int, repeat: int) -> Report:
    """Return the gain in throughput from running one single-threaded process per core.

    It is the upper bound for the gain from threads.
    """
    arguments, cores = ["repeat", str(path), str(count), str(repeat)], os.cpu_count() or 1
    single_thread = {threads.SETTING: "1"}
    single = _processes(arguments, 1, **single_thread)[0]
    together = float(np.mean(_processes(arguments, cores, **single_thread)))
    return {
        "processes": cores,
        "alone": single,
        "each": together,
        "gain": cores * single / together,
    }


def _pair(path: str, count: int, repeat: int) -> Report:
    image = read_gray(path)
    cv2.setNumThreads(threads.count())
    return rounds(extracting(image, count), repeat)


def _repeat(path: str, count: int, repeat: int) -> float:
    image = read_gray(path)
    contender = Contender("", "", lambda: pipeline.extract(image, max_features=count))
    return float(rounds([contender], repeat)[""][""]["seconds"])


def _large(path: str, megapixels: float) -> Report:
    image = _scaled(read_gray(path), megapixels)
    pipeline.extract(image[:512, :512])  # computes the tables, which are not timed
    started = time.perf_counter()
    features = pipeline.extract(image, max_features=None)
    return {
        "pixels": image.size,
        "features": len(features),
        "seconds": time.perf_counter() - started,
        "peak bytes": _peak(),
    }


def _peak() -> int:
    """Return the peak memory of this process in bytes."""
    # getrusage would include the peak of the parent.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource  # not available on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def processor() -> str:
    """Return the name of the processor; on ARM only lscpu knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        environment = os.environ | {"LC_ALL": "C"}
        listed = subprocess.run(["lscpu"], capture_output=True, text=True, env=environment)
        lines += listed.stdout.splitlines()
        return next(x for x in lines if x.lower().startswith("model name")).split(":")[1].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def run(settings: Settings, log: Log) -> Report:
    """Return all measurements of an image file."""
    path, count, repeat = settings.path, settings.count, settings.repeat
    pixels = read_gray(path)
    before = cv2.getNumThreads()
    report: Report = {
        "image": {"name": path.name, "size": list(pixels.shape), "features": count},
        "rounds": repeat,
        "matched": MATCHED,
        "machine": {"processor": processor(), "cores": os.cpu_count()},
        "versions": versions(),
        "path": native.about(),
        "threads": {},
    }
    for thread_count in settings.thread_counts:
        with setting(**{threads.SETTING: str(thread_count)}):
            set_threads(thread_count)
            contenders = [
                *images(pixels, count, thread_count),
                *matching(MATCHED),
                *searching(pixels, MATCHED),
            ]
            prefix = f"{thread_count} thread{'s' * (thread_count > 1)}: "
            report["threads"][str(thread_count)] = rounds(
                contenders,
                repeat,
                lambda text, prefix=prefix: log(prefix + text),  # type: ignore[misc]
            )
    report["matches in common with faiss"] = match_overlap(MATCHED)
    log("times against pixels, features and threads")
    report["curves"] = curves(pixels, count, max(3, repeat // 3))
    cv2.setNumThreads(before)
    log("OpenCV and Caloric alone in a process")
    report["with OpenCV alone"] = {
        str(thread_count): with_opencv(path, count, thread_count, 2 * repeat)
        for thread_count in settings.thread_counts
    }
    log("parallel processes")
    report["side by side"] = side_by_side(path, count, 2 * repeat)
    report["large"] = []
    for size in settings.sizes:
        log(f"{size:g} megapixels")
        report["large"].append(large(path, size))
    return report


if __name__ == "__main__":
    task, image_path, *rest = sys.argv[1:]
    if task == "large":
        print(json.dumps(_large(image_path, float(rest[0]))))
    else:
        measure = _pair if task == "pair" else _repeat
        print(json.dumps(measure(image_path, *map(int, rest))))
