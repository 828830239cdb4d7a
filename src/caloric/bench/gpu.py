"""``caloric bench gpu``: images, frames and pairs a second, as shares of what a GPU can do."""

import logging
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from caloric import pipeline as extraction
from caloric.alignment import align
from caloric.bench import datasets
from caloric.bench.report import versions
from caloric.bench.speed import setting
from caloric.descriptor.recipes import descriptor
from caloric.detector.detection import Options
from caloric.errors import InputError
from caloric.features import Features
from caloric.gpu import (
    batches,
    density,
    devices,
    extrema,
    graphs,
    host,
    orientation,
    pipeline,
    pooling,
    scalespace,
    stream,
)
from caloric.gpu import neighbours as matching_there
from caloric.gpu.reader import Reader
from caloric.image.pixels import to_grey
from caloric.image.reading import read_image
from caloric.plan import Plan
from caloric.runtime import native, threads

Report = dict[str, Any]
Told = Callable[[str], None]
Pixels = NDArray[np.float32]
SIZES = {"800 x 640, 2,000 features": (640, 800, 2000), "1920 x 1080, 4,000": (1080, 1920, 4000)}
BATCHES = (1, 8, 32)
MATCHED = 4096
FRAMES = 65_536


def _photographs(folder: Path, height: int, width: int, count: int) -> list[Pixels]:
    """Photographs of a folder, of one size; of a small one a part is enlarged."""
    paths = datasets.photographs(folder)
    if not paths:
        raise InputError(f"{folder}: photographs (.jpg, .png) are needed in it")
    found = []
    for path in paths[:count]:
        grey = to_grey(read_image(path))
        grow = max(height / grey.shape[0], width / grey.shape[1])
        how = cv2.INTER_AREA if grow < 1 else cv2.INTER_CUBIC
        size = (max(width, round(grey.shape[1] * grow)), max(height, round(grey.shape[0] * grow)))
        found.append(np.clip(cv2.resize(grey, size, interpolation=how)[:height, :width], 0, 1))
    return [np.ascontiguousarray(found[i % len(found)]) for i in range(count)]


def milliseconds(run: Callable[[], Any], device: Any, least: int = 5, budget: float = 1.0) -> float:
    """The median over repetitions: see :func:`timings`."""
    return statistics.median(timings(run, device, least, budget))


def timings(
    run: Callable[[], Any], device: Any, least: int = 5, budget: float = 1.0
) -> list[float]:
    """Milliseconds of repetitions after warming up, each waited for."""
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
    """What the device copies and multiplies, measured here."""
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


def stages(images: Any, plan: Plan) -> Report:
    """Milliseconds an image of each step, and of the bytes that pyramids must at least move."""
    device, count = images.device, len(images)
    pyramid, fused = scalespace.pyramid(*images.shape[1:]), pipeline.fusing(device)
    rows = scalespace.build(images, pyramid, fused)
    capacity = pipeline.room(pyramid.size)
    thresholds = (plan.options.contrast, plan.options.edge, capacity, fused)
    found = extrema.find(rows, pyramid, *thresholds)
    most = plan.options.max_features or 0
    places, strengths = extrema.strongest(found, most)
    maps = pipeline.upright(places, strengths)
    reader = Reader(rows, pyramid, most, fused)
    recipe, kind = plan.recipe, pipeline.product_type(plan, device)
    table = pooling.table(
        recipe.kernel, recipe.layout, recipe.sampling, recipe.harmonics, device, kind
    )
    flat = maps.view(-1, 2, 3)

    def seen() -> Any:
        return reader.harmonics(
            flat, recipe.sampling, recipe.kernel, recipe.power, table.order, 0, kind
        )

    measured = seen()
    raw = pooling.pool(measured, table)
    runs: dict[str, Callable[[], Any]] = {
        "pyramid": lambda: scalespace.build(images, pyramid, fused),
        "extrema": lambda: extrema.find(rows, pyramid, *thresholds),
        "strongest": lambda: extrema.strongest(found, most),
        "directions": lambda: orientation.turned(reader, maps, strengths, most),
        "density": seen,
        "table": lambda: pooling.pool(measured, table),
        "normalised, whitened": lambda: pooling.finish(raw, recipe),
    }
    # Each level is read once and written once; extrema read all of them again.
    return {
        "milliseconds an image": {
            name: milliseconds(run, device, budget=0.3) / count for name, run in runs.items()
        },
        "gigabytes an image of the pyramid": 8 * pyramid.total / 1e9,
        "gigabytes an image of the densities": measured[0].nbytes * most / 1e9,
        # Pyramids written and read, read again for extrema; densities written and read.
        "gigabytes an image at least": (12 * pyramid.total + 2 * measured[0].nbytes * most) / 1e9,
    }  # fmt: skip


def _resident(images: Any, plan: Plan) -> Callable[[], Any]:
    """Everything on the device, in one recording."""

    def run() -> Any:
        with torch.no_grad():
            return graphs.replayed(images, plan)

    return run


def _to_host(run: Callable[[], Any], plan: Plan, size: tuple[int, int]) -> Any:
    return host.to_host(run(), plan, size)


def throughput(photographs: Path, device: Any, told: Told) -> Report:
    """Images a second by size and batch: on the device alone, and with the result on the host."""
    report: Report = {}
    for name, (height, width, most) in SIZES.items():
        told(name)
        plan = Plan(descriptor("caloric"), Options(max_features=most))
        arrays = _photographs(photographs, height, width, max(BATCHES))
        own: Report = {}
        for count in BATCHES:
            images = torch.from_numpy(np.stack(arrays[:count])).to(device)
            run = _resident(images, plan)
            times = timings(run, device)
            on_device = statistics.median(times)
            out = milliseconds(partial(_to_host, run, plan, (height, width)), device)
            own[str(count)] = {
                "milliseconds a batch": on_device,
                "milliseconds a batch, mean": statistics.fmean(times),
                "images a second": 1000 * count / on_device,
                "images a second, results on the host": 1000 * count / out,
            }
        own["stages"] = stages(images, plan)
        graphs.forget()
        report[name] = own
    return report


def describing(photographs: Path, device: Any) -> Report:
    """Frames a second by description alone: density, table, normalisation, whitening."""
    plan = Plan(descriptor("caloric"), Options(max_features=2000))
    (image,) = _photographs(photographs, 640, 800, 1)
    with torch.no_grad():
        images = torch.from_numpy(image)[None].to(device)
        pyramid, fused = scalespace.pyramid(640, 800), pipeline.fusing(device)
        rows = scalespace.build(images, pyramid, fused)
        frames = graphs.replayed(images, plan).maps[0]
        maps = frames.repeat(-(-FRAMES // len(frames)), 1, 1)[:FRAMES].contiguous()
        reader = Reader(rows, pyramid, FRAMES, fused)
        report: Report = {"frames": FRAMES, "samples": len(plan.recipe.sampling.areas())}
        for harmonics in (plan.recipe.harmonics, 6):
            recipe = replace(plan.recipe, harmonics=harmonics)
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


def pairing(device: Any) -> Report:
    """Pairs of 4,096 x 4,096 descriptors a second."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((MATCHED, 128)).astype(np.float32) for _ in range(2))
    left, right = (
        torch.from_numpy(v / np.linalg.norm(v, axis=1)[:, None]).to(device) for v in (a, b)
    )
    places = torch.from_numpy(rng.uniform(0, 1000, (MATCHED, 2)).astype(np.float32)).to(device)
    report: Report = {}
    for name, xy in (("ratio to the second", None), ("ratio beyond 10 pixels", places)):
        took = milliseconds(partial(matching_there.nearest_rows, left, right, xy, 10.0), device)
        report[name] = {
            "milliseconds": took, "pairs a second": 1000 / took,
            "teraflops": 2 * MATCHED * MATCHED * 128 / took / 1e9,
        }  # fmt: skip
    return report


def agreement(photographs: Path, device_name: str, told: Told, count: int = 8) -> Report:
    """The device's frames and descriptors beside the CPU's, of the same images."""
    near, cosines = [], []
    for image in _photographs(photographs, 640, 800, count):
        told("agreement with the CPU")
        here = extraction.extract(image, max_features=2000)
        there = extraction.extract(image, max_features=2000, device=device_name)
        common, own = compared(here, there)
        near.append(common)
        cosines.append(own)
    every = np.concatenate(cosines)
    adapted, of_adapted = compared(
        *(extraction.extract(image, max_features=1000, affine=True, device=d)
          for d in ("cpu", device_name))
    )  # fmt: skip
    here = extraction.extract(image, max_features=1000)
    described = {}
    for name in ("caloric", "heat", "dsp-inner", "distribution-field"):
        a, b = (
            np.asarray(extraction.describe(image, here.frames, name, device=d), np.float64)
            for d in ("cpu", device_name)
        )
        described[name] = float(
            ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()
        )
    other = extraction.extract(np.ascontiguousarray(np.rot90(image)), max_features=1000)
    pairs = [extraction.match(here, other, device=d).indices for d in ("cpu", device_name)]
    common = len({tuple(p) for p in pairs[0].tolist()} & {tuple(p) for p in pairs[1].tolist()})
    moved = [
        align.align(image[200:300, 300:420], image, device=d).transform
        for d in ("cpu", device_name)
    ]
    return {
        "affine frames": adapted,
        "lowest cosine of affine frames": float(of_adapted.min()),
        "lowest cosine at the same frames": described,
        "matches": [len(pairs[0]), common],
        "largest difference of an alignment": float(np.abs(moved[0] - moved[1]).max()),
        "images": count,
        "frames within 0.05 px and 1 % of scale": float(np.mean(near)),
        "least share of an image": float(np.min(near)),
        "lowest cosine of common frames": float(every.min()),
        "common frames with a cosine of 0.9999": float((every >= 0.9999).mean()),
    }


def compared(here: Features, there: Features) -> tuple[float, NDArray[np.float64]]:
    """The share of frames that have one within 0.05 pixels and 1 % of scale, and the cosines of
    the descriptors of those whose direction is the same to 0.01."""
    from scipy.spatial import cKDTree

    tree = cKDTree(there.frames.xy)
    found, cosines = 0, []
    for i, near in enumerate(tree.query_ball_point(here.frames.xy, 0.05)):
        ratio = np.abs(there.frames.sigma[near] / here.frames.sigma[i] - 1)
        own = np.array(near, int)[ratio < 0.01]
        found += len(own) > 0
        turn = there.frames.angle[own] - here.frames.angle[i]
        own = own[np.abs((turn + np.pi) % (2 * np.pi) - np.pi) < 0.01]
        if len(own):
            pairs = there.descriptors[own].astype(float) @ here.descriptors[i].astype(float)
            cosines.append(float(pairs.max()))
    return found / max(len(here), 1), np.array(cosines)


def on_cpu(photographs: Path, told: Told) -> Report:
    """One process with two threads, of the same images, on this machine."""
    report: Report = {}
    for name, (height, width, most) in SIZES.items():
        told(f"on the CPU: {name}")
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
    """Each kernel beside its plain form, on the device: |difference| / |plain form|."""
    from caloric.gpu import density_kernels

    images = torch.from_numpy(np.stack(_photographs(photographs, 300, 401, 3))).to(device)
    pyramid = scalespace.pyramid(300, 401)

    def apart(found: Any, plain: Any) -> float:
        return float((found - plain).double().norm() / plain.double().norm())

    plain = scalespace.build(images, pyramid)
    report = {"pyramid": apart(scalespace.build(images, pyramid, fused=True), plain)}
    options = Options()
    capacity = pipeline.room(pyramid.size)
    both = (
        extrema.find(plain, pyramid, options.contrast, options.edge, capacity, fused=True),
        extrema.find(plain, pyramid, options.contrast, options.edge),
    )
    (places, strengths), (expected, known) = (extrema.strongest(one, 500) for one in both)
    there = known > 0
    report["extrema: strengths"] = apart(strengths, known)
    report["extrema: places"] = apart(places[there], expected[there])
    maps = pipeline.upright(expected, known)
    maps[..., 0, 1] = 0.3 * maps[..., 0, 0]
    flat = maps.view(-1, 2, 3)
    image = torch.arange(len(flat), device=device) // 500
    recipes = [(name, descriptor(name).power) for name in ("caloric", "heat", "distribution-field")]
    for name, power in [*recipes, ("caloric", 0.7), ("caloric", 0.5)]:
        recipe = descriptor(name)
        what = (recipe.sampling, recipe.kernel, power, 6)
        found = density_kernels.measured(plain, pyramid, flat, 0, 500, *what, torch.float32)
        expected = density.measured(plain, pyramid, flat, image, *what)
        report[f"density: {name}, power {power:g}"] = apart(found, expected)
    return report


def out_of_memory(photographs: Path, device_name: str) -> Report:
    """With room for a few images alone: batches are halved, and the results are the same."""
    images = _photographs(photographs, 640, 800, 16)
    expected = extraction.extract(images, max_features=500, device=device_name)
    graphs.forget()
    device = devices.resolve(device_name)
    total = torch.cuda.get_device_properties(device).total_memory
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    batches.log.addHandler(handler)
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.2e9 / total), device)
    try:
        found = extraction.extract(images, max_features=500, device=device_name)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        batches.log.removeHandler(handler)
        graphs.forget()
    # How many go at once decides in which order a product is summed, and so on the last bits.
    lowest = min(
        float(np.einsum("ij,ij->i", *(np.asarray(v.descriptors, np.float32) for v in (a, b))).min())
        for a, b in zip(expected, found, strict=True)
    )
    return {"told": told, "images": len(images), "lowest cosine to all at once": lowest}


def folder(photographs: Path, device_name: str) -> Report:
    """Images a second from files to features in memory: decoded, copied, extracted, copied back."""
    paths = sorted(str(p) for p in photographs.rglob("*.jpg"))
    files = paths * max(1, 512 // len(paths))
    plan = Plan.of("caloric", descriptor("caloric"), Options(max_features=2000))

    def run(decode: str) -> list[Any]:
        images = ((one, None) for one in stream.opened(files, device_name, decode))
        found = dict(extraction.extract_each(images, plan, device_name, 10**9))
        return [found[i] for i in range(len(files))]

    sizes = [read_image(path).shape for path in paths]
    report: Report = {
        "files": len(files), "megapixels": float(np.mean([s[0] * s[1] for s in sizes])) / 1e6,
    }  # fmt: skip
    results = {}
    there = stream.by_nvjpeg(paths[0], devices.resolve(device_name)) is not None
    for decode in ("cpu", "gpu") if there else ("cpu",):
        run(decode)
        started = time.perf_counter()
        results[decode] = run(decode)
        report[f"images a second, decoded by the {decode}"] = len(files) / (
            time.perf_counter() - started
        )
    if there:
        near = [compared(*both)[0] for both in zip(results["cpu"], results["gpu"], strict=True)]
        report["frames that both decoders lead to"] = float(np.mean(near[: len(paths)]))
    return report


def accuracy(oxford: Path, device_name: str, told: Told) -> Report:
    """mAP on Oxford Affine by the device and by the CPU, at OpenCV's keypoints and at our own."""
    from caloric.bench import evaluate, methods

    chosen = [
        methods.ours("caloric", f"{where}{', own frames' if own else ''}", own, device=where)
        for own in (False, True)
        for where in ("cpu", device_name)
    ]
    results = evaluate.evaluate(datasets.oxford(oxford), chosen, None, told)
    return {r.method: float(np.mean(r.figures["mAP"])) for r in results}


def lines(report: Report) -> list[str]:
    """Return lines for the terminal: the rate of each image size and batch, beside the CPU's."""
    result = []
    for name, counts in report["images"].items():
        cpu = report["cpu"][name]["images a second"]
        for count, figures in counts.items():
            if count == "stages":
                continue
            rate = figures["images a second"]
            result.append(
                f"{name}, {count} at once: {figures['milliseconds a batch']:.2f} ms, "
                f"{rate:,.0f} images a second, {rate / cpu:.0f} times the CPU"
            )
    return result


def failures(report: Report) -> list[str]:
    """What of the things that must hold does not."""
    agreement, images = report["agreement"], report["images"]
    first, cpu = next(iter(images.items())), report["cpu"]
    rate = first[1][str(max(BATCHES))]["images a second"]
    described = report["description"]["6 harmonics, float16"]["million frames a second"]
    checks = {
        "99 % of frames are the CPU's": agreement["least share of an image"] >= 0.99,
        "cosines of common frames": agreement["lowest cosine of common frames"] >= 0.9999,
        "cosines of affine frames": agreement["lowest cosine of affine frames"] >= 0.9999,
        "cosines at the same frames": min(agreement["lowest cosine at the same frames"].values())
        >= 0.9999,
        "the same matches": agreement["matches"][0] == agreement["matches"][1],
        "kernels are their plain forms": all(v <= 1e-4 for v in report["kernels"].values()),
        "300 images a second": rate >= 300,
        "40 times two threads of a CPU": rate >= 40 * cpu[first[0]]["images a second"],
        "one image in 6 ms": first[1]["1"]["milliseconds a batch, mean"] <= 6,
        "5 million frames a second": described >= 5,
        "a batch that does not fit is halved": bool(report["out of memory"]["told"]),
        "and gives the same": report["out of memory"]["lowest cosine to all at once"] >= 0.9999,
    }
    if "oxford" in report:
        here, there, ours_here, ours_there = report["oxford"].values()
        checks["Oxford Affine to .003"] = (
            max(abs(here - there), abs(ours_here - ours_there)) <= 0.003
        )
    return [name for name, holds in checks.items() if not holds]


def _driver() -> str | None:
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.split("\n")[0].strip()


def run(
    photographs: Path,
    oxford: Path | None,
    device_name: str,
    commit: str | None,
    told: Told,
    keep: Callable[[Report], None],
) -> Report:
    """All of it; ``keep`` is given what is known so far, after each part."""
    device = devices.resolve(device_name)
    if device is None or device.type != "cuda":
        raise InputError("this benchmark needs a GPU that PyTorch sees")
    name = str(device)
    report: Report = {
        "about": {
            "device": torch.cuda.get_device_name(device), "driver": _driver(),
            "cuda": torch.version.cuda, "versions": versions(), "commit": commit,
            "threads": threads.count(), "compiled core": native.core() is not None,
        }
    }  # fmt: skip
    parts: dict[str, Callable[[], Report]] = {
        "limits": lambda: limits(device),
        "kernels": lambda: fused_kernels(photographs, device),
        "agreement": lambda: agreement(photographs, name, told),
        "images": lambda: throughput(photographs, device, told),
        "description": lambda: describing(photographs, device),
        "matching": lambda: pairing(device),
        "cpu": lambda: on_cpu(photographs, told),
        "folder": lambda: folder(photographs, name),
        "out of memory": lambda: out_of_memory(photographs, name),
    }
    if oxford is not None:
        parts["oxford"] = partial(accuracy, oxford, name, told)
    for part, measured in parts.items():
        told(part)
        report[part] = measured()
        keep(report)
    return report
