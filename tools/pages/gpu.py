"""docs/gpu.md, from the results of ``python -m tools gpu``."""

from caloric.types import Report
from tools.gpu.report import failures
from tools.pages.markdown import render, table


def _arrays(report: Report) -> str:
    rows = []
    for name, rates in report["arrays"].items():
        cpu = report["cpu"][name]["images a second"]
        for kind in ("color", "gray"):
            result = rates[kind]
            rate = result["images a second, one list"]
            rows.append([
                f"{name}, {kind}", f"{result['milliseconds, one by one, mean']:.2f} ms",
                *(f"{result[f'images a second, calls of {n}']:,.0f}" for n in (8, 32)),
                f"{rate:,.0f}", f"{rate / cpu:.0f}",
            ])  # fmt: skip
        on_device = rates["images a second, one list, features stay on the device"]
        rows.append([f"{name}, color, `on_device=True`", "", "", "", f"{on_device:,.0f}", ""])
    head = ["uint8 arrays of", "single call", "images per second, calls of 8", "calls of 32",
            "one list", "one list, speedup over two CPU threads"]  # fmt: skip
    return table(head, rows)


def _alone(report: Report) -> str:
    rows = []
    for name, batches in report["images"].items():
        for count, result in batches.items():
            if count == "stages":
                continue
            rate = result["images a second"]
            copied = rate * batches["stages"]["gigabytes an image at least"] / 1000
            rows.append([
                name, count, f"{result['milliseconds a batch']:.2f} ms", f"{rate:,.0f}",
                f"{copied / report['limits']['copy, terabytes a second']:.0%}",
            ])  # fmt: skip
    head = ["images", "batch size", "time", "images per second", "share of the copying limit"]
    return table(head, rows)


def _runs(report: Report) -> list[Report]:
    return [report, *report.get("other runs", [])]


def _pairs(report: Report) -> str:
    rates, runs = report["pairs"], _runs(report)
    names = {
        "one list, all pairs of images": f"one list, all {rates['pairs']} pairs of "
        f"{len(rates['features'])} images",
        "one list, features on the device": "the same, features on the device",
        "one list, pairs without an image twice": "one list, each image in one pair",
        "one by one": "single calls",
    }
    rows = [
        [text, _range([run["pairs"][f"pairs a second, {name}"] for run in runs], ",.0f")]
        for name, text in names.items()
    ]
    alone = [run["search"]["ratio beyond 10 pixels"]["pairs a second"] for run in runs]
    rows.append(["the device alone, 64 pairs", _range(alone, ",.0f")])
    return table(["`caloric.match`, 4,096 x 4,096 features", "pairs per second"], rows)


def _whole_pairs(report: Report) -> str:
    rows = [
        [
            f"`{name}`" if "=" in name else name,
            _range(case["milliseconds"], ".0f"),
            _range(case["inliers"], ","),
        ]
        for name, case in report["whole pairs"].items()
    ]
    return table(["`match_images`", "milliseconds", "inliers"], rows)


def _range(values: list[float], form: str) -> str:
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _stages(report: Report) -> str:
    stages = next(iter(report["images"].values()))["stages"]
    copy = report["limits"]["copy, terabytes a second"]
    copy_time = stages["gigabytes an image of the pyramid"] / copy
    rows = []
    for stage, milliseconds in stages["milliseconds an image"].items():
        share = ""
        if stage == "pyramid":
            share = f"{copy_time / milliseconds:.0%}: every level is read and written once"
        elif stage == "extrema":
            share = f"{copy_time / 2 / milliseconds:.0%}: every level is read once"
        elif stage in ("density", "table"):
            density_time = stages["gigabytes an image of the densities"] / copy
            access = "written" if stage == "density" else "read"
            share = f"{density_time / milliseconds:.0%}: harmonics are {access}"
        rows.append([stage, f"{1000 * milliseconds:.0f} µs", share])
    return table(["step", "time per image", "share of the copying limit"], rows)


def _sizes(sizes: Report) -> str:
    rows = [
        [
            name, f"{rates['features']:,}", f"{rates['images']:,}",
            *(
                f"{rate:,.0f}" if rate > 100 else f"{rate:.2g}"
                for rate in (rates["images a second"], rates["images a second, first call"])
            ),
        ]
        for name, rates in sizes.items()
    ]  # fmt: skip
    head = ["uint8 arrays, color", "features", "images", "images per second", "in the first call"]
    return table(head, rows)


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
    limits = report["limits"]["products, teraflops a second"]
    rows = []
    for name, result in report["description"].items():
        if isinstance(result, dict):
            limit = limits["half" if name.endswith("16") else "float32"]
            rows.append([
                name, f"{result['table'][0]:,} x {result['table'][1]}",
                f"{result['million frames a second']:.1f} million",
                f"{result['teraflops'] / limit:.0%}",
            ])  # fmt: skip
    return table(["", "table", "frames per second", "share of the limit"], rows)


def page(report: Report) -> str:
    """Return the text of the page."""
    precision = [
        [name, f"{times['device']:.0f}", f"{times['cpu']:.0f}"]
        for name, times in report["precision"].items()
    ]
    oxford = [[name, f"{value:.4f}"] for name, value in report.get("oxford", {}).items()]
    return render(
        "gpu.md", arrays=_arrays(report), files_table=_files(report["files"], report["about"]),
        sizes_table=_sizes(report["sizes"]), pairs_table=_pairs(report),
        commits=[run["about"]["commit"] for run in _runs(report)],
        whole_pairs_table=_whole_pairs(report), missed=failures(report), alone=_alone(report),
        precision_table=table(["milliseconds", "device", "CPU"], precision),
        stages=_stages(report), first_size=next(iter(report["images"])),
        description_table=_description(report), memory=report["out of memory"],
        kernels_table=table(
            ["kernel", "difference"], [[k, f"{v:.1e}"] for k, v in report["kernels"].items()]
        ),
        oxford_table=table(["", "mAP"], oxford),
        **{name: part for name, part in report.items() if " " not in name and name != "arrays"},
    )  # fmt: skip
