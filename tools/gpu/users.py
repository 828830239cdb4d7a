"""Benchmarks of the public functions on a GPU: extraction, matching, views and refinement."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from caloric import pipeline
from caloric.alignment import align
from caloric.bench.gpu import SIZES, gray_photographs, photographs
from caloric.bench.speed_contenders import setting
from caloric.extraction import dispatch
from caloric.features import Features
from caloric.gpu import devices, graphs
from caloric.image import loading
from caloric.image_pair import match_images
from caloric.options import ExtractOptions
from caloric.runtime import native
from caloric.types import Log, Report
from tools.gpu.agreement import compared

IMAGES = 320
CALLS = (1, 8, 32)  # images per call, besides all
_REPETITIONS = 3
MATCHED = 4096
_PAIRED = 24  # images, all pairs of which are matched


def _seconds(work: Callable[[], Any], warm_up: int = 3, repetitions: int = 0) -> float:
    """Return the median time of a call that returns its result on the host."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repetitions or _REPETITIONS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _in_calls(images: Sequence[Any], size: int, max_features: int, device: str) -> None:
    """Extract the features of images, ``size`` images per call."""
    for start in range(0, len(images), size):
        part = images[start : start + size]
        pipeline.extract(part[0] if size == 1 else part, max_features=max_features, device=device)


def arrays(directory: Path, device: str, log: Log) -> Report:
    """Return images per second from NumPy arrays to :class:`Features`, by images per call."""
    report: Report = {}
    for name, (height, width, max_features) in SIZES.items():
        colors = photographs(directory, height, width, IMAGES)
        gray = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in colors]
        results: Report = {}
        for kind, images in (("color", colors), ("gray", gray)):
            log(f"{name}, {kind} arrays")
            rates = results[kind] = {}
            for size in (IMAGES, *CALLS):
                took = _seconds(
                    partial(_in_calls, images, size, max_features, device), 3 if size > 8 else 1
                )
                calls = "one list" if size == IMAGES else f"calls of {size}"
                rates[f"images a second, {calls}"] = IMAGES / took
            rates["milliseconds, one by one, mean"] = 1000 / rates["images a second, calls of 1"]
        on_device = partial(
            pipeline.extract, colors, max_features=max_features, device=device, on_device=True
        )
        results["images a second, one list, features stay on the device"] = IMAGES / _seconds(
            on_device
        )
        graphs.clear()
        report[name] = results
    return report


def _of_sizes(directory: Path, sizes: Sequence[tuple[int, int]]) -> list[Any]:
    """Return photographs of the given heights and widths."""
    height, width = (max(lengths) for lengths in zip(*sizes, strict=True))
    whole = photographs(directory, height, width, len(sizes))
    return [np.ascontiguousarray(image[:h, :w]) for image, (h, w) in zip(whole, sizes, strict=True)]


def sizes(directory: Path, device: str, log: Log) -> Report:
    """Return images per second for lists of images of one size, of several, and of large ones.

    The rate of the first call includes allocating memory.
    """
    rng = np.random.default_rng(0)
    different = {(int(h), int(w)) for h, w in rng.integers((480, 640), (700, 900), (200, 2))}
    pool = sorted(different, key=lambda size: (size[0] * 7919 + size[1] * 104729) % 1000)
    in_turn = [(640, 800), (600, 800), (640, 768), (512, 704)]
    lists: dict[str, tuple[int, list[tuple[int, int]]]] = {
        "one size, 800 x 640": (2000, [(640, 800)] * IMAGES),
        "four sizes in turn": (2000, in_turn * (IMAGES // 4)),
        "96 sizes": (2000, pool[:96]),
        "96 other sizes": (2000, pool[96:192]),
        "4,000 x 3,000": (8000, [(3000, 4000)] * 40),
        "12,000 x 9,000": (20_000, [(9000, 12_000)]),
    }
    report: Report = {}
    for name, (limit, of_list) in lists.items():
        log(name)
        images = _of_sizes(directory, of_list)
        extract = partial(pipeline.extract, images, max_features=limit, device=device)
        first = _seconds(extract, 0, 1)
        report[name] = {
            "features": limit, "images": len(images),
            "images a second": len(images) / _seconds(extract),
            "images a second, first call": len(images) / first,
        }  # fmt: skip
    graphs.clear()
    return report


def files(directory: Path, device: str, log: Log) -> Report:
    """Return images per second from JPEG files of 800 x 640 to features, for each decoder."""
    options = ExtractOptions(max_features=2000)
    target = devices.resolve(device)
    report: Report = {"files": IMAGES}
    with tempfile.TemporaryDirectory() as temporary:
        paths = []
        for number, image in enumerate(photographs(directory, 640, 800, IMAGES)):
            paths.append(str(Path(temporary) / f"{number:03}.jpg"))
            cv2.imwrite(paths[-1], image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])

        def run(decode: loading.Decoder) -> list[Any]:
            images = ((image, None) for image in loading.open_images(paths, target, decode))
            features = dict(dispatch.extract_each(images, options, device, 10**9))
            return [features[i] for i in range(len(paths))]

        def decode_only(decode: loading.Decoder) -> None:
            for _ in loading.open_images(paths, target, decode):
                pass

        results = {}
        for decode in ("cpu", "gpu") if nvjpeg(device) else ("cpu",):
            log(f"JPEG files, decoded by the {decode}")
            report[f"images a second, decoded by the {decode}"] = IMAGES / _seconds(
                partial(run, decode)
            )
            report[f"images a second, decoding by the {decode} alone"] = IMAGES / _seconds(
                partial(decode_only, decode), 1
            )
            results[decode] = run(decode)
    if "gpu" in results:
        pairs = list(zip(results["cpu"], results["gpu"], strict=True))[:32]
        report["frames that both decoders lead to"] = float(
            np.mean([compared(*both)[0] for both in pairs])
        )
    graphs.clear()
    return report


def nvjpeg(device: str) -> bool:
    """Return whether the device can decode JPEGs."""
    target = devices.resolve(device)
    if target is None or target.type != "cuda":
        return False
    encoded = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1]
    try:
        return loading.by_nvjpeg([torch.from_numpy(encoded.ravel())], target)[0] is not None
    except ImportError:
        return False


def pairs(directory: Path, device: str, log: Log) -> Report:
    """Return pairs of 4,096 x 4,096 features matched per second, and agreement with the CPU."""
    log("pairs")
    images = photographs(directory, 1080, 1920, _PAIRED)
    features = [
        extracted[:MATCHED]
        for extracted in pipeline.extract_many(images, max_features=MATCHED, device=device)
    ]
    features = [_filled(f) for f in features]
    all_pairs = [(a, b) for i, a in enumerate(features) for b in features[i + 1 :]]
    disjoint = list(zip(features[::2], features[1::2], strict=True))
    report: Report = {"features": [len(f) for f in features], "pairs": len(all_pairs)}
    for name, image_pairs in (
        ("all pairs of images", all_pairs), ("pairs without an image twice", disjoint),
    ):  # fmt: skip
        took = _seconds(partial(pipeline.match, image_pairs, device=device))
        report[f"pairs a second, one list, {name}"] = len(image_pairs) / took
    took = _seconds(
        lambda: [pipeline.match(a, b, device=device) for a, b in disjoint], repetitions=30
    )
    report["pairs a second, one by one"] = len(disjoint) / took
    on_device = [_on_device(f, device) for f in features]
    device_pairs = [(a, b) for i, a in enumerate(on_device) for b in on_device[i + 1 :]]
    took = _seconds(lambda: pipeline.match(device_pairs, device=device))
    report["pairs a second, one list, features on the device"] = len(device_pairs) / took
    some_pairs = all_pairs[:40]
    both = [pipeline.match(some_pairs, device=d) for d in ("cpu", device)]
    sets = [[{tuple(p) for p in m.indices.tolist()} for m in matches] for matches in both]
    report["matches of 40 pairs, on the CPU"] = sum(map(len, sets[0]))
    report["matches that differ"] = sum(len(a ^ b) for a, b in zip(*sets, strict=True))
    return report


def _filled(features: Features) -> Features:
    """Return ``MATCHED`` features, with repetitions if there are fewer."""
    return features[np.arange(MATCHED) % len(features)]


def _on_device(features: Features, device: str) -> Any:
    from caloric.gpu.download import to_device

    return to_device(features, devices.resolve(device))


def views(directory: Path, device: str, log: Log) -> Report:
    """Return the milliseconds of all simulated views of two images of 800 x 640."""
    log("simulated views")
    images = photographs(directory, 640, 800, 2)
    took = _seconds(lambda: pipeline.extract_many(images, views=8, device=device), repetitions=9)
    one = _seconds(lambda: pipeline.extract(images[0], views=8, device=device), repetitions=9)
    features = pipeline.extract_many(images, views=8, device=device)
    graphs.clear()
    return {
        "milliseconds, both images": 1000 * took, "milliseconds, one image": 1000 * one,
        "features": [len(f) for f in features],
    }  # fmt: skip


WHOLE = 8000  # features of an image at most
_SCENES = 3  # that are photographed twice
_CASES: tuple[dict[str, Any], ...] = (
    {}, {"propagate": False}, {"refine": False}, {"views": 8}, {"views": 8, "propagate": False},
)  # fmt: skip


def whole_pairs(directory: Path, device: str, log: Log) -> Report:
    """Return the milliseconds of `match_images` for photographs of 800 x 640 and a view of each."""
    images = photographs(directory, 640, 800, _SCENES)
    corners = np.array([[0, 0], [799, 0], [799, 639], [0, 639]], np.float32)
    moved = corners + np.array([[40, 25], [-30, 10], [-15, -40], [20, -20]], np.float32)
    map_ = cv2.getPerspectiveTransform(corners, moved)
    views = [np.asarray(cv2.warpPerspective(image, map_, (800, 640))) for image in images]
    report: Report = {}
    for options in _CASES:
        name = ", ".join(f"{key}={value}" for key, value in options.items()) or "default"
        log(f"match_images: {name}")
        rows = []
        for a, b in zip(images, views, strict=True):
            match = partial(match_images, a, b, max_features=WHOLE, device=device, **options)
            took = _seconds(match, repetitions=9)
            rows.append({"milliseconds": 1000 * took, "inliers": len(match())})
        report[name] = {key: [row[key] for row in rows] for key in rows[0]}
    graphs.clear()
    return report


def _on_both(work: Callable[..., Any], device: str, repetitions: int) -> Report:
    """Return the milliseconds of ``work(device=...)`` on the CPU and on the device."""
    return {
        name: 1000 * _seconds(partial(work, device=d), repetitions=repetitions)
        for name, d in (("cpu", "cpu"), ("device", device))
    }


ALIGNED = (256, 512, 1024)  # side lengths of templates, in pixels
REFINED = 2000  # matches


def precision(directory: Path, device: str, log: Log) -> Report:
    """Return the milliseconds of alignment and refinement, on the CPU and on the device."""
    log("alignment and refinement")
    image = photographs(directory, 1536, 2048, 1)[0]
    report: Report = {}
    for side in ALIGNED:
        map_ = np.array([[1.02, 0.1, 300], [-0.1, 0.97, 250]])
        flags = cv2.WARP_INVERSE_MAP | cv2.INTER_CUBIC
        template = np.asarray(cv2.warpAffine(image, map_, (side, side), flags=flags))
        # Few repetitions: these calls take up to a second on a CPU.
        took = _on_both(partial(align.align, template, image), device, 5)
        expected, actual = (
            align.align(template, image, device=d).transform for d in ("cpu", device)
        )
        difference = float(np.abs(expected - actual).max())
        report[f"align {side} x {side} in 2048 x 1536"] = took | {"largest difference": difference}
    first = photographs(directory, 640, 800, 1)[0]
    second = np.asarray(
        cv2.warpAffine(first, np.array([[1.03, 0.04, -9], [-0.03, 1, 12]]), (800, 640))
    )
    a, b = pipeline.extract_many([first, second], max_features=2 * REFINED)
    rows = np.resize(pipeline.match(a, b).indices, (REFINED, 2))
    frames = a.frames.maps[rows[:, 0]], b.frames.maps[rows[:, 1]]
    refine = partial(pipeline.refine, first, second, *frames)
    report[f"refine {REFINED:,} matches"] = _on_both(refine, device, 9)
    graphs.clear()
    return report


def on_cpu(photographs: Path, log: Log) -> Report:
    """Return images per second of one process with two threads, for the same images."""
    report: Report = {}
    for name, (height, width, max_features) in SIZES.items():
        log(f"on the CPU: {name}")
        images = gray_photographs(photographs, height, width, 4)
        with setting(CALORIC_THREADS="2"):
            pipeline.extract(images[0], max_features=max_features)
            started = time.perf_counter()
            for image in images:
                pipeline.extract(image, max_features=max_features)
            took = (time.perf_counter() - started) / len(images)
        report[name] = {"images a second": 1 / took, "compiled core": native.core() is not None}
    return report
