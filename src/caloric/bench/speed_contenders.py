"""The implementations that ``caloric bench speed`` compares, and their interleaved timing."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import util
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline, synthetic
from caloric.bench.methods import colmap_sift
from caloric.frames import Frames
from caloric.matching import neighbors
from caloric.runtime import native, threads
from caloric.types import Log, Report

KERNELS = ("sift", "similarity", "heat")
CLOSED_FORMS = ("sift", "dsp-inner", "dsp-both")


@dataclass(frozen=True, eq=False)
class Contender:
    """One implementation of a task; the first contender of a task is the reference."""

    task: str
    name: str
    run: Callable[[], Any]


@contextmanager
def setting(**values: str) -> Iterator[None]:
    """Set environment variables within a context, and select the compiled core again."""
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


def with_settings(run: Callable[[], Any], **values: str) -> Callable[[], Any]:
    """Return a function that runs with environment variables set."""

    def wrapped() -> Any:
        with setting(**values):
            return run()

    return wrapped


def _with_and_without_core(task: str, name: str, run: Callable[[], Any]) -> list[Contender]:
    plain = Contender(task, f"{name}, plain", with_settings(run, **{native.SETTING: "0"}))
    return [plain] if native.core() is None else [Contender(task, f"{name}, core", run), plain]


def images(pixels: NDArray[np.uint8], count: int, thread_count: int) -> list[Contender]:
    """Return the contenders that extract, detect or describe ``count`` features of an image."""
    sift = cv2.SIFT_create(count)  # type: ignore[attr-defined]
    keypoints = sift.detect(pixels, None)
    frames = Frames.from_opencv(keypoints)
    contenders = [
        *extracting(pixels, count),
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
    # The closed forms of DSP-SIFT should cost as much as SIFT: compare them with it directly.
    for name in CLOSED_FORMS:
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


def _descriptor_sets(count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return two sets (count, 128) of unit descriptors; half of them have a counterpart."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((count, 128)).astype(np.float32)
    b = rng.standard_normal((count, 128)).astype(np.float32)
    half = rng.permutation(count)[: count // 2]
    b[half] = a[half] + 0.4 * b[half]
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b))
    return a, b


def faiss_matches(a: NDArray[np.float32], b: NDArray[np.float32], ratio: float) -> set[Any]:
    """Return the mutual nearest neighbors that pass a ratio test, by faiss's exact search."""
    import faiss

    index_b, index_a = faiss.IndexFlatL2(a.shape[1]), faiss.IndexFlatL2(a.shape[1])
    index_b.add(b)
    index_a.add(a)
    squares, forward = index_b.search(a, 2)
    _, backward = index_a.search(b, 1)
    mutual = backward[forward[:, 0], 0] == np.arange(len(a))
    keep = mutual & (np.sqrt(squares[:, 0]) < ratio * np.sqrt(squares[:, 1]))
    return set(zip(np.flatnonzero(keep).tolist(), forward[keep, 0].tolist(), strict=True))


def matching(count: int) -> list[Contender]:
    """Return the contenders that match two sets of ``count`` descriptors."""
    a, b = _descriptor_sets(count)
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
    run = threads.single_threaded_blas(lambda: neighbors.match_descriptors(a, b, ratio=0.9))
    return contenders + _with_and_without_core("match", "caloric", run)


def searching(pixels: NDArray[np.uint8], count: int) -> list[Contender]:
    """Return the exact search for neighbors by each kind of the core, and by faiss.

    The descriptors are those of an image and of a synthetic view, ``count`` each if there are as
    many. The reference computes all products in float32; the others rule out most pairs by
    products of bytes, where the processor has fast ones.
    """
    core = native.core()
    if core is None:
        return []
    h, w = pixels.shape
    view = synthetic.warp(pixels, synthetic.similarity(0.9, 20, (5, 3), (w / 2, h / 2)))
    both = (pipeline.extract(x, max_features=count, contrast=0.0) for x in (pixels, view))
    a, b = (np.asarray(features.descriptors, np.float32) for features in both)

    def run(kind: str, screened: bool) -> None:
        core.use(kind)
        try:
            neighbors.neighbors_in(a, neighbors.Reference.of(b, screened=screened), None)
        finally:
            core.use(core.kinds()[0])

    contenders = []
    for kind in core.kinds():
        if "-" not in kind and kind != "portable":
            name = f"{kind}, float32 products"
            contenders.append(Contender("neighbors", name, partial(run, kind, False)))
    for kind in core.kinds():
        core.use(kind)
        if core.Columns(b[:1], b[:1, 0].copy()).screened:
            contenders.append(Contender("neighbors", kind, partial(run, kind, True)))
    core.use(core.kinds()[0])
    if util.find_spec("faiss") is not None:
        name = "faiss, exact, both ways"
        contenders.append(Contender("neighbors", name, lambda: faiss_matches(a, b, 0.9)))
    return contenders


def match_overlap(count: int) -> float | None:
    """Return the intersection over union of faiss's and Caloric's matches; None without faiss."""
    if util.find_spec("faiss") is None:
        return None
    a, b = _descriptor_sets(count)
    faiss = faiss_matches(a, b, 0.9)
    caloric = {tuple(p) for p in neighbors.match_descriptors(a, b, ratio=0.9).indices.tolist()}
    return len(faiss & caloric) / len(faiss | caloric)


def set_threads(number: int) -> None:
    """Set the number of threads of the other libraries."""
    cv2.setNumThreads(number)
    if util.find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(number)
    if util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(number)


def rounds(contenders: list[Contender], count: int, log: Log = lambda text: None) -> Report:
    """Return the times of all contenders by task and name, after one warm-up round."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(count + 1):
        log(f"round {number} of {count}" if number else "warm-up")
        for contender in contenders:
            started = time.perf_counter()
            contender.run()
            if number:
                elapsed = time.perf_counter() - started
                seconds.setdefault((contender.task, contender.name), []).append(elapsed)
    report: Report = {}
    for (task, name), times in seconds.items():
        reference = next(c.name for c in contenders if c.task == task)
        ratios = np.array(times) / np.array(seconds[task, reference])
        low, median, high = np.percentile(ratios, (25, 50, 75)).tolist()
        report.setdefault(task, {})[name] = {
            "seconds": float(np.median(times)),
            "ratio": median,
            "quartiles": [low, high],
        }
    return report


def extracting(image: NDArray[np.uint8], max_features: int) -> list[Contender]:
    """Return OpenCV and Caloric as contenders; ``max_features`` 0 means no limit."""
    sift = cv2.SIFT_create(max_features)  # type: ignore[attr-defined]
    return [
        Contender("extract", "OpenCV SIFT", lambda: sift.detectAndCompute(image, None)),
        *_with_and_without_core(
            "extract",
            "caloric",
            partial(pipeline.extract, image, max_features=max_features or None),
        ),
    ]
