"""How long things take, beside others in the same run: all are called in turn, round by round.

Machines are shared and clocks change, so only ratios within a round mean anything: what is told of
a contender is the median, and the quartiles, of its time over the reference's in the same round.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench.methods import colmap_sift, read_grey
from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.matching import neighbours
from caloric.runtime import native, threads

Report = dict[str, Any]
KERNELS = ("sift", "similarity", "heat")
CLOSED = ("sift", "dsp-inner", "dsp-both")
MATCHED = 8192
SIZES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # megapixels, of the curve


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to do a task; the first of a task is what the others are compared with."""

    task: str
    name: str
    run: Callable[[], Any]


@contextmanager
def setting(**values: str) -> Iterator[None]:
    """Environment variables for a while; which path is in use is looked up again."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    native.core.cache_clear()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        native.core.cache_clear()


def _set(run: Callable[[], Any], **values: str) -> Callable[[], Any]:
    """The same with settings of its own."""

    def with_settings() -> Any:
        with setting(**values):
            return run()

    return with_settings


def _both(task: str, name: str, run: Callable[[], Any]) -> list[Contender]:
    """With the compiled core, where there is one, and without."""
    plain = Contender(task, f"{name}, plain", _set(run, **{native.SETTING: "0"}))
    return [plain] if native.core() is None else [Contender(task, f"{name}, core", run), plain]


def _images(pixels: NDArray[np.uint8], count: int, number: int) -> list[Contender]:
    sift = cv2.SIFT_create(count)  # type: ignore[attr-defined]
    keypoints = sift.detect(pixels, None)
    frames = Frames.from_opencv(keypoints)
    found = [
        *_extracting(pixels, count),
        *_colmap(pixels, count, number),
        *_kornia(pixels, count),
        Contender("detect", "OpenCV SIFT", lambda: sift.detect(pixels, None)),
        *_both("detect", "caloric", lambda: pipeline.detect(pixels, max_features=count)),
        Contender("describe", "OpenCV SIFT", lambda: sift.compute(pixels, keypoints)),
    ]
    for name in ("caloric", *KERNELS):
        found += _both("describe", name, partial(pipeline.describe, pixels, frames, name))
    # The closed forms of DSP-SIFT cost what SIFT costs: told against that directly.
    for name in CLOSED:
        run = partial(pipeline.describe, pixels, frames, name)
        found.append(Contender("closed forms", name, run))
    return found


def _colmap(pixels: NDArray[np.uint8], count: int, number: int) -> list[Contender]:
    if util.find_spec("pycolmap") is None:
        return []
    import pycolmap

    pycolmap.logging.minloglevel = 2
    found = []
    for name, pooling in (("COLMAP SIFT", False), ("COLMAP DSP-SIFT", True)):
        options = pycolmap.FeatureExtractionOptions()
        options.use_gpu, options.num_threads = False, number
        options.sift.max_num_features, options.sift.domain_size_pooling = count, pooling
        sift = colmap_sift(options)
        found.append(Contender("extract", name, partial(sift.extract, pixels)))
    return found


def _kornia(pixels: NDArray[np.uint8], count: int) -> list[Contender]:
    if util.find_spec("kornia") is None:
        return []
    import torch
    from kornia import feature

    sift = feature.SIFTFeature(count)
    tensor = torch.from_numpy(pixels.astype(np.float32) / 255)[None, None]

    def run() -> Any:
        with torch.inference_mode():
            return sift(tensor)

    return [Contender("extract", "kornia SIFTFeature", run)]


def _sets(count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Two sets of unit descriptors of 128, of which half correspond."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((count, 128)).astype(np.float32)
    b = rng.standard_normal((count, 128)).astype(np.float32)
    half = rng.permutation(count)[: count // 2]
    b[half] = a[half] + 0.4 * b[half]
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    return a, b


def faiss_matches(a: NDArray[np.float32], b: NDArray[np.float32], ratio: float) -> set[Any]:
    """Mutual nearest neighbours with a ratio, by faiss's exact search both ways."""
    import faiss

    index_b, index_a = faiss.IndexFlatL2(a.shape[1]), faiss.IndexFlatL2(a.shape[1])
    index_b.add(b)
    index_a.add(a)
    squares, forth = index_b.search(a, 2)
    _, back = index_a.search(b, 1)
    mutual = back[forth[:, 0], 0] == np.arange(len(a))
    keep = mutual & (np.sqrt(squares[:, 0]) < ratio * np.sqrt(squares[:, 1]))
    return set(zip(np.flatnonzero(keep).tolist(), forth[keep, 0].tolist(), strict=True))


def _matching(count: int) -> list[Contender]:
    a, b = _sets(count)
    found = []
    if util.find_spec("faiss") is not None:
        found = [Contender("match", "faiss, exact, both ways", lambda: faiss_matches(a, b, 0.9))]
    brute = cv2.BFMatcher(cv2.NORM_L2)

    def both_ways() -> None:
        brute.knnMatch(a, b, 2)
        brute.match(b, a)

    found.append(Contender("match", "OpenCV brute force, both ways", both_ways))
    run = threads.single_threaded_blas(lambda: neighbours.match_descriptors(a, b, ratio=0.9))
    return found + _both("match", "caloric", run)


def same_matches(count: int) -> float | None:
    """The share of matches that faiss and we have in common; None without faiss."""
    if util.find_spec("faiss") is None:
        return None
    a, b = _sets(count)
    theirs = faiss_matches(a, b, 0.9)
    ours = {tuple(p) for p in neighbours.match_descriptors(a, b, ratio=0.9).indices.tolist()}
    return len(theirs & ours) / len(theirs | ours)


def _hold(number: int) -> None:
    """The others' own settings of the number of threads."""
    cv2.setNumThreads(number)
    if util.find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(number)
    if util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(number)


def rounds(contenders: list[Contender], count: int) -> Report:
    """Times of all, called in turn; the first round warms up. By task and name."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for turn in range(count + 1):
        for one in contenders:
            started = time.perf_counter()
            one.run()
            if turn:
                took = time.perf_counter() - started
                seconds.setdefault((one.task, one.name), []).append(took)
    report: Report = {}
    for (task, name), times in seconds.items():
        first = next(c.name for c in contenders if c.task == task)
        ratios = np.array(times) / np.array(seconds[task, first])
        low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
        report.setdefault(task, {})[name] = {
            "seconds": float(np.median(times)),
            "ratio": middle,
            "quartiles": [low, high],
        }
    return report


def _scaled(pixels: NDArray[np.uint8], megapixels: float) -> NDArray[np.uint8]:
    """The image, mirrored from tile to tile where it is too small, cut to a size."""
    h, w = pixels.shape
    scale = np.sqrt(megapixels * 1e6 / (h * w))
    rows, columns = round(h * scale), round(w * scale)
    block = np.block([[pixels, pixels[:, ::-1]], [pixels[::-1], pixels[::-1, ::-1]]])
    times = (-(-rows // (2 * h)), -(-columns // (2 * w)))
    return np.ascontiguousarray(np.tile(block, times)[:rows, :columns])


def curves(pixels: NDArray[np.uint8], count: int, repeat: int) -> Report:
    """Seconds against pixels, features and threads, the median of a few, ours and OpenCV's."""

    def pair(image: NDArray[np.uint8], most: int) -> dict[str, float]:
        found = rounds(_extracting(image, most), repeat)["extract"]
        return {name: figures["seconds"] for name, figures in found.items()}

    report: Report = {"pixels": [], "features": [], "threads": []}
    for megapixels in SIZES:
        image = _scaled(pixels, megapixels)
        report["pixels"].append({"at": image.size, **pair(image, 0)})
    for most in (250, 500, 1000, 2000):
        report["features"].append({"at": most, **pair(pixels, most)})
    numbers = range(1, (os.cpu_count() or 1) + 1)
    contenders = [
        Contender("threads", f"{number} {one.name}", _held(number, one.run))
        for number in numbers
        for one in _extracting(pixels, count)
    ]
    seconds = {name: v["seconds"] for name, v in rounds(contenders, 3 * repeat)["threads"].items()}
    for number in numbers:
        names = [one.name for one in _extracting(pixels, count)]
        report["threads"].append({"at": number} | {n: seconds[f"{number} {n}"] for n in names})
    return report


def _held(number: int, run: Callable[[], Any]) -> Callable[[], Any]:
    def held() -> Any:
        _hold(number)
        return run()

    return _set(held, **{threads.SETTING: str(number)})


def _extracting(image: NDArray[np.uint8], most: int) -> list[Contender]:
    """OpenCV and ours; 0 is no limit."""
    sift = cv2.SIFT_create(most)  # type: ignore[attr-defined]
    return [
        Contender("extract", "OpenCV SIFT", lambda: sift.detectAndCompute(image, None)),
        *_both("extract", "caloric", partial(pipeline.extract, image, max_features=most or None)),
    ]


def _processes(arguments: list[str], count: int, **settings: str) -> list[Any]:
    """What ``count`` processes of this file print, run side by side."""
    command = [sys.executable, "-m", "caloric.bench.speed", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=os.environ | settings, **pipes) for _ in range(count)]
    printed = [process.communicate() for process in running]
    for process, (_, errors) in zip(running, printed, strict=True):
        if process.returncode:
            last = (errors.strip().splitlines() or [f"ended by {process.returncode}"])[-1]
            raise InputError(f"{' '.join(arguments)}: {last}")
    return [json.loads(text) for text, _ in printed]


def large(path: Path, megapixels: float) -> Report:
    """One large image in a process of its own: seconds, features and peak memory."""
    result: Report = _processes(["large", str(path), str(megapixels)], 1)[0]
    return result


def with_opencv(path: Path, count: int, number: int, repeat: int) -> Report:
    """OpenCV and we alone in a process.

    Other libraries leave a process with much free memory, which OpenCV, asking for all it needs
    anew with each image, is then given faster.
    """
    arguments = ["pair", str(path), str(count), str(repeat)]
    result: Report = _processes(arguments, 1, **{threads.SETTING: str(number)})[0]
    return result


def side_by_side(path: Path, count: int, repeat: int) -> Report:
    """As many processes as cores, a thread each: how much more they do than one alone.

    That is what the machine has to give, and what threads can be measured against.
    """
    arguments, cores = ["repeat", str(path), str(count), str(repeat)], os.cpu_count() or 1
    one = {threads.SETTING: "1"}
    alone = _processes(arguments, 1, **one)[0]
    together = float(np.mean(_processes(arguments, cores, **one)))
    return {"processes": cores, "alone": alone, "each": together, "gain": cores * alone / together}


def _pair(path: str, count: int, repeat: int) -> Report:
    image = read_grey(path)
    cv2.setNumThreads(threads.count())
    return rounds(_extracting(image, count), repeat)


def _repeat(path: str, count: int, repeat: int) -> float:
    image = read_grey(path)
    one = Contender("", "", lambda: pipeline.extract(image, max_features=count))
    return float(rounds([one], repeat)[""][""]["seconds"])


def _alone(path: str, megapixels: float) -> Report:
    image = _scaled(read_grey(path), megapixels)
    pipeline.extract(image[:512, :512])  # tables
    started = time.perf_counter()
    found = pipeline.extract(image)
    return {
        "pixels": image.size,
        "features": len(found),
        "seconds": time.perf_counter() - started,
        "peak bytes": _peak(),
    }


def _peak() -> int:
    """Of this process alone: what getrusage tells starts from what the parent had."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource  # which Windows does not have

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def run(path: Path, count: int, numbers: list[int], repeat: int, sizes: list[float]) -> Report:
    """Everything, for an image file."""
    pixels = read_grey(path)
    before = cv2.getNumThreads()
    report: Report = {
        "image": {"name": path.name, "size": list(pixels.shape), "features": count},
        "rounds": repeat,
        "matched": MATCHED,
        "machine": {"processor": _processor(), "cores": os.cpu_count()},
        "versions": versions(),
        "path": native.about(),
        "threads": {},
    }
    for number in numbers:
        with setting(**{threads.SETTING: str(number)}):
            _hold(number)
            contenders = _images(pixels, count, number) + _matching(MATCHED)
            report["threads"][str(number)] = rounds(contenders, repeat)
    report["matches in common with faiss"] = same_matches(MATCHED)
    report["curves"] = curves(pixels, count, max(3, repeat // 3))
    cv2.setNumThreads(before)
    report["with OpenCV alone"] = {
        str(number): with_opencv(path, count, number, 2 * repeat) for number in numbers
    }
    report["side by side"] = side_by_side(path, count, 2 * repeat)
    report["large"] = [large(path, size) for size in sizes]
    return report


if __name__ == "__main__":
    what, image_path, *rest = sys.argv[1:]
    if what == "large":
        print(json.dumps(_alone(image_path, float(rest[0]))))
    else:
        run_one = _pair if what == "pair" else _repeat
        print(json.dumps(run_one(image_path, *map(int, rest))))
