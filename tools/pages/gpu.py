"""Write docs/gpu.md from the results of the GPU benchmark."""

from collections.abc import Iterator
from typing import Any

from tools.gpu.report import failures
from tools.pages.markdown import table

Report = dict[str, Any]


def _arrays(report: Report) -> Iterator[str]:
    rows = []
    for name, found in report["arrays"].items():
        cpu = report["cpu"][name]["images a second"]
        for kind in ("colour", "grey"):
            own = found[kind]
            rate = own["images a second, one list"]
            rows.append([
                f"{name}, {kind}", f"{own['milliseconds, one by one, mean']:.2f} ms",
                *(f"{own[f'images a second, calls of {n}']:,.0f}" for n in (8, 32)),
                f"{rate:,.0f}", f"{rate / cpu:.0f}",
            ])  # fmt: skip
        staying = found["images a second, one list, features stay on the device"]
        rows.append([f"{name}, colour, `on_device=True`", "", "", "", f"{staying:,.0f}", ""])
    head = ["uint8 arrays of", "one by one", "images per second, calls of 8", "calls of 32",
            "one list", "one list, times two CPU threads"]  # fmt: skip
    yield from table(head, rows)


def _alone(report: Report) -> Iterator[str]:
    rows = []
    for name, found in report["images"].items():
        for count, own in found.items():
            if count == "stages":
                continue
            rate = own["images a second"]
            copied = rate * found["stages"]["gigabytes an image at least"] / 1000
            rows.append([
                name, count, f"{own['milliseconds a batch']:.2f} ms", f"{rate:,.0f}",
                f"{copied / report['limits']['copy, terabytes a second']:.0%}",
            ])  # fmt: skip
    head = ["images", "batch size", "time", "images per second", "share of the copying limit"]
    yield from table(head, rows)


def _pairs(report: Report) -> Iterator[str]:
    own, alone = report["pairs"], report["search"]["ratio beyond 10 pixels"]
    names = {
        "one list, all pairs of images": f"one list, all {own['pairs']} pairs of "
        f"{len(own['features'])} images",
        "one list, features on the device": "the same, features on the device",
        "one list, pairs without an image twice": "one list, no image twice",
        "one by one": "one by one",
    }
    rows = [[text, f"{own[f'pairs a second, {name}']:,.0f}"] for name, text in names.items()]
    rows.append(["the device alone, 64 pairs", f"{alone['pairs a second']:,.0f}"])
    yield from table(["`caloric.match`, 4,096 x 4,096 features", "pairs per second"], rows)
    yield (
        "Scores are computed on tensor cores from sums of two numbers of half precision, as exact as "
        "products of float32; a second pass finds the second neighbours. "
        f"{own['matches of 40 pairs, on the CPU'] - own['matches that differ']:,} of "
        f"{own['matches of 40 pairs, on the CPU']:,} matches of 40 pairs are those of the CPU."
    )
    yield ""


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


def _files(files: Report, about: Report) -> Iterator[str]:
    rows = [
        [
            f"{about['threads']} CPU threads" if decoder == "cpu" else "nvJPEG",
            f"{files[f'images a second, decoded by the {decoder}']:,.0f}",
            f"{files[f'images a second, decoding by the {decoder} alone']:,.0f}",
        ]
        for decoder in ("cpu", "gpu")
        if f"images a second, decoded by the {decoder}" in files
    ]
    head = [
        "JPEG files of 800 x 640 decoded by",
        "to features, images per second",
        "decoding alone",
    ]
    yield from table(head, rows)
    if "frames that both decoders lead to" in files:
        share = files["frames that both decoders lead to"]
        yield (
            "nvJPEG is `caloric extract --decode gpu`. The decoders differ by one or two grey levels; "
            f"{share:.1%} of the frames agree within 0.05 pixels."
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


def _missed(report: Report) -> list[str]:
    """Return a line on the targets of the benchmark that this run did not reach."""
    missed = failures(report)
    return [f"Targets that this run did not reach: {'; '.join(missed)}.", ""] if missed else []


def page(report: Report) -> str:
    """Return the text of the page."""
    about, limits = report["about"], report["limits"]
    agreement, memory = report["agreement"], report["out of memory"]
    views = report["views"]
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
        'pairs = caloric.match([(features[0], f) for f in features[1:]], device="cuda")',
        "```",
        "",
        '`device` is "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu"; on the',
        "command line it is `--device`. A GPU needs PyTorch (`pip install 'caloric[torch]'`).",
        "{mod}`caloric.interop.torch` has modules with gradients. `extract(..., on_device=True)` leaves",
        "features on the device, where `match` takes them from; `match` takes a list of pairs, too, and",
        "sends the features of each image once.",
        "",
        "Arrays of any type travel as they are, through pinned memory, while the device works on those",
        "before; the device makes them grey, to the bytes of the CPU, and checks them. The first call",
        "of a new installation compiles the kernels, for about 15 seconds, for images of all sizes.",
        "",
        f"The figures are from `caloric bench gpu`; the device is {about['device']} with driver "
        f"{about['driver']}, CUDA {about['cuda']} and PyTorch {about['versions']['torch']}.",
        "",
        "## What you get",
        "",
        "From NumPy arrays to `Features` on the host, by the calls above: 320 different photographs, the",
        "default descriptor, the maximum number of features as the table says. The CPU of the same",
        "machine runs one process with two threads; the compiled core is "
        f"{'in use' if about['compiled core'] else 'not installed'}.",
        "",
        *_arrays(report),
        "One by one is what differs most from machine to machine of this kind, by how",
        "fast the host copies memory.",
        "",
        *_files(report["files"], about),
        *_pairs(report),
        f"All simulated views of two images of 800 x 640 (`extract(images, views=8)`, "
        f"{sum(views['features']):,} features) take {views['milliseconds, both images']:.0f} ms.",
        "",
        "`align` searches the image on the device, and templates above 192 pixels descend there;",
        f"`refine` runs there as a whole. The CPU has {about['threads']} threads in this table.",
        "",
        *table(
            ["milliseconds", "device", "CPU"],
            [
                [name, f"{one['device']:.0f}", f"{one['cpu']:.0f}"]
                for name, one in report["precision"].items()
            ],
        ),
        *_missed(report),
        "## The device alone",
        "",
        f"In the same run the device copied {limits['copy, terabytes a second']:.1f} TB/s and "
        f"multiplied matrices at {rates['half']:.0f} TFLOP/s in half precision",
        f"and {rates['float32']:.0f} TFLOP/s in float32. Here the images are in its memory, grey, and the",
        "features stay there.",
        "",
        *_alone(report),
        "The copying limit is the time to write the pyramids once and read them twice, and to write and",
        "read the densities once, at the copying rate of the device.",
        "",
        *_stages(report),
        "### Description",
        "",
        *_description(report),
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
            "mAP on Oxford Affine, at the keypoints of OpenCV and (*own frames*) with our own detector"
            + (f" ({about['oxford']}):" if "oxford" in about else ":"),
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
