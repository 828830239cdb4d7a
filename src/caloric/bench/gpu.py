"""``caloric bench gpu``: images, frames and pairs per second, and the limits of the GPU."""

import logging
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from caloric import pipeline as extraction
from caloric.alignment import align
from caloric.bench import datasets, gpu_users
from caloric.bench.agreement import compared
from caloric.bench.gpu_users import MATCHED, SIZES
from caloric.bench.report import versions
from caloric.bench.speed import setting
from caloric.descriptor.recipes import descriptor
from caloric.errors import InputError
from caloric.gpu import (
    backend,
    batches,
    cuda_streams,
    density,
    devices,
    extrema,
    graphs,
    orientation,
    pipeline,
    pooling,
    scalespace,
)
from caloric.gpu import neighbours as gpu_neighbours
from caloric.gpu.neighbours import Set
from caloric.gpu.pyramid import Measurement, Owners, pyramid
from caloric.gpu.reader import Reader
from caloric.image.pixels import to_grey
from caloric.options import ExtractOptions
from caloric.runtime import native, threads

Report = dict[str, Any]
Progress = Callable[[str], None]
Pixels = NDArray[np.float32]
BATCHES = (1, 8, 32)
FRAMES = 65_536


def _photographs(folder: Path, height: int, width: int, count: int) -> list[Pixels]:
    """Return ``count`` different photographs of one size, grey."""
    return [to_grey(image) for image in gpu_users.photographs(folder, height, width, count)]


def milliseconds(run: Callable[[], Any], device: Any, least: int = 5, budget: float = 1.0) -> float:
    """Return the median of :func:`timings`."""
    return statistics.median(timings(run, device, least, budget))


def timings(
    run: Callable[[], Any], device: Any, least: int = 5, budget: float = 1.0
) -> list[float]:
    """Return the milliseconds of synchronised repetitions, after three to warm up."""
    for _ in range(3):
        run()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < least or (time.perf_counter() - began < budget and len(times) < 200):
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
    """Return the milliseconds per image of each stage, and the least memory traffic per image."""
    device, count = images.device, len(images)
    layout, stage = pyramid(*images.shape[1:]), backend.of(device)
    rows = stage.build(images, layout)
    thresholds = (options.lowest, options.edge, pipeline.room(layout.size))
    candidates = stage.find(rows, layout, *thresholds)
    most = options.max_features or 0
    places, strengths = extrema.strongest(candidates, most)
    maps = pipeline.upright(places, strengths)
    reader = Reader(rows, layout, most)
    recipe, kind = options.recipe, pipeline.product_type(device)
    table = pooling.table(
        recipe.kernel, recipe.layout, recipe.sampling, recipe.harmonics, device, kind
    )
    flat = maps.view(-1, 2, 3)

    def measure() -> Any:
        what = Measurement(recipe.sampling, recipe.kernel, recipe.power, table.order)
        return reader.harmonics(flat, what, 0, kind)

    measured = measure()
    raw = pooling.pool(measured, table)
    runs: dict[str, Callable[[], Any]] = {
        "pyramid": lambda: stage.build(images, layout),
        "extrema": lambda: stage.find(rows, layout, *thresholds),
        "strongest": lambda: extrema.strongest(candidates, most),
        "directions": lambda: orientation.turned(reader, maps, strengths, most),
        "density": measure,
        "table": lambda: pooling.pool(measured, table),
        "normalised, whitened": lambda: pooling.finish(raw, recipe),
    }
    return {
        "milliseconds an image": {
            name: milliseconds(run, device, budget=0.3) / count for name, run in runs.items()
        },
        "gigabytes an image of the pyramid": 8 * layout.total / 1e9,
        "gigabytes an image of the densities": measured[0].nbytes * most / 1e9,
        # Pyramids are written, and read twice, also for extrema; densities are written and read.
        "gigabytes an image at least": (12 * layout.total + 2 * measured[0].nbytes * most) / 1e9,
    }  # fmt: skip


def _resident(images: Any, options: ExtractOptions) -> Callable[[], Any]:
    """Return a function that runs the whole pipeline on the device, as one recorded graph."""

    def run() -> Any:
        with torch.no_grad(), cuda_streams.using(images.device):
            return graphs.run(images, options, None)

    return run


def throughput(photographs: Path, device: Any, progress: Progress) -> Report:
    """Return images per second by size and batch, with results on the device or on the host."""
    report: Report = {}
    for name, (height, width, most) in SIZES.items():
        progress(name)
        options = ExtractOptions(max_features=most)
        arrays = _photographs(photographs, height, width, max(BATCHES))
        figures: Report = {}
        for count in BATCHES:
            images = torch.from_numpy(np.stack(arrays[:count])).to(device)
            run = _resident(images, options)
            times = timings(run, device)
            on_device = statistics.median(times)
            figures[str(count)] = {
                "milliseconds a batch": on_device,
                "milliseconds a batch, mean": statistics.fmean(times),
                "images a second": 1000 * count / on_device,
            }
        figures["stages"] = stages(images, options)
        graphs.forget()
        report[name] = figures
    return report


def describing(photographs: Path, device: Any) -> Report:
    """Return frames per second of the description alone, from density to whitening."""
    options = ExtractOptions(max_features=2000)
    (image,) = _photographs(photographs, 640, 800, 1)
    with torch.no_grad():
        images = torch.from_numpy(image)[None].to(device)
        layout = pyramid(640, 800)
        rows = backend.of(device).build(images, layout)
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
    """Return how often a second the device searches 4,096 x 4,096 descriptors, 64 at once."""
    rng = np.random.default_rng(0)
    count, sets = 64, 16
    values = rng.standard_normal((sets, MATCHED, 128)).astype(np.float32)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    xy = rng.uniform(0, 1000, (sets, MATCHED, 2))
    report: Report = {}
    for name, placed in (("ratio to the second", False), ("ratio beyond 10 pixels", True)):
        on_device = [
            Set(torch.tensor(v, device=device), torch.tensor(p, device=device) if placed else None)
            for v, p in zip(values, xy, strict=True)
        ]
        pairs = [(i % sets, (i + 1 + i // sets) % sets) for i in range(count)]

        def run(on_device: list[Set] = on_device, pairs: Any = pairs) -> None:
            for _ in gpu_neighbours.neighbours(on_device, pairs, 10.0, device):
                pass

        took = milliseconds(run, device) / count
        report[name] = {
            "milliseconds": took, "pairs a second": 1000 / took,
            "teraflops": 2 * MATCHED * MATCHED * 128 / took / 1e9,
        }  # fmt: skip
    return report


def agreement(photographs: Path, device_name: str, progress: Progress, count: int = 8) -> Report:
    """Return how well frames and descriptors of the device agree with those of the CPU."""
    shares, cosines = [], []
    for image in _photographs(photographs, 640, 800, count):
        progress("agreement with the CPU")
        on_host = extraction.extract(image, max_features=2000)
        on_device = extraction.extract(image, max_features=2000, device=device_name)
        common, image_cosines = compared(on_host, on_device)
        shares.append(common)
        cosines.append(image_cosines)
    all_cosines = np.concatenate(cosines)
    affine_share, affine_cosines = compared(
        *(extraction.extract(image, max_features=1000, affine=True, device=d)
          for d in ("cpu", device_name))
    )  # fmt: skip
    on_host = extraction.extract(image, max_features=1000)
    described = {}
    for name in ("caloric", "heat", "dsp-inner", "distribution-field"):
        a, b = (
            np.asarray(extraction.describe(image, on_host.frames, name, device=d), np.float64)
            for d in ("cpu", device_name)
        )
        described[name] = float(
            ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()
        )
    other = extraction.extract(np.ascontiguousarray(np.rot90(image)), max_features=1000)
    pairs = [extraction.match(on_host, other, device=d).indices for d in ("cpu", device_name)]
    common = len({tuple(p) for p in pairs[0].tolist()} & {tuple(p) for p in pairs[1].tolist()})
    transforms = [
        align.align(image[200:300, 300:420], image, device=d).transform
        for d in ("cpu", device_name)
    ]
    return {
        "affine frames": affine_share,
        "lowest cosine of affine frames": float(affine_cosines.min()),
        "lowest cosine at the same frames": described,
        "matches": [len(pairs[0]), common],
        "largest difference of an alignment": float(np.abs(transforms[0] - transforms[1]).max()),
        "images": count,
        "frames within 0.05 px and 1 % of scale": float(np.mean(shares)),
        "least share of an image": float(np.min(shares)),
        "lowest cosine of common frames": float(all_cosines.min()),
        "common frames with a cosine of 0.9999": float((all_cosines >= 0.9999).mean()),
    }


def on_cpu(photographs: Path, progress: Progress) -> Report:
    """Return images per second of one process with two threads, for the same images."""
    report: Report = {}
    for name, (height, width, most) in SIZES.items():
        progress(f"on the CPU: {name}")
        images = _photographs(photographs, height, width, 4)
        with setting(CALORIC_THREADS="2"):
            extraction.extract(images[0], max_features=most)
            started = time.perf_counter()
            for image in images:
                extraction.extract(image, max_features=most)
            took = (time.perf_counter() - started) / len(images)
        report[name] = {"images a second": 1 / took, "compiled core": native.core() is not None}
    return report


def fused_kernels(photographs: Path, device: Any) -> Report:
    """Return the relative difference of each fused kernel to its plain form, on the device."""
    images = torch.from_numpy(np.stack(_photographs(photographs, 300, 401, 3))).to(device)
    layout, compiled = pyramid(300, 401), backend.of(device)

    def difference(fused: Any, plain: Any) -> float:
        return float((fused - plain).double().norm() / plain.double().norm())

    plain = scalespace.build(images, layout)
    report = {"pyramid": difference(compiled.build(images, layout), plain)}
    options = ExtractOptions(max_features=None)
    thresholds = (options.lowest, options.edge, pipeline.room(layout.size))
    both = (find(plain, layout, *thresholds) for find in (compiled.find, extrema.find))
    (places, strengths), (expected, known) = (extrema.strongest(points, 500) for points in both)
    valid = known > 0
    report["extrema: strengths"] = difference(strengths, known)
    report["extrema: places"] = difference(places[valid], expected[valid])
    maps = pipeline.upright(expected, known)
    maps[..., 0, 1] = 0.3 * maps[..., 0, 0]
    flat = maps.view(-1, 2, 3)
    recipes = [(name, descriptor(name).power) for name in ("caloric", "heat", "distribution-field")]
    for name, power in [*recipes, ("caloric", 0.7), ("caloric", 0.5)]:
        recipe = descriptor(name)
        what = Measurement(recipe.sampling, recipe.kernel, power, 6)
        arguments = (plain, layout, flat, Owners(0, 500), what, torch.float32)
        densities = (compiled.harmonics(*arguments), density.measured(*arguments))
        report[f"density: {name}, power {power:g}"] = difference(*densities)
    return report


def out_of_memory(photographs: Path, device_name: str) -> Report:
    """Return what happens with memory for a few images only: halved batches, the same results."""
    images = _photographs(photographs, 640, 800, 16)
    expected = extraction.extract_many(images, max_features=500, device=device_name)
    graphs.forget()
    device = devices.resolve(device_name)
    total = torch.cuda.get_device_properties(device).total_memory
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    batches.log.addHandler(handler)
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.2e9 / total), device)
    try:
        results = extraction.extract_many(images, max_features=500, device=device_name)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        batches.log.removeHandler(handler)
        graphs.forget()
    # The batch size changes the order of summation in products, and so the last bits.
    lowest = min(
        float(np.einsum("ij,ij->i", *(np.asarray(v.descriptors, np.float32) for v in (a, b))).min())
        for a, b in zip(expected, results, strict=True)
    )
    return {"told": messages, "images": len(images), "lowest cosine to all at once": lowest}


def accuracy(oxford: Path, device_name: str, progress: Progress) -> Report:
    """Return the mAP on Oxford Affine on both devices, at OpenCV's and at Caloric's keypoints."""
    from caloric.bench import evaluate, methods

    chosen = [
        methods.ours(
            "caloric", f"{device}{', own frames' if detects else ''}", detects, device=device
        )
        for detects in (False, True)
        for device in ("cpu", device_name)
    ]
    results = evaluate.evaluate(datasets.oxford(oxford), chosen, None, progress)
    return {r.method: float(np.mean(r.figures["mAP"])) for r in results}


def lines(report: Report) -> list[str]:
    """Return lines for the terminal: what users get first, then the device alone."""
    result = []
    for name, figures in report["arrays"].items():
        cpu = report["cpu"][name]["images a second"]
        own = figures["colour"]
        rate = own["images a second, one list"]
        result.append(
            f"{name}, NumPy arrays to features: {rate:,.0f} images a second in one list "
            f"({rate / cpu:.0f} times two threads of the CPU), "
            f"{own['images a second, calls of 8']:,.0f} in calls of 8, "
            f"{own['milliseconds, one by one, mean']:.1f} ms one by one"
        )
    files, pairs = report["files"], report["pairs"]
    rates = [
        f"{value:,.0f} images a second, {name.partition(', ')[2]}"
        for name, value in files.items()
        if "decoded by" in name
    ]
    result.append(f"JPEG files of 800 x 640 to features: {'; '.join(rates)}")
    result.append(
        "pairs of 4,096 x 4,096 features: "
        f"{pairs['pairs a second, one list, all pairs of images']:,.0f} a second in one list, "
        f"{pairs['pairs a second, one by one']:,.0f} one by one"
    )
    both = report["views"]["milliseconds, both images"]
    result.append(f"all simulated views of two images: {both:.0f} ms")
    for name, one in report["precision"].items():
        result.append(f"{name}: {one['device']:.0f} ms, {one['cpu']:.0f} ms on the CPU")
    for name, counts in report["images"].items():
        for count, figures in counts.items():
            if count != "stages":
                result.append(
                    f"{name}, the device alone, {count} at once: "
                    f"{figures['milliseconds a batch']:.2f} ms, "
                    f"{figures['images a second']:,.0f} images a second"
                )
    return result


def failures(report: Report) -> list[str]:
    """Return the names of the requirements that do not hold."""
    agreement, pairs, files = report["agreement"], report["pairs"], report["files"]
    small, large = (report["arrays"][name]["colour"] for name in SIZES)
    stages = report["images"][next(iter(SIZES))]["stages"]["milliseconds an image"]
    described = report["description"]["6 harmonics, float16"]["million frames a second"]
    nvjpeg = files.get("images a second, decoded by the gpu", np.inf)
    checks = {
        "99 % of frames are the CPU's": agreement["least share of an image"] >= 0.99,
        "cosines of common frames": agreement["lowest cosine of common frames"] >= 0.9999,
        "cosines of affine frames": agreement["lowest cosine of affine frames"] >= 0.9999,
        "cosines at the same frames": min(agreement["lowest cosine at the same frames"].values())
        >= 0.9999,
        "the same matches": agreement["matches"][0] == agreement["matches"][1],
        "kernels are their plain forms": all(v <= 1e-4 for v in report["kernels"].values()),
        "1,500 arrays a second": small["images a second, one list"] >= 1500,
        "1,000 arrays a second in calls of 8": small["images a second, calls of 8"] >= 1000,
        "one array in 2 ms": small["milliseconds, one by one, mean"] <= 2,
        "700 arrays of 1920 x 1080 a second": large["images a second, one list"] >= 700,
        "600 files a second": files["images a second, decoded by the cpu"] >= 600,
        "1,000 files a second by nvJPEG": nvjpeg >= 1000,
        "pyramids in 150 µs": stages["pyramid"] <= 0.15,
        "4,000 pairs a second": pairs["pairs a second, one list, all pairs of images"] >= 4000,
        "the same pairs as the CPU": pairs["matches that differ"] == 0,
        "all views of two images in 60 ms": report["views"]["milliseconds, both images"] <= 60,
        "5 million frames a second": described >= 5,
        "a batch that does not fit is halved": bool(report["out of memory"]["told"]),
        "and gives the same": report["out of memory"]["lowest cosine to all at once"] >= 0.9999,
    }
    if "oxford" in report:
        cpu_map, gpu_map, own_cpu, own_gpu = report["oxford"].values()
        checks["Oxford Affine to .003"] = (
            max(abs(cpu_map - gpu_map), abs(own_cpu - own_gpu)) <= 0.003
        )
    return [name for name, holds in checks.items() if not holds]


def _driver() -> str | None:
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.split("\n")[0].strip()


def run(
    photographs: Path,
    oxford: Path | None,
    device_name: str,
    commit: str | None,
    progress: Progress,
    keep: Callable[[Report], None],
) -> Report:
    """Return the report of all parts; ``keep`` is called with the report after each part."""
    device = devices.resolve(device_name)
    if device is None or device.type != "cuda":
        raise InputError("this benchmark needs a GPU that PyTorch sees")
    _photographs(photographs, 64, 64, 1)  # raises an error before the work
    name = str(device)
    report: Report = {
        "about": {
            "device": torch.cuda.get_device_name(device), "driver": _driver(),
            "cuda": torch.version.cuda, "versions": versions(), "commit": commit,
            "threads": threads.count(), "compiled core": native.core() is not None,
        }
    }  # fmt: skip
    parts: dict[str, Callable[[], Report]] = {
        # What users get:
        "arrays": lambda: gpu_users.arrays(photographs, name, progress),
        "files": lambda: gpu_users.files(photographs, name, progress),
        "pairs": lambda: gpu_users.pairs(photographs, name, progress),
        "views": lambda: gpu_users.views(photographs, name, progress),
        "precision": lambda: gpu_users.precision(photographs, name, progress),
        "cpu": lambda: on_cpu(photographs, progress),
        "agreement": lambda: agreement(photographs, name, progress),
        "out of memory": lambda: out_of_memory(photographs, name),
        # The device alone:
        "limits": lambda: limits(device),
        "images": lambda: throughput(photographs, device, progress),
        "description": lambda: describing(photographs, device),
        "search": lambda: searching(device),
        "kernels": lambda: fused_kernels(photographs, device),
    }
    if oxford is not None:
        parts["oxford"] = partial(accuracy, oxford, name, progress)
    for part, measured in parts.items():
        progress(part)
        report[part] = measured()
        keep(report)
    return report
