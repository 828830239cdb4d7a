"""A summary of the GPU benchmark for the terminal, and the requirements that are not met."""

import numpy as np

from caloric.bench.gpu import SIZES
from caloric.types import Report


def lines(report: Report) -> list[str]:
    """Return a summary in lines: public functions first, then the device only."""
    result = []
    for name, results in report["arrays"].items():
        cpu = report["cpu"][name]["images a second"]
        color = results["color"]
        rate = color["images a second, one list"]
        result.append(
            f"{name}, NumPy arrays to features: {rate:,.0f} images per second in one list "
            f"({rate / cpu:.0f} times as many as two CPU threads), "
            f"{color['images a second, calls of 8']:,.0f} in calls of 8, "
            f"{color['milliseconds, one by one, mean']:.1f} ms for a single image"
        )
    for name, rate in report["sizes"].items():
        result.append(f"{name}: {rate['images a second']:,.3g} images per second")
    files, pairs = report["files"], report["pairs"]
    rates = [
        f"{value:,.0f} images per second, {name.partition(', ')[2]}"
        for name, value in files.items()
        if "decoded by" in name
    ]
    result.append(f"JPEG files of 800 x 640 to features: {'; '.join(rates)}")
    result.append(
        "pairs of 4,096 x 4,096 features: "
        f"{pairs['pairs a second, one list, all pairs of images']:,.0f} per second in one list, "
        f"{pairs['pairs a second, one by one']:,.0f} in single calls"
    )
    both = report["views"]["milliseconds, both images"]
    result.append(f"all simulated views of two images: {both:.0f} ms")
    for name, case in report["whole pairs"].items():
        took = ", ".join(f"{v:.0f}" for v in case["milliseconds"])
        result.append(f"match_images, {name}: {took} ms")
    for name, one in report["precision"].items():
        result.append(f"{name}: {one['device']:.0f} ms, {one['cpu']:.0f} ms on the CPU")
    for name, counts in report["images"].items():
        for count, results in counts.items():
            if count != "stages":
                result.append(
                    f"{name}, device only, batches of {count}: "
                    f"{results['milliseconds a batch']:.2f} ms, "
                    f"{results['images a second']:,.0f} images per second"
                )
    return result


def failures(report: Report) -> list[str]:
    """Return the names of the requirements that are not met."""
    agreement, pairs, files = report["agreement"], report["pairs"], report["files"]
    small, large = (report["arrays"][name]["color"] for name in SIZES)
    stages = report["images"][next(iter(SIZES))]["stages"]["milliseconds an image"]
    described = report["description"]["6 harmonics, float16"]["million frames a second"]
    whole = report["whole pairs"]
    nvjpeg = files.get("images a second, decoded by the gpu", np.inf)
    checks = {
        "at least 99% of frames agree with the CPU": agreement["least share of an image"] >= 0.99,
        "cosines of common frames": agreement["lowest cosine of common frames"] >= 0.9999,
        "cosines of affine frames": agreement["lowest cosine of affine frames"] >= 0.9999,
        "cosines at the same frames": min(agreement["lowest cosine at the same frames"].values())
        >= 0.9999,
        "the same matches as on the CPU": agreement["matches"][0] == agreement["matches"][1],
        "Triton kernels agree with PyTorch": all(v <= 1e-4 for v in report["kernels"].values()),
        "1,500 arrays per second": small["images a second, one list"] >= 1500,
        "1,000 arrays per second in calls of 8": small["images a second, calls of 8"] >= 1000,
        "one array in 2 ms": small["milliseconds, one by one, mean"] <= 2,
        "700 arrays of 1920 x 1080 per second": large["images a second, one list"] >= 700,
        "600 files per second": files["images a second, decoded by the cpu"] >= 600,
        "1,000 files per second with nvJPEG": nvjpeg >= 1000,
        "pyramids in 150 µs": stages["pyramid"] <= 0.15,
        "4,000 pairs per second": pairs["pairs a second, one list, all pairs of images"] >= 4000,
        "the same matches of 40 pairs as on the CPU": pairs["matches that differ"] == 0,
        "all views of two images in 60 ms": report["views"]["milliseconds, both images"] <= 60,
        "5 million frames per second": described >= 5,
        "12 megapixels at 200 images per second": report["sizes"]["4,000 x 3,000"][
            "images a second"
        ]
        >= 200,
        "`match_images` in 40 ms": max(whole["default"]["milliseconds"]) <= 40,
        "`match_images` with views in 120 ms": max(whole["views=8"]["milliseconds"]) <= 120,
        "a batch that does not fit into memory is halved": bool(report["out of memory"]["log"]),
        "a halved batch gives the same descriptors": report["out of memory"][
            "lowest cosine to all at once"
        ]
        >= 0.9999,
    }
    if "oxford" in report:
        cpu_map, gpu_map, cpu_frames_map, gpu_frames_map = report["oxford"].values()
        checks["mAP on Oxford Affine within 0.003 of the CPU"] = (
            max(abs(cpu_map - gpu_map), abs(cpu_frames_map - gpu_frames_map)) <= 0.003
        )
    return [name for name, holds in checks.items() if not holds]
