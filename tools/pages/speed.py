"""The page of the documentation on speed."""

from typing import Any

from caloric.bench.speed_report import gains_text, threads_text

Report = dict[str, Any]


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
        tables += f"### {threads_text(number)}\n\n{_table(tasks)}\n"
    alone = ""
    for number, tasks in report["with OpenCV alone"].items():
        alone += f"{threads_text(number)}:\n\n{_table(tasks)}\n"
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
        gains=gains_text(report),
    )


def _table(tasks: Report) -> str:
    rows = "| task | | ratio | quartiles | time |\n|---|---|---|---|---|\n"
    for task, names in tasks.items():
        for name, found in names.items():
            low, high = found["quartiles"]
            rows += f"| {task} | {name} | **{found['ratio']:.2f}** | {low:.2f} to {high:.2f} "
            rows += f"| {1000 * found['seconds']:.0f} ms |\n"
    return rows
