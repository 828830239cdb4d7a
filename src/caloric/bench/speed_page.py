"""What the benchmark of speed tells: lines for the terminal, a page, a plot."""

from pathlib import Path
from typing import Any

Report = dict[str, Any]


def table(report: Report) -> list[str]:
    """For the terminal."""
    lines = [f"{report['machine']['processor']}, {report['path']}"]
    kinds = {"": report["threads"], ", OpenCV alone in the process": report["with OpenCV alone"]}
    for kind, numbers in kinds.items():
        for number, tasks in numbers.items():
            lines.append(f"\n{_threads(number)}{kind}: ratio (quartiles), time")
            for task, names in tasks.items():
                for name, found in names.items():
                    low, high = found["quartiles"]
                    ratio = f"{found['ratio']:7.3f} ({low:.3f} to {high:.3f})"
                    lines.append(
                        f"{task:12} {name:30} {ratio:26} {1000 * found['seconds']:9.1f} ms"
                    )
    lines.append("\n" + _gains(report))
    for one in report["large"]:
        lines.append(
            f"{one['pixels'] / 1e6:7.1f} megapixels: {one['seconds']:6.1f} s, "
            f"{one['features']} features, {one['peak bytes'] / 1e9:.2f} GB at most"
        )
    return lines


_PAGE = """# Speed

Written by `caloric bench speed` from what it found. All contenders are called in turn, round by round, warm, with the
same number of threads; the ratio is a contender's time over the first one's in the same round, the median and
the quartiles of {rounds} rounds. Times by themselves say more about the machine than about the method.

{where}

## Side by side

{tables}
*core* is with the compiled core (`pip install ./native .` from a clone, which `make` does), *plain* without it: OpenCV,
NumPy and BLAS. *describe* is at OpenCV's {features} keypoints, the scale space included; *closed forms* is the same
for the two closed forms of DSP-SIFT beside `sift`; *match* is {matched} x {matched}
descriptors of 128, mutual nearest neighbours with a ratio{common}. COLMAP uses one thread for one image, whatever it is
given.

### OpenCV and Caloric alone in a process

All of the above are in one process. Other libraries leave it with much free memory, which OpenCV, asking for all it
needs anew with each image, is then given faster; Caloric keeps its own. Without the others:

{alone}## How cost grows

![Seconds against pixels, features and threads; memory against pixels](speed.png)

{gains}

Images beyond the memory allowed (`memory=`, half a gigabyte by default; `--memory` on the command line) are worked
on in tiles, with the same result. All features kept, each in a process of its own:

{large}
## Settings

- `CALORIC_THREADS`: how many threads a process uses; without it, as many as it has cores. Results are the same bytes
  for any number. Where several processes run side by side, give each its share: four workers on eight cores want
  `CALORIC_THREADS=2`. OpenCV's and the BLAS's own threads rest while Caloric works, so nothing is oversubscribed.
- `CALORIC_NATIVE`: `0` turns the compiled core off; `avx512`, `avx2`, `neon` and `portable` choose one of its builds.
  What they have in common: [platforms](platforms.md). `caloric info` says what is in use.
- `memory=`: bytes to work in, beside the image and its features. `caloric.open_image` reads a large TIFF by windows
  (`pip install 'caloric[tiff]'`), so that the image itself need not be in memory either.
"""


def page(report: Report) -> str:
    """The page of the documentation."""
    tables = ""
    for number, tasks in report["threads"].items():
        tables += f"### {_threads(number)}\n\n{_table(tasks)}\n"
    alone = ""
    for number, tasks in report["with OpenCV alone"].items():
        alone += f"{_threads(number)}:\n\n{_table(tasks)}\n"
    common = report["matches in common with faiss"]
    rows = "| megapixels | features | seconds | seconds a megapixel | peak memory |\n"
    rows += "|---|---|---|---|---|\n"
    for one in report["large"]:
        size = one["pixels"] / 1e6
        rows += f"| {size:.1f} | {one['features']:,} | {one['seconds']:.1f} "
        rows += f"| {one['seconds'] / size:.3f} | {one['peak bytes'] / 1e9:.2f} GB |\n"
    image, machine = report["image"], report["machine"]
    h, w = image["size"]
    known = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    where = f"{image['name']}, {w} x {h}, {image['features']} features; {machine['processor']}, "
    where += f"{machine['cores']} cores, {report['path']}; {known}."
    shared = "" if common is None else f"; {100 * common:.2f} % of the matches are faiss's too"
    return _PAGE.format(
        rounds=report["rounds"],
        where=where,
        tables=tables,
        features=image["features"],
        matched=f"{report['matched']:,}",
        common=shared,
        alone=alone,
        large=rows,
        gains=_gains(report),
    )


def _threads(number: str) -> str:
    return f"{number} thread{'s' if number != '1' else ''}"


def _table(tasks: Report) -> str:
    rows = "| task | | ratio | quartiles | time |\n|---|---|---|---|---|\n"
    for task, names in tasks.items():
        for name, found in names.items():
            low, high = found["quartiles"]
            rows += f"| {task} | {name} | **{found['ratio']:.2f}** | {low:.2f} to {high:.2f} "
            rows += f"| {1000 * found['seconds']:.0f} ms |\n"
    return rows


def _gains(report: Report) -> str:
    """What threads bring, beside what the machine has to give."""
    rows, beside = report["curves"]["threads"], report["side by side"]
    names = [name for name in rows[0] if name != "at"]
    gains = "; ".join(f"{name} {rows[0][name] / rows[-1][name]:.2f}" for name in names)
    return (
        f"{rows[-1]['at']} threads against 1 are faster by: {gains}. {beside['processes']} processes side by side, with "
        f"`CALORIC_THREADS=1` each, do {beside['gain']:.2f} times the work of one: what this machine has to give."
    )


def plot(report: Report, path: Path) -> None:
    """Cost against pixels, features and threads; memory against pixels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    labels = {"pixels": "megapixels", "features": "features kept", "threads": "threads"}
    for axis, (name, label) in zip(axes, labels.items(), strict=False):
        rows, unit = report["curves"][name], 1e-6 if name == "pixels" else 1
        for method in [key for key in rows[0] if key != "at"]:
            axis.plot([r["at"] * unit for r in rows], [r[method] for r in rows], "o-", label=method)
        axis.set(xlabel=label, ylabel="seconds to extract")
        axis.grid(alpha=0.3)
        if name == "pixels":
            axis.set(xscale="log", yscale="log")
            axis.set_xticks([unit * r["at"] for r in rows], [f"{unit * r['at']:.2g}" for r in rows])
            axis.minorticks_off()
        else:
            axis.set_ylim(0, None)
    axes[2].set_xticks([r["at"] for r in report["curves"]["threads"]])
    axes[0].legend(fontsize=8)
    rows = report["large"]
    axes[3].plot([r["pixels"] / 1e6 for r in rows], [r["peak bytes"] / 1e9 for r in rows], "o-")
    axes[3].set(xlabel="megapixels", ylabel="peak memory, GB")
    axes[3].set_ylim(0, None)
    axes[3].grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
