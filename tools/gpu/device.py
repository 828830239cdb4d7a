"""Measurements on the device only: its limits, the time of each stage, and rates."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caloric.bench.gpu import SIZES, gray_photographs
from caloric.gpu import backend, cuda_streams, extrema, graphs, orientation, pipeline, pooling
from caloric.gpu import neighbors as gpu_neighbors
from caloric.gpu.neighbors import Set
from caloric.gpu.pyramid import Measurement, pyramid
from caloric.gpu.reader import Reader
from caloric.options import ExtractOptions
from caloric.types import Log, Report
from tools.gpu.users import MATCHED

BATCHES = (1, 8, 32)
FRAMES = 65_536


def milliseconds(
    run: Callable[[], Any], device: Any, min_count: int = 5, budget: float = 1.0
) -> float:
    """Return the median of :func:`timings`."""
    return statistics.median(timings(run, device, min_count, budget))


def timings(
    run: Callable[[], Any], device: Any, min_count: int = 5, budget: float = 1.0
) -> list[float]:
    """Return the milliseconds of synchronized runs, after three warm-up runs."""
    for _ in range(3):
        run()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < min_count or (time.perf_counter() - start < budget and len(times) < 200):
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - started))
    return times


def limits(device: Any) -> Report:
    """Return the measured rates at which the device copies and multiplies."""
    source = torch.rand(1 << 28, device=device)
    target = torch.empty_like(source)
    copied = milliseconds(lambda: target.copy_(source), device)
    rates = {}
    for name, kind in (("half", torch.float16), ("float32", torch.float32)):
        square = torch.rand((8192, 8192), device=device).to(kind)
        rates[name] = 2 * 8192**3 / milliseconds(partial(torch.mm, square, square), device) / 1e9
    return {
        "copy, terabytes a second": 8 * source.numel() / copied / 1e9,
        "products, teraflops a second": rates,
    }


def stages(images: Any, options: ExtractOptions) -> Report:
    """Return the milliseconds per image of each stage, and the minimum memory traffic."""
    device, count = images.device, len(images)
    layout, stage = pyramid(*images.shape[1:]), backend.of(device)
    rows = stage.build(images, layout, None)
    thresholds = (options.lowest, options.edge, pipeline.default_capacity(layout.size))
    candidates = stage.find(rows, layout, *thresholds, None)
    limit = options.max_features or 0
    positions, strengths = extrema.strongest(candidates, limit)
    maps = pipeline.upright(positions, strengths)
    reader = Reader(rows, layout, limit)
    recipe, kind = options.recipe, pipeline.product_type(device)
    table = pooling.table(
        recipe.kernel, recipe.layout, recipe.sampling, recipe.harmonics, device, kind
    )
    flat = maps.view(-1, 2, 3)

    def measure() -> Any:
        measurement = Measurement(recipe.sampling, recipe.kernel, recipe.power, table.order)
        return reader.harmonics(flat, measurement, 0, kind)

    measured = measure()
    raw = pooling.pool(measured, table)
    runs: dict[str, Callable[[], Any]] = {
        "pyramid": lambda: stage.build(images, layout, None),
        "extrema": lambda: stage.find(rows, layout, *thresholds, None),
        "strongest": lambda: extrema.strongest(candidates, limit),
        "directions": lambda: orientation.oriented(reader, maps, strengths, limit),
        "density": measure,
        "table": lambda: pooling.pool(measured, table),
        "normalized, whitened": lambda: pooling.finish(raw, recipe),
    }
    return {
        "milliseconds an image": {
            name: milliseconds(run, device, budget=0.3) / count for name, run in runs.items()
        },
        "gigabytes an image of the pyramid": 8 * layout.total / 1e9,
        "gigabytes an image of the densities": measured[0].nbytes * limit / 1e9,
        # The pyramid is written once and read twice, the densities are written and read once.
        "gigabytes an image at least": (12 * layout.total + 2 * measured[0].nbytes * limit) / 1e9,
    }  # fmt: skip


def _resident(images: Any, options: ExtractOptions) -> Callable[[], Any]:
    """Return a function that runs the whole pipeline on the device as one recorded graph."""

    def run() -> Any:
        with torch.no_grad(), cuda_streams.using(images.device):
            return graphs.run(images, options, None)

    return run


def throughput(photographs: Path, device: Any, log: Log) -> Report:
    """Return images per second by image size and batch size, without transfers."""
    report: Report = {}
    for name, (height, width, max_features) in SIZES.items():
        log(name)
        options = ExtractOptions(max_features=max_features)
        arrays = gray_photographs(photographs, height, width, max(BATCHES))
        results: Report = {}
        for count in BATCHES:
            images = torch.from_numpy(np.stack(arrays[:count])).to(device)
            run = _resident(images, options)
            times = timings(run, device)
            on_device = statistics.median(times)
            results[str(count)] = {
                "milliseconds a batch": on_device,
                "milliseconds a batch, mean": statistics.fmean(times),
                "images a second": 1000 * count / on_device,
            }
        results["stages"] = stages(images, options)
        graphs.clear()
        report[name] = results
    return report


def describing(photographs: Path, device: Any) -> Report:
    """Return frames described per second, from density to whitening."""
    options = ExtractOptions(max_features=2000)
    (image,) = gray_photographs(photographs, 640, 800, 1)
    with torch.no_grad():
        images = torch.from_numpy(image)[None].to(device)
        layout = pyramid(640, 800)
        rows = backend.of(device).build(images, layout, None)
        frames = graphs.run(images, options, None).maps[0]
        maps = frames.repeat(-(-FRAMES // len(frames)), 1, 1)[:FRAMES].contiguous()
        reader = Reader(rows, layout, FRAMES)
        report: Report = {"frames": FRAMES, "samples": len(options.recipe.sampling.areas())}
        for harmonics in (options.recipe.harmonics, 6):
            recipe = replace(options.recipe, harmonics=harmonics)
            for kind in (torch.float16, torch.float32):
                work = partial(reader.described, maps, recipe, (1.0,), kind)
                took = milliseconds(work, device)
                rows, columns = pooling.table(
                    recipe.kernel, recipe.layout, recipe.sampling, harmonics, device, kind
                ).matrix.shape
                name = str(kind).removeprefix("torch.")
                report[f"{harmonics} harmonics, {name}"] = {
                    "milliseconds": took, "million frames a second": FRAMES / took / 1e3,
                    "table": [rows, columns], "teraflops": 2 * rows * columns * FRAMES / took / 1e9,
                }  # fmt: skip
    return report


def searching(device: Any) -> Report:
    """Return pairs of 4,096 x 4,096 descriptors searched per second, in groups of 64."""
    rng = np.random.default_rng(0)
    count, sets = 64, 16
    values = rng.standard_normal((sets, MATCHED, 128)).astype(np.float32)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    xy = rng.uniform(0, 1000, (sets, MATCHED, 2))
    report: Report = {}
    for name, with_xy in (("ratio to the second", False), ("ratio beyond 10 pixels", True)):
        on_device = [
            Set(torch.tensor(v, device=device), torch.tensor(p, device=device) if with_xy else None)
            for v, p in zip(values, xy, strict=True)
        ]
        pairs = [(i % sets, (i + 1 + i // sets) % sets) for i in range(count)]

        def run(on_device: list[Set] = on_device, pairs: Any = pairs) -> None:
            for _ in gpu_neighbors.neighbors(on_device, pairs, 10.0, device):
                pass

        took = milliseconds(run, device) / count
        report[name] = {
            "milliseconds": took, "pairs a second": 1000 / took,
            "teraflops": 2 * MATCHED * MATCHED * 128 / took / 1e9,
        }  # fmt: skip
    return report
