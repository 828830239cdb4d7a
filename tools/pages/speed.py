"""Write docs/speed.md from the results of the speed benchmark."""

from typing import Any

from caloric.bench.speed_report import gains_text, threads_text

Report = dict[str, Any]


_PAGE = """# Speed

<!-- Written by `python -m tools page speed`; edit tools/pages/speed.py instead. -->

The figures are from `caloric bench speed`. In each of {rounds} rounds all methods are called in turn, after a warm-up, with
the same number of threads. The ratio is the time of a method divided by the time of the first method of the task in the
same round; the tables show its median and its quartiles. Absolute times depend more on the machine than on the method.

{where}

## Side by side

{tables}
- *core* uses the compiled core (`pip install ./native .` from a clone; `make` does this). *plain* does not: it uses
  OpenCV, NumPy and BLAS.
- *describe* describes the {features} keypoints that OpenCV found; the time includes the scale space.
- *closed forms* is the same task for the two closed forms of DSP-SIFT, compared with `sift`.
- *match* finds mutual nearest neighbours with a ratio test between two sets of {matched} descriptors with 128
  dimensions{common}.
- COLMAP uses one thread for one image, whatever number of threads it is given.

### OpenCV and Caloric alone in a process

All methods above run in one process. The other libraries leave much free memory in this process. OpenCV allocates all its
memory again for each image, and gets it faster from this free memory; Caloric keeps its own memory. Without the other
libraries:

{alone}## How cost grows

![Seconds against pixels, features and threads; memory against pixels](speed.png)

{gains}

Images that need more than the allowed memory (`memory=`, half a gigabyte by default; `--memory` on the command line) are
processed in tiles, with the same result. In this table all features are kept, and each image has its own process:

{large}
## Settings

- `CALORIC_THREADS`: the number of threads of a process. The default is the number of cores. The results are the same
  bytes for any number. If several processes run at the same time, divide the cores among them: for four workers on
  eight cores set `CALORIC_THREADS=2`. The threads of OpenCV and BLAS are idle while Caloric works, so the cores are not
  oversubscribed.
- `CALORIC_NATIVE`: `0` disables the compiled core; `avx512`, `avx2`, `neon` and `portable` select one of its builds.
  [Platforms](platforms.md) describes how far the builds agree. `caloric info` shows which one is in use.
- `memory=`: the bytes of working memory, in addition to the image and its features. `caloric.open_image` reads a large
  TIFF in windows (`pip install 'caloric[tiff]'`), so that the image itself need not be in memory either.
"""


def page(report: Report) -> str:
    """Return the text of the page."""
    tables = ""
    for number, tasks in report["threads"].items():
        tables += f"### {threads_text(number)}\n\n{_table(tasks)}\n"
    alone = ""
    for number, tasks in report["with OpenCV alone"].items():
        alone += f"{threads_text(number)}:\n\n{_table(tasks)}\n"
    common = report["matches in common with faiss"]
    rows = "| megapixels | features | seconds | seconds per megapixel | peak memory |\n"
    rows += "|---|---|---|---|---|\n"
    for one in report["large"]:
        size = one["pixels"] / 1e6
        rows += f"| {size:.1f} | {one['features']:,} | {one['seconds']:.1f} "
        rows += f"| {one['seconds'] / size:.3f} | {one['peak bytes'] / 1e9:.2f} GB |\n"
    image, machine = report["image"], report["machine"]
    h, w = image["size"]
    known = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    where = f"The image is {image['name']}, {w} x {h}, with {image['features']} features. The processor "
    where += (
        f"is {machine['processor']} with {machine['cores']} cores; Caloric uses: {report['path']}. "
    )
    where += f"Versions: {known}."
    shared = "" if common is None else f"; faiss finds {100 * common:.2f} % of these matches too"
    return _PAGE.format(
        rounds=report["rounds"],
        where=where,
        tables=tables,
        features=image["features"],
        matched=f"{report['matched']:,}",
        common=shared,
        alone=alone,
        large=rows,
        gains=gains_text(report),
    )


def _table(tasks: Report) -> str:
    rows = "| task | method | ratio | quartiles | time |\n|---|---|---|---|---|\n"
    for task, names in tasks.items():
        for name, found in names.items():
            low, high = found["quartiles"]
            rows += f"| {task} | {name} | **{found['ratio']:.2f}** | {low:.2f} to {high:.2f} "
            rows += f"| {1000 * found['seconds']:.0f} ms |\n"
    return rows
