"""The page of the documentation on GPUs, written from the benchmark's figures alone."""

from collections.abc import Iterator
from typing import Any

from tools.pages.markdown import table

Report = dict[str, Any]


def _images(report: Report) -> Iterator[str]:
    cpu = report["cpu"]
    rows = []
    for name, found in report["images"].items():
        here = cpu[name]["images a second"]
        for count, own in found.items():
            if count == "stages":
                continue
            rate = own["images a second"]
            copied = rate * found["stages"]["gigabytes an image at least"] / 1000
            rows.append([
                name, count, f"{own['milliseconds a batch']:.2f} ms",
                f"{own['milliseconds a batch, mean']:.2f} ms", f"{rate:,.0f}",
                f"{own['images a second, results on the host']:,.0f}", f"{rate / here:.0f}",
                f"{copied / report['limits']['copy, terabytes a second']:.0%}",
            ])  # fmt: skip
    head = ["images", "at once", "time", "mean", "images a second", "with results on the host",
            "times two threads of a CPU", "of the copying limit"]  # fmt: skip
    yield from table(head, rows)


def _stages(report: Report) -> Iterator[str]:
    name, found = next(iter(report["images"].items()))
    stages = found["stages"]
    copy = report["limits"]["copy, terabytes a second"]
    least = stages["gigabytes an image of the pyramid"] / copy
    rows = []
    for stage, took in stages["milliseconds an image"].items():
        share = ""
        if stage == "pyramid":
            share = f"{least / took:.0%}: each level read and written once"
        elif stage == "extrema":
            share = f"{least / 2 / took:.0%}: each level read once"
        elif stage in ("density", "table"):
            moved = stages["gigabytes an image of the densities"] / copy
            share = f"{moved / took:.0%}: harmonics {'written' if stage == 'density' else 'read'}"
        rows.append([stage, f"{1000 * took:.0f} µs", share])
    yield f"An image of {name}, of 32 at once; the share is of the device's own copying."
    yield ""
    yield from table(["step", "time an image", "share of the limit"], rows)


def _folder(folder: Report, about: Report) -> Iterator[str]:
    yield (
        f"From {folder['files']} JPEG files of {folder['megapixels']:.1f} megapixels to features in "
        f"memory: {folder['images a second, decoded by the cpu']:,.0f} images a second"
    )
    if "frames that both decoders lead to" not in folder:
        yield f"decoded on {about['threads']} threads."
    else:
        yield (
            f"decoded on {about['threads']} threads, "
            f"{folder['images a second, decoded by the gpu']:,.0f} by nvJPEG (`caloric extract "
            "--decode gpu`); decoders differ by a level or two, and"
        )
        share = folder["frames that both decoders lead to"]
        yield f"{share:.1%} of the frames are within 0.05 pixels."
    yield ""


def _description(report: Report) -> Iterator[str]:
    own, rates = report["description"], report["limits"]["products, teraflops a second"]
    yield (
        f"{own['samples']} samples, 128 dimensions, {own['frames']:,} frames at once; the limit is "
        "the rate at which the device multiplies in that precision."
    )
    yield ""
    found = []
    for name, one in own.items():
        if isinstance(one, dict):
            limit = rates["half" if name.endswith("16") else "float32"]
            found.append([
                name, f"{one['table'][0]:,} x {one['table'][1]}",
                f"{one['million frames a second']:.1f} million", f"{one['teraflops'] / limit:.0%}",
            ])  # fmt: skip
    yield from table(["", "table", "frames a second", "of the limit"], found)


def rows(report: Report) -> Iterator[str]:
    """What the README tells of it."""
    found = []
    for name, own in report["images"].items():
        here = report["cpu"][name]["images a second"]
        one, many = own["1"], own["32"]
        found.append([
            name, f"{one['milliseconds a batch']:.1f} ms", f"{many['images a second']:,.0f}",
            f"{many['images a second'] / here:.0f}",
        ])  # fmt: skip
    head = [report["about"]["device"], "one image", "images a second, 32 at once",
            "times two threads of its CPU"]  # fmt: skip
    yield from table(head, found)


def page(report: Report) -> str:
    """The whole page."""
    about, limits = report["about"], report["limits"]
    agreement, memory, folder = (report[k] for k in ("agreement", "out of memory", "folder"))
    rates = limits["products, teraflops a second"]
    lines = [
        "# On a GPU",
        "",
        "<!-- Written by `caloric bench gpu --page`; edit bench/gpu_page.py instead. -->",
        "",
        "Every descriptor is a table and one product, so a GPU has all of them, and so it has the",
        "detector, directions, affine shapes and matching:",
        "",
        "```python",
        'features = caloric.extract(images, max_features=2000, device="cuda")  # a list: in batches',
        'matches = caloric.match(features[0], features[1], device="cuda")',
        "```",
        "",
        '`device` is "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu"; on the',
        "command line `--device`. It needs PyTorch (`pip install 'caloric[torch]'`). Modules with",
        "gradients, and features that stay on the device: {mod}`caloric.interop.torch`.",
        "",
        f"{about['device']}, driver {about['driver']}, CUDA {about['cuda']}, PyTorch "
        f"{about['versions']['torch']}; it copies {limits['copy, terabytes a second']:.1f} TB/s and",
        f"multiplies {rates['half']:.0f} TFLOP/s in half precision, {rates['float32']:.0f} in "
        "float32, measured in the same run.",
        "",
        "## The whole pipeline",
        "",
        "Images in the device's memory, the default descriptor, and as many features as there are",
        f"at most; the CPU is the same machine's, one process with two threads, the compiled core "
        f"{'in use' if about['compiled core'] else 'not installed'}.",
        "",
        *_images(report),
        "The limit: pyramids written once and read twice, densities written and read once, at the",
        "rate at which the device copies.",
        "",
        *_folder(folder, about),
        *_stages(report),
        "## Description, matching",
        "",
        *_description(report),
        "4,096 x 4,096 descriptors of 128, mutual nearest neighbours with the second nearest:",
        "",
        *table(
            ["", "pairs a second", "of the product's limit, float32"],
            [
                [
                    name,
                    f"{found['pairs a second']:,.0f}",
                    f"{found['teraflops'] / rates['float32']:.0%}",
                ]
                for name, found in report["matching"].items()
            ],
        ),
        "## The same as the CPU's",
        "",
        f"Of 2,000 frames of {agreement['images']} photographs "
        f"{agreement['frames within 0.05 px and 1 % of scale']:.2%} are within 0.05 pixels and 1 %",
        "of scale of one of the CPU's; of the descriptors of common frames "
        f"{agreement['common frames with a cosine of 0.9999']:.2%} have a cosine of 0.9999, the lowest is",
        f"{agreement['lowest cosine of common frames']:.6f}; of affine frames "
        f"{agreement['affine frames']:.2%} and {agreement['lowest cosine of affine frames']:.6f}.",
        "At the same frames the lowest cosine is "
        + ", ".join(
            f"{v:.7f} (`{k}`)" for k, v in agreement["lowest cosine at the same frames"].items()
        )
        + f"; of {agreement['matches'][0]} matches {agreement['matches'][1]} are the same.",
        "The kernels against their plain forms, by the norm of the difference:",
        "",
        *table(["kernel", "difference"], [[k, f"{v:.1e}"] for k, v in report["kernels"].items()]),
    ]
    if "oxford" in report:
        lines += [
            "Oxford Affine, mAP, at OpenCV's keypoints and with frames of its own:",
            "",
            *table(["", "mAP"], [[k, f"{v:.4f}"] for k, v in report["oxford"].items()]),
        ]
    lines += [
        "## What does not fit",
        "",
        "A batch that does not fit into the device's memory is halved and tried again, with a line",
        "in the log; an image that does not fit alone is worked on by the CPU. With the memory",
        f"limited to 1.2 GB, {memory['images']} images of 800 x 640 were taken so:",
        "",
        *(f"    {line}" for line in memory["told"]),
        "",
        "and the lowest cosine of a descriptor to that of the same frame with all at once is "
        f"{memory['lowest cosine to all at once']:.7f}:",
        "on a GPU the last bits depend on how many images go together.",
    ]
    return "\n".join(lines).rstrip() + "\n"
