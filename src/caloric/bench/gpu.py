"""``caloric bench gpu``: images and pairs per second on the CPU and on a GPU."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench import datasets
from caloric.bench.report import versions
from caloric.gpu import devices
from caloric.image.inputs import read_image
from caloric.image.pixels import to_gray
from caloric.runtime import threads
from caloric.types import Log, Pixels, Report

# Height, width and maximum number of features.
SIZES = {"800 x 640, 2,000 features": (640, 800, 2000), "1920 x 1080, 4,000": (1080, 1920, 4000)}
_IMAGES = {"cpu": 4, "device": 64}


def photographs(directory: Path, height: int, width: int, count: int) -> list[NDArray[np.uint8]]:
    """Return ``count`` different color images of one size.

    If the directory has fewer images, they are reused at increasing magnification.
    """
    paths = datasets.required_photographs(directory)
    images = []
    for number in range(count):
        pixels = read_image(paths[number % len(paths)])
        pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
        pixels = np.ascontiguousarray(pixels[..., :3])
        if pixels.dtype == np.uint16:
            pixels = np.right_shift(pixels.astype(np.uint16), 8)
        magnification = 1 + 0.1 * (number // len(paths))
        scale = magnification * max(height / pixels.shape[0], width / pixels.shape[1])
        size = [
            max(n, round(scale * p)) for n, p in ((width, pixels.shape[1]), (height, len(pixels)))
        ]
        interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        resized = cv2.resize(pixels.astype(np.uint8), size, interpolation=interpolation)
        top, left = (resized.shape[0] - height) // 2, (resized.shape[1] - width) // 2
        window = resized[top : top + height, left : left + width]
        images.append(np.ascontiguousarray(window, np.uint8))
    return images


def gray_photographs(directory: Path, height: int, width: int, count: int) -> list[Pixels]:
    """Return :func:`photographs` in grayscale."""
    return [to_gray(image) for image in photographs(directory, height, width, count)]


def _rate(work: Callable[[], object], count: int) -> float:
    """Return how many of ``count`` items a call processes per second, after a warm-up call."""
    work()
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def run(directory: Path, device: str, log: Log) -> Report:
    """Return images and pairs per second by size, on the CPU and on ``device``."""
    report: Report = {
        "device": devices.about(), "threads": threads.count(), "versions": versions(), "rates": {}
    }  # fmt: skip
    for name, (height, width, limit) in SIZES.items():
        rates = report["rates"][name] = {}
        for kind, target in (("cpu", "cpu"), ("device", device)):
            log(f"{name}: {target}")
            images = photographs(directory, height, width, _IMAGES[kind])
            extract = partial(pipeline.extract_many, images, max_features=limit, device=target)
            features = extract()
            pairs = list(zip(features, features[1:] + features[:1], strict=True))
            match = partial(pipeline.match, pairs, device=target)
            rates[kind] = {
                "images per second": _rate(extract, len(images)),
                "pairs per second": _rate(match, len(pairs)),
            }
    return report


def lines(report: Report) -> list[str]:
    """Return the report as lines for the terminal."""
    text = [f"PyTorch {report['device']}; CPU with {report['threads']} threads"]
    for name, rates in report["rates"].items():
        for what in ("images per second", "pairs per second"):
            cpu, device = (rates[kind][what] for kind in ("cpu", "device"))
            text.append(
                f"{name}: {device:,.0f} {what}, {cpu:,.1f} on the CPU (ratio {device / cpu:.1f})"
            )
    return text
