"""Write docs/gpu.md from the results of the GPU benchmark."""

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
    head = ["images", "batch size", "median time", "mean time", "images per second",
            "the same, results copied to the host", "speed-up over two CPU threads",
            "share of the copying limit"]  # fmt: skip
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
            share = f"{least / took:.0%}: every level is read and written once"
        elif stage == "extrema":
            share = f"{least / 2 / took:.0%}: every level is read once"
        elif stage in ("density", "table"):
            moved = stages["gigabytes an image of the densities"] / copy
            share = (
                f"{moved / took:.0%}: harmonics are {'written' if stage == 'density' else 'read'}"
            )
        rows.append([stage, f"{1000 * took:.0f} µs", share])
    yield f"The time of each step for an image of {name}, in a batch of 32. The share compares the data"
    yield "rate of the step with the copying rate of the device."
    yield ""
    yield from table(["step", "time per image", "share of the copying limit"], rows)


def _folder(folder: Report, about: Report) -> Iterator[str]:
    yield (
        f"From {folder['files']} JPEG files of {folder['megapixels']:.1f} megapixels to features in "
        f"memory, the rate is {folder['images a second, decoded by the cpu']:,.0f} images per second"
    )
    if "frames that both decoders lead to" not in folder:
        yield f"if {about['threads']} CPU threads decode the files."
    else:
        yield (
            f"if {about['threads']} CPU threads decode the files, and "
            f"{folder['images a second, decoded by the gpu']:,.0f} images per second if nvJPEG does "
            "(`caloric extract --decode gpu`)."
        )
        share = folder["frames that both decoders lead to"]
        yield (
            f"The decoders differ by one or two grey levels; {share:.1%} of the frames agree within "
            "0.05 pixels."
        )
    yield ""


def _description(report: Report) -> Iterator[str]:
    own, rates = report["description"], report["limits"]["products, teraflops a second"]
    yield (
        f"A frame has {own['samples']} samples and its descriptor 128 dimensions; {own['frames']:,} "
        "frames are described at once. The limit is the rate at which the device multiplies matrices "
        "in that precision."
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
    yield from table(["", "table", "frames per second", "share of the limit"], found)


def rows(report: Report) -> Iterator[str]:
    """Yield the table that the README shows."""
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
    """Return the text of the page."""
    about, limits = report["about"], report["limits"]
    agreement, memory, folder = (report[k] for k in ("agreement", "out of memory", "folder"))
    rates = limits["products, teraflops a second"]
    lines = [
        "# On a GPU",
        "",
        "<!-- Written by `python -m tools page gpu`; edit tools/pages/gpu.py instead. -->",
        "",
        "Every descriptor is a table and one matrix product, so all descriptors run on a GPU. The",
        "detector, the orientations, the affine shapes and the matching run there too:",
        "",
        "```python",
        'features = caloric.extract(images, max_features=2000, device="cuda")  # a list: in batches',
        'matches = caloric.match(features[0], features[1], device="cuda")',
        "```",
        "",
        '`device` is "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu"; on the',
        "command line it is `--device`. A GPU needs PyTorch (`pip install 'caloric[torch]'`).",
        "{mod}`caloric.interop.torch` has modules with gradients, and features that stay on the device.",
        "",
        f"The figures are from `caloric bench gpu`; the device is {about['device']} with driver "
        f"{about['driver']}, CUDA {about['cuda']} and PyTorch {about['versions']['torch']}.",
        f"In the same run the device copied {limits['copy, terabytes a second']:.1f} TB/s and "
        f"multiplied matrices at {rates['half']:.0f} TFLOP/s in half precision",
        f"and {rates['float32']:.0f} TFLOP/s in float32.",
        "",
        "## The whole pipeline",
        "",
        "The images are in the memory of the device, the descriptor is the default, and the table gives",
        "the maximum number of features. The CPU of the same machine runs one process with two threads; the",
        f"compiled core is {'in use' if about['compiled core'] else 'not installed'}.",
        "",
        *_images(report),
        "The copying limit is the time to write the pyramids once and read them twice, and to write and",
        "read the densities once, at the copying rate of the device.",
        "",
        *_folder(folder, about),
        *_stages(report),
        "## Description and matching",
        "",
        *_description(report),
        "Matching finds mutual nearest neighbours and second neighbours between two sets of 4,096",
        "descriptors with 128 dimensions:",
        "",
        *table(
            ["", "image pairs per second", "share of the float32 limit"],
            [
                [
                    name,
                    f"{found['pairs a second']:,.0f}",
                    f"{found['teraflops'] / rates['float32']:.0%}",
                ]
                for name, found in report["matching"].items()
            ],
        ),
        "## Agreement with the CPU",
        "",
        f"- On {agreement['images']} photographs with 2,000 frames each, "
        f"{agreement['frames within 0.05 px and 1 % of scale']:.2%} of the frames of GPU and CPU agree "
        "within 0.05 pixels and 1 % of scale. "
        f"{agreement['common frames with a cosine of 0.9999']:.2%} of the descriptors of these common "
        "frames have a cosine of at least 0.9999; the lowest cosine is "
        f"{agreement['lowest cosine of common frames']:.6f}.",
        f"- {agreement['affine frames']:.2%} of affine frames agree; the lowest cosine is "
        f"{agreement['lowest cosine of affine frames']:.6f}.",
        "- If both describe the same frames, the lowest cosine is "
        + ", ".join(
            f"{v:.7f} (`{k}`)" for k, v in agreement["lowest cosine at the same frames"].items()
        )
        + ".",
        f"- {agreement['matches'][1]} of {agreement['matches'][0]} matches are the same.",
        "",
        "The relative difference between each GPU kernel and its plain form, by the norm:",
        "",
        *table(["kernel", "difference"], [[k, f"{v:.1e}"] for k, v in report["kernels"].items()]),
    ]
    if "oxford" in report:
        lines += [
            "mAP on Oxford Affine, at the keypoints of OpenCV and (*own frames*) with our own detector:",
            "",
            *table(["", "mAP"], [[k, f"{v:.4f}"] for k, v in report["oxford"].items()]),
        ]
    lines += [
        "## If the memory of the device is too small",
        "",
        "A batch that does not fit into the memory of the device is halved and tried again; each time a",
        "line is logged. A single image that does not fit is processed on the CPU. With the memory",
        f"limited to 1.2 GB, {memory['images']} images of 800 x 640 were processed as follows:",
        "",
        *(f"    {line}" for line in memory["told"]),
        "",
        "The descriptors were compared with those of the same frames when all images were processed in",
        f"one batch; the lowest cosine is {memory['lowest cosine to all at once']:.7f}. On a GPU the last "
        "bits depend on the batch size.",
    ]
    return "\n".join(lines).rstrip() + "\n"
