"""Speed relative to other libraries in the same run: all contenders are called in turn, in rounds.

Machines are shared and clock rates change, so only ratios within a round are comparable: the report
has the median and the quartiles of the time of a contender over that of the reference.
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
Progress = Callable[[str], None]
KERNELS = ("sift", "similarity", "heat")
CLOSED = ("sift", "dsp-inner", "dsp-both")
MATCHED = 8192
SIZES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # megapixels on the curve


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to do a task; the first contender of a task is the reference."""

    task: str
    name: str
    run: Callable[[], Any]


@contextmanager
def setting(**values: str) -> Iterator[None]:
    """Set environment variables within a context; the compiled core is looked up again."""
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


def _with_settings(run: Callable[[], Any], **values: str) -> Callable[[], Any]:
    def wrapped() -> Any:
        with setting(**values):
            return run()

    return wrapped


def _with_and_without_core(task: str, name: str, run: Callable[[], Any]) -> list[Contender]:
    plain = Contender(task, f"{name}, plain", _with_settings(run, **{native.SETTING: "0"}))
    return [plain] if native.core() is None else [Contender(task, f"{name}, core", run), plain]


def _images(pixels: NDArray[np.uint8], count: int, thread_count: int) -> list[Contender]:
    sift = cv2.SIFT_create(count)  # type: ignore[attr-defined]
    keypoints = sift.detect(pixels, None)
    frames = Frames.from_opencv(keypoints)
    contenders = [
        *_extracting(pixels, count),
        *_colmap(pixels, count, thread_count),
        *_kornia(pixels, count),
        Contender("detect", "OpenCV SIFT", lambda: sift.detect(pixels, None)),
        *_with_and_without_core(
            "detect", "caloric", lambda: pipeline.detect(pixels, max_features=count)
        ),
        Contender("describe", "OpenCV SIFT", lambda: sift.compute(pixels, keypoints)),
    ]
    for name in ("caloric", *KERNELS):
        contenders += _with_and_without_core(
            "describe", name, partial(pipeline.describe, pixels, frames, name)
        )
    # The closed forms of DSP-SIFT cost what SIFT costs: compared with SIFT directly.
    for name in CLOSED:
        run = partial(pipeline.describe, pixels, frames, name)
        contenders.append(Contender("closed forms", name, run))
    return contenders


def _colmap(pixels: NDArray[np.uint8], count: int, thread_count: int) -> list[Contender]:
    if util.find_spec("pycolmap") is None:
        return []
    contenders = []
    for name, pooling in (("COLMAP SIFT", False), ("COLMAP DSP-SIFT", True)):
        sift = colmap_sift(count, thread_count, domain_size_pooling=pooling)
        contenders.append(Contender("extract", name, partial(sift.extract, pixels)))
    return contenders


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
    """Return two sets (count, 128) of unit descriptors, of which half correspond."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((count, 128)).astype(np.float32)
    b = rng.standard_normal((count, 128)).astype(np.float32)
    half = rng.permutation(count)[: count // 2]
    b[half] = a[half] + 0.4 * b[half]
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    return a, b


def faiss_matches(a: NDArray[np.float32], b: NDArray[np.float32], ratio: float) -> set[Any]:
    """Return the mutual nearest neighbours that pass a ratio test, by faiss's exact search."""
    import faiss

    index_b, index_a = faiss.IndexFlatL2(a.shape[1]), faiss.IndexFlatL2(a.shape[1])
    index_b.add(b)
    index_a.add(a)
    squares, forward = index_b.search(a, 2)
    _, backward = index_a.search(b, 1)
    mutual = backward[forward[:, 0], 0] == np.arange(len(a))
    keep = mutual & (np.sqrt(squares[:, 0]) < ratio * np.sqrt(squares[:, 1]))
    return set(zip(np.flatnonzero(keep).tolist(), forward[keep, 0].tolist(), strict=True))


def _matching(count: int) -> list[Contender]:
    a, b = _sets(count)
    contenders = []
    if util.find_spec("faiss") is not None:
        contenders = [
            Contender("match", "faiss, exact, both ways", lambda: faiss_matches(a, b, 0.9))
        ]
    brute = cv2.BFMatcher(cv2.NORM_L2)

    def both_ways() -> None:
        brute.knnMatch(a, b, 2)
        brute.match(b, a)

    contenders.append(Contender("match", "OpenCV brute force, both ways", both_ways))
    run = threads.single_threaded_blas(lambda: neighbours.match_descriptors(a, b, ratio=0.9))
    return contenders + _with_and_without_core("match", "caloric", run)


def same_matches(count: int) -> float | None:
    """Return the share of matches that faiss and Caloric have in common; None without faiss."""
    if util.find_spec("faiss") is None:
        return None
    a, b = _sets(count)
    faiss = faiss_matches(a, b, 0.9)
    caloric = {tuple(p) for p in neighbours.match_descriptors(a, b, ratio=0.9).indices.tolist()}
    return len(faiss & caloric) / len(faiss | caloric)


def _set_threads(number: int) -> None:
    """Set the number of threads of the other libraries."""
    cv2.setNumThreads(number)
    if util.find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(number)
    if util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(number)


def rounds(
    contenders: list[Contender], count: int, progress: Progress = lambda text: None
) -> Report:
    """Return the times of all contenders by task and name; the first round warms up."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(count + 1):
        progress(f"round {number} of {count}" if number else "warming up")
        for contender in contenders:
            started = time.perf_counter()
            contender.run()
            if number:
                took = time.perf_counter() - started
                seconds.setdefault((contender.task, contender.name), []).append(took)
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
    """Return the image at a given size, cropped or extended by mirrored tiles."""
    h, w = pixels.shape
    scale = np.sqrt(megapixels * 1e6 / (h * w))
    rows, columns = round(h * scale), round(w * scale)
    block = np.block([[pixels, pixels[:, ::-1]], [pixels[::-1], pixels[::-1, ::-1]]])
    times = (-(-rows // (2 * h)), -(-columns // (2 * w)))
    return np.ascontiguousarray(np.tile(block, times)[:rows, :columns])


def curves(pixels: NDArray[np.uint8], count: int, repeat: int) -> Report:
    """Return the seconds of Caloric and OpenCV against pixels, features and threads."""

    def pair(image: NDArray[np.uint8], most: int) -> dict[str, float]:
        measured = rounds(_extracting(image, most), repeat)["extract"]
        return {name: figures["seconds"] for name, figures in measured.items()}

    report: Report = {"pixels": [], "features": [], "threads": []}
    for megapixels in SIZES:
        image = _scaled(pixels, megapixels)
        report["pixels"].append({"at": image.size, **pair(image, 0)})
    for most in (250, 500, 1000, 2000):
        report["features"].append({"at": most, **pair(pixels, most)})
    thread_counts = range(1, (os.cpu_count() or 1) + 1)
    contenders = [
        Contender(
            "threads",
            f"{thread_count} {contender.name}",
            _with_threads(thread_count, contender.run),
        )
        for thread_count in thread_counts
        for contender in _extracting(pixels, count)
    ]
    seconds = {name: v["seconds"] for name, v in rounds(contenders, 3 * repeat)["threads"].items()}
    for thread_count in thread_counts:
        names = [contender.name for contender in _extracting(pixels, count)]
        report["threads"].append(
            {"at": thread_count} | {n: seconds[f"{thread_count} {n}"] for n in names}
        )
    return report


def _with_threads(number: int, run: Callable[[], Any]) -> Callable[[], Any]:
    def wrapped() -> Any:
        _set_threads(number)
        return run()

    return _with_settings(wrapped, **{threads.SETTING: str(number)})


def _extracting(image: NDArray[np.uint8], most: int) -> list[Contender]:
    """Return the contenders OpenCV and Caloric; ``most`` 0 means no limit."""
    sift = cv2.SIFT_create(most)  # type: ignore[attr-defined]
    return [
        Contender("extract", "OpenCV SIFT", lambda: sift.detectAndCompute(image, None)),
        *_with_and_without_core(
            "extract", "caloric", partial(pipeline.extract, image, max_features=most or None)
        ),
    ]


def _processes(arguments: list[str], count: int, **settings: str) -> list[Any]:
    """Return the JSON that ``count`` parallel processes of this module print."""
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
    """Return the seconds, features and peak memory of one large image, in its own process."""
    result: Report = _processes(["large", str(path), str(megapixels)], 1)[0]
    return result


def with_opencv(path: Path, count: int, number: int, repeat: int) -> Report:
    """Return the times of OpenCV and Caloric in a process without the other libraries.

    The other libraries leave much free memory in the process, which speeds up OpenCV: it allocates
    all its buffers anew for each image.
    """
    arguments = ["pair", str(path), str(count), str(repeat)]
    result: Report = _processes(arguments, 1, **{threads.SETTING: str(number)})[0]
    return result


def side_by_side(path: Path, count: int, repeat: int) -> Report:
    """Return how much more as many processes as cores do than one process, with one thread each.

    That is the most that the machine offers, and what the gain by threads is compared with.
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
    image = read_grey(path)
    cv2.setNumThreads(threads.count())
    return rounds(_extracting(image, count), repeat)


def _repeat(path: str, count: int, repeat: int) -> float:
    image = read_grey(path)
    contender = Contender("", "", lambda: pipeline.extract(image, max_features=count))
    return float(rounds([contender], repeat)[""][""]["seconds"])


def _large(path: str, megapixels: float) -> Report:
    image = _scaled(read_grey(path), megapixels)
    pipeline.extract(image[:512, :512])  # tables
    started = time.perf_counter()
    features = pipeline.extract(image, max_features=None)
    return {
        "pixels": image.size,
        "features": len(features),
        "seconds": time.perf_counter() - started,
        "peak bytes": _peak(),
    }


def _peak() -> int:
    """Return the peak memory of this process; getrusage would include that of its parent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource  # which Windows does not have

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _processor() -> str:
    """Return the name of the processor; that of an ARM one is known to lscpu alone."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        environment = os.environ | {"LC_ALL": "C"}
        listed = subprocess.run(["lscpu"], capture_output=True, text=True, env=environment)
        lines += listed.stdout.splitlines()
        return next(x for x in lines if x.lower().startswith("model name")).split(":")[1].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _after(progress: Progress, start: str, text: str) -> None:
    progress(start + text)


def run(
    path: Path,
    count: int,
    thread_counts: list[int],
    repeat: int,
    sizes: list[float],
    progress: Progress,
) -> Report:
    """Return the report of all measurements of an image file; ``progress`` gets lines of text."""
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
    for thread_count in thread_counts:
        with setting(**{threads.SETTING: str(thread_count)}):
            _set_threads(thread_count)
            contenders = _images(pixels, count, thread_count) + _matching(MATCHED)
            where = f"{thread_count} thread{'s' * (thread_count > 1)}: "
            report["threads"][str(thread_count)] = rounds(
                contenders, repeat, partial(_after, progress, where)
            )
    report["matches in common with faiss"] = same_matches(MATCHED)
    progress("times against pixels, features and threads")
    report["curves"] = curves(pixels, count, max(3, repeat // 3))
    cv2.setNumThreads(before)
    progress("beside OpenCV alone")
    report["with OpenCV alone"] = {
        str(thread_count): with_opencv(path, count, thread_count, 2 * repeat)
        for thread_count in thread_counts
    }
    progress("processes side by side")
    report["side by side"] = side_by_side(path, count, 2 * repeat)
    report["large"] = []
    for size in sizes:
        progress(f"{size:g} megapixels")
        report["large"].append(large(path, size))
    return report


if __name__ == "__main__":
    what, image_path, *rest = sys.argv[1:]
    if what == "large":
        print(json.dumps(_large(image_path, float(rest[0]))))
    else:
        measure = _pair if what == "pair" else _repeat
        print(json.dumps(measure(image_path, *map(int, rest))))
