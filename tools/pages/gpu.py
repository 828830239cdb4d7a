"""docs/gpu.md, from the results of ``python -m tools gpu``."""

from caloric.types import Report
from tools.gpu.report import failures
from tools.pages.markdown import render, table

_COLORS = {"color": "color", "gray": "gray"}


def _arrays(report: Report) -> str:
    rows = []
    for name, rates in report["arrays"].items():
        cpu = report["cpu"][name]["images a second"]
        for kind in ("color", "gray"):
            own = rates[kind]
            rate = own["images a second, one list"]
            rows.append([
                f"{name}, {_COLORS[kind]}", f"{own['milliseconds, one by one, mean']:.2f} ms",
                *(f"{own[f'images a second, calls of {n}']:,.0f}" for n in (8, 32)),
                f"{rate:,.0f}", f"{rate / cpu:.0f}",
            ])  # fmt: skip
        staying = rates["images a second, one list, features stay on the device"]
        rows.append([f"{name}, color, `on_device=True`", "", "", "", f"{staying:,.0f}", ""])
    head = ["uint8 arrays of", "single call", "images per second, calls of 8", "calls of 32",
            "one list", "one list, times two CPU threads"]  # fmt: skip
    return table(head, rows)


def _alone(report: Report) -> str:
    rows = []
    for name, batches in report["images"].items():
        for count, own in batches.items():
            if count == "stages":
                continue
            rate = own["images a second"]
            copied = rate * batches["stages"]["gigabytes an image at least"] / 1000
            rows.append([
                name, count, f"{own['milliseconds a batch']:.2f} ms", f"{rate:,.0f}",
                f"{copied / report['limits']['copy, terabytes a second']:.0%}",
            ])  # fmt: skip
    head = ["images", "batch size", "time", "images per second", "share of the copying limit"]
    return table(head, rows)


def _pairs(report: Report) -> str:
    own, alone = report["pairs"], report["search"]["ratio beyond 10 pixels"]
    names = {
        "one list, all pairs of images": f"one list, all {own['pairs']} pairs of "
        f"{len(own['features'])} images",
        "one list, features on the device": "the same, features on the device",
        "one list, pairs without an image twice": "one list, no image twice",
        "one by one": "single calls",
    }
    rows = [[text, f"{own[f'pairs a second, {name}']:,.0f}"] for name, text in names.items()]
    rows.append(["the device alone, 64 pairs", f"{alone['pairs a second']:,.0f}"])
    return table(["`caloric.match`, 4,096 x 4,096 features", "pairs per second"], rows)


def _stages(report: Report) -> str:
    stages = next(iter(report["images"].values()))["stages"]
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
    return table(["step", "time per image", "share of the copying limit"], rows)


def _files(files: Report, about: Report) -> str:
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
    return table(head, rows)


def _description(report: Report) -> str:
    own, rates = report["description"], report["limits"]["products, teraflops a second"]
    rows = []
    for name, one in own.items():
        if isinstance(one, dict):
            limit = rates["half" if name.endswith("16") else "float32"]
            rows.append([
                name, f"{one['table'][0]:,} x {one['table'][1]}",
                f"{one['million frames a second']:.1f} million", f"{one['teraflops'] / limit:.0%}",
            ])  # fmt: skip
    return table(["", "table", "frames per second", "share of the limit"], rows)


def page(report: Report) -> str:
    """Return the text of the page."""
    precision = [
        [name, f"{one['device']:.0f}", f"{one['cpu']:.0f}"]
        for name, one in report["precision"].items()
    ]
    oxford = [[name, f"{value:.4f}"] for name, value in report.get("oxford", {}).items()]
    return render(
        "gpu.md", arrays=_arrays(report), files_table=_files(report["files"], report["about"]),
        pairs_table=_pairs(report), missed=failures(report), alone=_alone(report),
        precision_table=table(["milliseconds", "device", "CPU"], precision),
        stages=_stages(report), first_size=next(iter(report["images"])),
        description_table=_description(report), memory=report["out of memory"],
        kernels_table=table(
            ["kernel", "difference"], [[k, f"{v:.1e}"] for k, v in report["kernels"].items()]
        ),
        oxford_table=table(["", "mAP"], oxford),
        **{name: part for name, part in report.items() if name not in ("arrays", "out of memory")},
    )  # fmt: skip
