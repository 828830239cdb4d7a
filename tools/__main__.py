"""``python -m tools``: benchmarks, drills and page writers for developers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.cli.options import Device
from caloric.errors import InputError, unknown
from caloric.runtime.files import replacing
from caloric.types import Report

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)

Data = Annotated[Path, typer.Option("--data", help="The directory of the data set.")]
JsonOut = Annotated[
    str | None,
    typer.Option("--json", help="Write all results as JSON to this file; - for standard output."),
]


@app.command()
def patches(
    data: Data,
    json_path: JsonOut = None,
    max_patches: Annotated[int, typer.Option(help="Maximum number of patches per file.")] = 300,
) -> None:
    """Evaluate verification, matching and retrieval on the patches of HPatches."""
    from rich.table import Table

    from caloric.bench import report
    from tools import patches as benchmark

    lines = benchmark.run(data, max_patches, console.line_printer())
    if json_path is not None:
        results = {
            line.method: {
                task: {
                    "mAP": vars(line.scores[task]),
                    "lead of the default": vars(line.leads[task]),
                }
                for task in line.scores
            }
            for line in lines
        }
        about = {"versions": report.versions(), "patches per file": max_patches}
        console.write_text(json_path, json.dumps(about | {"methods": results}, indent=1))
    if json_path != "-":
        table = Table("task", *(line.method for line in lines), title="mean average precision")
        for task in lines[0].scores:
            table.add_row(task, *(f"{line.scores[task].mean:.3f}" for line in lines))
        console.tables().print(table)


@app.command()
def geometry(
    data: Data,
    json_path: JsonOut = None,
    seeds: Annotated[int, typer.Option(help="Rendered pairs per photograph and kind.")] = 1,
    processes: Annotated[int, typer.Option(help="Number of processes.")] = 2,
) -> None:
    """Compare estimators on rendered pairs, and calibrate the confidence."""
    from tools.geometry import run as benchmark

    report = benchmark.run(data, seeds, processes, console.line_printer())
    console.write_text(json_path or "-", json.dumps(report, indent=1))


@app.command()
def parts(
    photographs: Annotated[list[Path], typer.Argument(help="Photographs of buildings.")],
    json_path: JsonOut = None,
    processes: Annotated[int, typer.Option(help="Number of processes.")] = 2,
) -> None:
    """Match parts of photographs, which show repeated structure."""
    from tools.geometry import parts as benchmark

    report = benchmark.run(photographs, processes, console.line_printer())
    console.write_text(json_path or "-", json.dumps(report, indent=1))


@app.command()
def filters(
    data: Data,
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Maximum number of features.")] = 4000,
) -> None:
    """Compare agreement with AdaLAM and GMS on image pairs."""
    from caloric.bench import pair_data
    from tools import filters as benchmark

    report = benchmark.run(pair_data.read(data), max_features, console.line_printer())
    console.write_text(json_path or "-", json.dumps(report, indent=1))


@app.command()
def claims(json_path: JsonOut = None) -> None:
    """Test the paper's claims on heat and the closed forms with images of scikit-image."""
    from rich.table import Table

    from tools import claims as benchmark

    results = benchmark.run(console.line_printer())
    if json_path is not None:
        console.write_text(json_path, json.dumps(vars(results), indent=1))
    if json_path != "-":
        strengths = [f"{s:g}" for s in benchmark.STRENGTHS]
        table = Table("mAP at affine strength", *strengths, "cost relative to sift")
        for name, values in results.accuracy.items():
            cost = f"{results.cost[name]['median']:.2f}"
            table.add_row(name, *(f"{v['mAP']:.3f}" for v in values), cost)
        console.tables().print(table)


@app.command()
def registration(
    directories: Annotated[list[Path], typer.Argument(help="Image directories.")],
    work: Annotated[Path, typer.Option(help="Working directory; finished work in it is kept.")],
    json_path: JsonOut = None,
) -> None:
    """Count the images registered by COLMAP's SIFT and by Caloric, both with their defaults."""
    from tools import registration as benchmark

    report = benchmark.run(directories, work, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def cost(
    directories: Annotated[list[Path], typer.Argument(help="Image directories.")],
    work: Annotated[Path, typer.Option(help="Working directory; WORK/cost is replaced.")],
    json_path: JsonOut = None,
    kinds: Annotated[
        str | None,
        typer.Option(help="Builds of the core, separated by commas; default: the fastest."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of interleaved rounds.")] = 3,
) -> None:
    """Measure the CPU time before COLMAP's mapper, beside that of COLMAP's SIFT (Linux)."""
    from caloric.runtime import native
    from tools import cost as benchmark

    console.check_outputs(json_path, None)
    known = native.core().kinds()
    selected = kinds.split(",") if kinds else known[:1]
    for kind in selected:
        if kind not in known:
            raise unknown("build", kind, known)
    report = benchmark.run(directories, work / "cost", selected, rounds, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def search(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Images: the first and second are a pair, the third and fourth, and so on."
        ),
    ],
    json_path: JsonOut = None,
    descriptors: Annotated[int, typer.Option(help="Number of descriptors per image.")] = 8000,
    rounds: Annotated[int, typer.Option(help="Number of interleaved rounds.")] = 6,
) -> None:
    """Measure the exact search for neighbors by each build of the core, on one thread."""
    from tools import search as benchmark

    report = benchmark.run(images, descriptors, rounds, console.line_printer())
    console.write_text(json_path or "-", json.dumps(report, indent=1))


@app.command()
def refined_models(
    scenes: Annotated[
        list[Path], typer.Argument(help="Directories with images/ and cameras.json.")
    ],
    json_path: JsonOut = None,
) -> None:
    """Compare refined models with unrefined ones, and with snapping to SIFT keypoints."""
    from tools import refined_models as benchmark

    console.check_outputs(json_path, None)
    report = benchmark.run(scenes, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def models(
    scenes: Annotated[
        list[Path], typer.Argument(help="Directories with images/ and cameras.json.")
    ],
    json_path: JsonOut = None,
    max_features: Annotated[
        list[int] | None,
        typer.Option(help="Limits for COLMAP, which may exceed them; default: 4000 and 8000."),
    ] = None,
) -> None:
    """Compare COLMAP models from Caloric's and COLMAP's features with the true cameras."""
    from tools import models as benchmark

    console.check_outputs(json_path, None)
    budgets = max_features or list(benchmark.BUDGETS)
    report = benchmark.run(scenes, budgets, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def readers(
    images: Annotated[list[Path], typer.Argument(help="Directories of images.")],
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Maximum number of features.")] = 4000,
    limit: Annotated[
        int | None, typer.Option(help="Use only the first images of each directory.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(help="Match only images whose positions in the list differ by at most this."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Use only these matchers, separated by semicolons."),
    ] = None,
) -> None:
    """Match exported features as hloc and COLMAP do, and reconstruct; compare with RootSIFT."""
    from tools import readers as benchmark

    console.check_outputs(json_path, None)
    rules = only.split(";") if only else [*benchmark.RULES]
    for name in rules:
        if name not in benchmark.RULES:
            raise unknown("matcher", name, benchmark.RULES)
    report = benchmark.run(images, max_features, limit, window, rules, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def reader_pairs(
    images: Annotated[list[Path], typer.Argument(help="Directories of images.")],
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Maximum number of features.")] = 2000,
    pairs: Annotated[int, typer.Option(help="Pairs of each directory.")] = 4,
) -> None:
    """Match exported features of image pairs with other libraries; compare with RootSIFT."""
    from tools import reader_pairs as benchmark

    console.check_outputs(json_path, None)
    report = benchmark.run(images, max_features, pairs, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def wide(
    data: Annotated[
        Path, typer.Option("--data", help="A directory of photographs named SCENE_NUMBER.jpg.")
    ],
    json_path: JsonOut = None,
    wide_pairs: Annotated[
        Path | None,
        typer.Option("--wide", help="A directory of pairs: PAIR/1.jpg, 2.jpg and points.txt."),
    ] = None,
    oxford: Annotated[Path | None, typer.Option(help="Oxford Affine.")] = None,
    pairs: Annotated[int, typer.Option(help="Number of related and of unrelated pairs.")] = 300,
    seed: Annotated[int, typer.Option(help="Random seed for the pairs.")] = 0,
) -> None:
    """Match oblique views, unrelated pairs and real pairs with wide baselines."""
    from tools import wide as benchmark
    from tools.pages import wide as pages

    console.check_outputs(json_path, None)
    report = benchmark.run(data, wide_pairs, oxford, pairs, seed, console.line_printer())
    console.report_results(json_path, report, pages.lines(report))


@app.command()
def scale(
    data: Annotated[Path, typer.Option("--data", help="A directory of photographs.")],
    json_path: JsonOut = None,
    oxford: Annotated[Path | None, typer.Option(help="Oxford Affine, to test retrieval.")] = None,
    images: Annotated[int, typer.Option(help="Number of small images for the Dask run.")] = 50_000,
    only: Annotated[
        str | None,
        typer.Option(
            help="Run only these sections, separated by commas; others are kept from the JSON file."
        ),
    ] = None,
) -> None:
    """Measure throughput, sizes and memory of collections, up to a million images."""
    from tools import scale as benchmark
    from tools.pages import collections

    console.check_outputs(json_path, None)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    previous = console.json_file(json_path)
    report = json.loads(previous.read_text()) if only and previous and previous.exists() else {}
    report |= benchmark.run(
        data, oxford, images, sections,
        console.line_printer(),
    )  # fmt: skip
    console.report_results(json_path, report, [collections.page(report)])


@app.command()
def kills(
    data: Annotated[Path, typer.Option("--data", help="A directory of photographs.")],
    json_path: JsonOut = None,
    count: Annotated[int, typer.Option("--kills", help="How many times to kill a run.")] = 20,
    seed: Annotated[int, typer.Option(help="Random seed for the times of the kills.")] = 0,
) -> None:
    """Kill collection runs at random times, run them again, and compare the stores."""
    from tools.drills import kills as benchmark

    console.check_outputs(json_path, None)
    report = benchmark.run(data, count, 300, seed, console.line_printer())
    if json_path is not None:
        console.write_report(json_path, report)
    failed = [k for k in report["kills"] if not k["the same store"] or k["written again"]]
    total = len(report["kills"])
    typer.echo(f"{total - len(failed)} of {total} ended with the same store as an undisturbed run")
    if failed:
        raise typer.Exit(1)


@app.command()
def view(
    image: Annotated[
        Path | None,
        typer.Argument(
            help="An image with at least 10,000 features; default: one of scikit-image."
        ),
    ] = None,
    screenshot: Annotated[
        Path | None,
        typer.Option(help="Only write the screenshot of the documentation to this JPEG file."),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Show a model with this many random points instead of two images."),
    ] = None,
    json_path: JsonOut = None,
) -> None:
    """Measure first paint and frame rate of `caloric view` in a headless Chromium."""
    from tools.drills import model_view
    from tools.drills import view as benchmark

    console.check_outputs(json_path, screenshot)
    if screenshot is not None:
        benchmark.screenshot(screenshot)
        return
    report = benchmark.run(image) if points is None else model_view.run(points)
    numbers = {k: v for k, v in report.items() if isinstance(v, int | float)}
    console.report_results(json_path, report, (f"{k}: {v:,.0f}" for k, v in numbers.items()))


@app.command()
def align(
    data: Data,
    strecha: Annotated[
        list[Path] | None,
        typer.Option(help="Directories with images/ and cameras.json, for refined matches."),
    ] = None,
    json_path: JsonOut = None,
    cases: Annotated[int, typer.Option(help="Number of cases per cell.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed for the transforms.")] = 0,
    only: Annotated[
        str,
        typer.Option(
            help="Run only these sections, separated by commas; others are kept from the JSON file."
        ),
    ] = "",
) -> None:
    """Compare alignment with ECC, Lucas-Kanade, and SIFT with RANSAC on photographs."""
    from tools.alignment import benchmark
    from tools.pages import alignment

    console.check_outputs(json_path, None)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    if cases < 1:
        raise InputError(f"--cases must be a positive integer, got {cases}")
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    if not strecha and "refine" in sections:
        sections.remove("refine")
    report: Report = {}
    previous = console.json_file(json_path)
    if only and previous is not None and previous.exists():
        report = json.loads(previous.read_text())
    report |= benchmark.run(
        data, strecha or [], cases, seed, sections,
        console.line_printer(),
    )  # fmt: skip
    console.report_results(json_path, report, (f"{table}\n" for table in alignment.tables(report)))


@app.command()
def gpu(
    data: Annotated[Path, typer.Option("--data", help="A directory of photographs.")],
    oxford: Annotated[
        Path | None, typer.Option(help="Oxford Affine, to compare accuracy on both devices.")
    ] = None,
    json_path: JsonOut = None,
    device: Device = "cuda",
    commit: Annotated[
        str | None, typer.Option(help="The commit under test, for the report.")
    ] = None,
) -> None:
    """Run the acceptance test of the GPU code: throughput, limits, agreement with the CPU."""
    from tools.gpu import benchmark, report

    console.check_outputs(json_path, None, inputs=(data,))

    def save(results: Report) -> None:
        if console.json_file(json_path) is not None:
            console.write_report(str(json_path), results)

    results = benchmark.run(
        benchmark.Inputs(data, oxford, device, commit), console.line_printer(), save
    )
    console.report_results(json_path, results, report.lines(results))
    failures = report.failures(results)
    if failures:
        typer.echo(f"requirements not met: {'; '.join(failures)}", err=True)
        raise typer.Exit(1)


@app.command()
def merge_wide(
    results: Annotated[list[Path], typer.Argument(help="JSON files of `python -m tools wide`.")],
) -> None:
    """Merge runs of the wide-baseline benchmark into docs/results/wide.json."""
    from tools.pages.markdown import RESULTS
    from tools.pages.wide import packed

    merged = packed([json.loads(path.read_text("utf-8")) for path in results])
    (RESULTS / "wide.json").write_text(json.dumps(merged), encoding="utf-8")


@app.command()
def pages(
    plots: Annotated[
        bool, typer.Option("--plots", help="Also redraw the plots and images.")
    ] = False,
) -> None:
    """Write the generated pages of the documentation from the results in docs/results."""
    from tools.pages import registry
    from tools.pages.markdown import DOCS

    for name, page in registry.PAGES.items():
        with replacing(DOCS / name) as file:
            file.write(page().encode())
        typer.echo(f"written: {DOCS / name}")
    if plots:
        registry.draw(DOCS)


@app.command()
def fuzz(
    files: Annotated[int, typer.Option(help="Number of damaged files.")] = 10_000,
    first: Annotated[
        int, typer.Option(help="Number of the first file; a file's number is its seed.")
    ] = 0,
) -> None:
    """Extract features of damaged image files: each must yield features or a one-line error."""
    from tools.drills.fuzz import run

    progress = console.Progress()
    report = run(files, first, lambda done: progress("files", done, files))
    for outcome, count in sorted(report.outcomes.items()):
        typer.echo(f"{outcome:9} {count:7}")
    for seed, text in report.broken:
        typer.echo(f"file {seed}: {text}")
    if report.broken:
        raise typer.Exit(1)


if __name__ == "__main__":
    try:
        app()
    except (InputError, OSError) as error:
        typer.echo(f"tools: {error}", err=True)
        raise SystemExit(2) from None
