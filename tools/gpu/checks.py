"""Checks of the GPU code: agreement with the CPU, kernels, and behavior when memory runs out."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caloric import pipeline
from caloric.alignment import align
from caloric.bench import datasets
from caloric.bench.gpu import gray_photographs
from caloric.descriptor.recipes import descriptor
from caloric.gpu import backend, batches, density, devices, extrema, graphs, scalespace
from caloric.gpu import pipeline as gpu_pipeline
from caloric.gpu.pyramid import FrameBlock, Measurement, pyramid
from caloric.options import ExtractOptions
from caloric.types import Log, Report
from tools.gpu.agreement import compared


def agreement(photographs: Path, device_name: str, log: Log, count: int = 8) -> Report:
    """Return how well features, matches and alignments agree between the device and the CPU."""
    shares, cosines = [], []
    for image in gray_photographs(photographs, 640, 800, count):
        log("agreement with the CPU")
        on_host = pipeline.extract(image, max_features=2000)
        on_device = pipeline.extract(image, max_features=2000, device=device_name)
        common, image_cosines = compared(on_host, on_device)
        shares.append(common)
        cosines.append(image_cosines)
    all_cosines = np.concatenate(cosines)
    affine_share, affine_cosines = compared(
        *(pipeline.extract(image, max_features=1000, affine=True, device=d)
          for d in ("cpu", device_name))
    )  # fmt: skip
    on_host = pipeline.extract(image, max_features=1000)
    described = {}
    for name in ("caloric", "heat", "dsp-inner", "distribution-field"):
        a, b = (
            np.asarray(pipeline.describe(image, on_host.frames, name, device=d), np.float64)
            for d in ("cpu", device_name)
        )
        described[name] = float(
            ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min()
        )
    other = pipeline.extract(np.ascontiguousarray(np.rot90(image)), max_features=1000)
    pairs = [pipeline.match(on_host, other, device=d).indices for d in ("cpu", device_name)]
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


def fused_kernels(photographs: Path, device: Any) -> Report:
    """Return the relative difference of each Triton kernel to its PyTorch implementation."""
    images = torch.from_numpy(np.stack(gray_photographs(photographs, 300, 401, 3))).to(device)
    layout, compiled = pyramid(300, 401), backend.of(device)

    def difference(values: Any, plain: Any) -> float:
        return float((values - plain).double().norm() / plain.double().norm())

    plain = scalespace.build(images, layout)
    report = {"pyramid": difference(compiled.build(images, layout, None), plain)}
    options = ExtractOptions(max_features=None)
    thresholds = (options.lowest, options.edge, gpu_pipeline.default_capacity(layout.size))
    both = (find(plain, layout, *thresholds, None) for find in (compiled.find, extrema.find))
    (positions, strengths), (expected_positions, expected) = (
        extrema.strongest(peaks, 500) for peaks in both
    )
    valid = expected > 0
    report["extrema: strengths"] = difference(strengths, expected)
    report["extrema: positions"] = difference(positions[valid], expected_positions[valid])
    maps = gpu_pipeline.upright(expected_positions, expected)
    maps[..., 0, 1] = 0.3 * maps[..., 0, 0]
    flat = maps.view(-1, 2, 3)
    recipes = [(name, descriptor(name).power) for name in ("caloric", "heat", "distribution-field")]
    for name, power in [*recipes, ("caloric", 0.7), ("caloric", 0.5)]:
        recipe = descriptor(name)
        measurement = Measurement(recipe.sampling, recipe.kernel, power, 6)
        arguments = (plain, layout, flat, FrameBlock(0, 500), measurement, torch.float32, None)
        densities = (compiled.harmonics(*arguments), density.measure(*arguments))
        report[f"density: {name}, power {power:g}"] = difference(*densities)
    return report


def out_of_memory(photographs: Path, device_name: str) -> Report:
    """Return the log messages and the agreement of results with memory for a few images only."""
    images = gray_photographs(photographs, 640, 800, 16)
    expected = pipeline.extract_many(images, max_features=500, device=device_name)
    graphs.clear()
    device = devices.resolve(device_name)
    total = torch.cuda.get_device_properties(device).total_memory
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    batches.log.addHandler(handler)
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.2e9 / total), device)
    try:
        results = pipeline.extract_many(images, max_features=500, device=device_name)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        batches.log.removeHandler(handler)
        graphs.clear()
    # The batch size changes the order of summation in products, and so the last bits.
    lowest = min(
        float(np.einsum("ij,ij->i", *(np.asarray(v.descriptors, np.float32) for v in (a, b))).min())
        for a, b in zip(expected, results, strict=True)
    )
    return {"log": messages, "images": len(images), "lowest cosine to all at once": lowest}


def accuracy(oxford: Path, device_name: str, log: Log) -> Report:
    """Return the mAP on Oxford Affine on CPU and device, with OpenCV's and Caloric's keypoints."""
    from caloric.bench import evaluate, methods

    chosen = [
        methods.ours(
            "caloric", f"{device}{', own frames' if detects else ''}", detects, device=device
        )
        for detects in (False, True)
        for device in ("cpu", device_name)
    ]
    results = evaluate.evaluate(datasets.oxford(oxford), chosen, None, log)
    return {r.method: float(np.mean(r.metrics["mAP"])) for r in results}
