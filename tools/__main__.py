"""``python -m tools``: benchmarks, drills and page writers that only developers run."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from caloric.cli import console
from caloric.errors import InputError, unknown
from caloric.runtime.files import check_target, replacing

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)

Data = Annotated[Path, typer.Option("--data", help="The folder of the data set.")]
JsonOut = Annotated[
    str | None,
    typer.Option("--json", help="Write all figures as JSON to this file; - for standard output."),
]


@app.command()
def patches(
    data: Data,
    json_path: JsonOut = None,
    most: Annotated[int, typer.Option(help="Largest number of places per sequence.")] = 300,
) -> None:
    """Measure verification, matching and retrieval on the patches of HPatches."""
    from rich.table import Table

    from caloric.bench import report
    from tools import patches as benchmark

    lines = benchmark.run(data, most, console.line_printer())
    if json_path is not None:
        figures = {
            x.method: {
                task: {"figure": vars(x.figures[task]), "default ahead by": vars(x.ahead[task])}
                for task in x.figures
            }
            for x in lines
        }
        about = {"versions": report.versions(), "places a sequence": most}
        console.write_text(json_path, json.dumps(about | {"methods": figures}, indent=1))
    if json_path != "-":
        table = Table("task", *(x.method for x in lines), title="mean average precision")
        for task in lines[0].figures:
            table.add_row(task, *(f"{x.figures[task].mean:.3f}" for x in lines))
        console.tables().print(table)


@app.command()
def claims(json_path: JsonOut = None) -> None:
    """Test the claims of the paper on heat and the closed forms, on pictures of scikit-image."""
    from rich.table import Table

    from tools import claims as benchmark

    results = benchmark.run(console.line_printer())
    if json_path is not None:
        console.write_text(json_path, json.dumps(vars(results), indent=1))
    if json_path != "-":
        strengths = [f"{s:g}" for s in benchmark.STRENGTHS]
        table = Table("mAP at affine strength", *strengths, "cost, of sift's")
        for name, values in results.accuracy.items():
            cost = f"{results.cost[name]['median']:.2f}"
            table.add_row(name, *(f"{v['mAP']:.3f}" for v in values), cost)
        Console(width=None if sys.stdout.isatty() else 120).print(table)


@app.command()
def models(
    scenes: Annotated[list[Path], typer.Argument(help="Folders with images/ and cameras.json.")],
    json_path: JsonOut = None,
    max_features: Annotated[
        list[int] | None,
        typer.Option(help="The limits for COLMAP, which may return more: 4000 and 8000."),
    ] = None,
) -> None:
    """Compare COLMAP models from Caloric's and from COLMAP's features with the true cameras."""
    from tools import models as benchmark

    console.check_outputs(json_path, None)
    budgets = max_features or list(benchmark.BUDGETS)
    report = benchmark.run(scenes, budgets, console.line_printer())
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        for line in benchmark.lines(report):
            typer.echo(line)


@app.command()
def wide(
    data: Annotated[
        Path, typer.Option("--data", help="A folder of photographs, SCENE_NUMBER.jpg.")
    ],
    json_path: JsonOut = None,
    wide_pairs: Annotated[
        Path | None, typer.Option("--wide", help="Folders with 1.jpg, 2.jpg and points.txt.")
    ] = None,
    oxford: Annotated[Path | None, typer.Option(help="The folder of Oxford Affine.")] = None,
    pairs: Annotated[int, typer.Option(help="Number of related, and of unrelated pairs.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the pairs.")] = 0,
) -> None:
    """Match planes from aside and unrelated pairs; fit and test the confidence of geometries."""
    from tools import wide as benchmark
    from tools.pages import wide as pages

    console.check_outputs(json_path, None)
    report = benchmark.run(data, wide_pairs, oxford, pairs, seed, console.line_printer())
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        for line in pages.lines(report):
            typer.echo(line)


@app.command()
def scale(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    json_path: JsonOut = None,
    oxford: Annotated[
        Path | None, typer.Option(help="The folder of Oxford Affine, to test retrieval.")
    ] = None,
    images: Annotated[int, typer.Option(help="Number of tiny images for the Dask run.")] = 50_000,
    only: Annotated[
        str | None,
        typer.Option(
            help="Only these sections, separated by commas; the others stay as in the JSON file."
        ),
    ] = None,
) -> None:
    """Measure rates, sizes and memory of collections, up to a million images."""
    from tools import scale as benchmark
    from tools.pages import collections

    console.check_outputs(json_path, None)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    before = console.json_file(json_path)
    report = json.loads(before.read_text()) if only and before and before.exists() else {}
    report |= benchmark.run(
        data, oxford, images, sections,
        console.line_printer(),
    )  # fmt: skip
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        typer.echo(collections.page(report))


@app.command()
def kills(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    json_path: JsonOut = None,
    count: Annotated[int, typer.Option("--kills", help="Number of kills.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the random moments.")] = 0,
) -> None:
    """Kill runs over a collection at random moments, run again, and compare the stores."""
    from tools.drills import kills as benchmark

    console.check_outputs(json_path, None)
    report = benchmark.run(data, count, 300, seed, console.line_printer())
    if json_path is not None:
        console.write_report(json_path, report)
    wrong = [k for k in report["kills"] if not k["the same store"] or k["written again"]]
    total = len(report["kills"])
    typer.echo(f"{total - len(wrong)} of {total} ended with the store of an undisturbed run")
    if wrong:
        raise typer.Exit(1)


@app.command()
def view(
    image: Annotated[
        Path | None,
        typer.Argument(help="A picture with 10,000 features; by default one of scikit-image's."),
    ] = None,
    json_path: JsonOut = None,
) -> None:
    """Measure first paint and frame rate of `caloric view` in a headless Chromium."""
    from tools.drills import view as benchmark

    console.check_outputs(json_path, None)
    report = benchmark.run(image)
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        for name, value in report.items():
            if isinstance(value, int | float):
                typer.echo(f"{name}: {value:,.0f}")


@app.command()
def align(
    data: Data,
    strecha: Annotated[
        list[Path] | None,
        typer.Option(help="Folders with images/ and cameras.json, for refined matches."),
    ] = None,
    json_path: JsonOut = None,
    cases: Annotated[int, typer.Option(help="Number of cases per cell.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the random transforms.")] = 0,
    only: Annotated[
        str,
        typer.Option(
            help="Only these sections, separated by commas; the others stay as in the JSON file."
        ),
    ] = "",
) -> None:
    """Compare alignment with ECC, Lucas-Kanade and SIFT with RANSAC, on photographs."""
    from tools.alignment import benchmark
    from tools.pages import alignment

    console.check_outputs(json_path, None)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    if cases < 1:
        raise InputError(f"--cases must be a whole number from 1, got {cases}")
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    if not strecha and "refine" in sections:
        sections.remove("refine")
    report: dict[str, Any] = {}
    before = console.json_file(json_path)
    if only and before is not None and before.exists():
        report = json.loads(before.read_text())
    report |= benchmark.run(
        data, strecha or [], cases, seed, sections,
        console.line_printer(),
    )  # fmt: skip
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        for line in alignment.tables(report):
            typer.echo(line)


@app.command()
def accuracy_page(
    results: Annotated[
        list[Path], typer.Argument(help="JSON files of `caloric bench oxford`, fischer, hpatches.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write, .md.")],
    claims_path: Annotated[
        Path | None, typer.Option("--claims", help="JSON file of claims.")
    ] = None,
    ablation: Annotated[Path | None, typer.Option(help="JSON file of tools.ablation.")] = None,
) -> None:
    """Write the accuracy page of the documentation from the figures of its benchmarks."""
    from tools.pages import accuracy

    check_target(output)
    accuracy.write(results, claims_path, ablation, output)
    typer.echo(f"written: {output}")


@app.command()
def page(
    kind: Annotated[str, typer.Argument(help="speed, gpu, alignment or collections.")],
    results: Annotated[Path, typer.Argument(help="The JSON file of the benchmark.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write, .md.")],
) -> None:
    """Write another page of the documentation from the figures of its benchmark."""
    from caloric.bench import speed_report
    from tools.pages import alignment, collections, gpu, speed

    writers = {
        "speed": speed.page,
        "gpu": gpu.page,
        "alignment": alignment.page,
        "collections": collections.page,
    }
    if kind not in writers:
        raise unknown("page", kind, writers)
    check_target(output)
    report = json.loads(results.read_text())
    with replacing(output) as file:
        file.write(writers[kind](report).encode())
    if kind == "speed":
        speed_report.plot(report, output.with_name("speed.png"))
    typer.echo(f"written: {output}")


@app.command()
def fuzz(
    files: Annotated[int, typer.Option(help="How many broken files to try.")] = 10_000,
    first: Annotated[
        int, typer.Option(help="Number of the first file; a file's number is its seed.")
    ] = 0,
) -> None:
    """Extract broken image files: each must give features or an error of one line."""
    from rich.progress import Progress

    from tools.drills.fuzz import run

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("files", total=files)
        report = run(files, first, lambda done: progress.update(task, completed=done))
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
