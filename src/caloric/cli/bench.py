"""``caloric bench``: benchmarks that users run on their own data and machines."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from caloric.cli import console
from caloric.cli.options import Device
from caloric.errors import InputError

app = typer.Typer(help="Run benchmarks on local copies of public data sets.", no_args_is_help=True)


Data = Annotated[Path, typer.Option("--data", help="The folder of the data set.")]
JsonOut = Annotated[
    str | None,
    typer.Option("--json", help="Write all figures as JSON to this file; - for standard output."),
]
PlotOut = Annotated[
    Path | None, typer.Option("--plot", help="Write a plot of the figures to this file.")
]
CacheIn = Annotated[
    Path | None,
    typer.Option(
        "--cache", help="A folder to cache predictions in; the metrics are always recomputed."
    ),
]
Only = Annotated[str, typer.Option("--only", help="Only these scenes, separated by commas.")]


def _bench(
    name: str, data: Path, json_path: str | None, plot: Path | None, cache: Path | None, only: str
) -> None:
    from rich.progress import Progress
    from rich.table import Table

    from caloric.bench import datasets, evaluate, methods, report

    console.check_outputs(json_path, plot, inputs=(data,))
    if methods.absent():
        typer.echo(f"not installed, so not compared: {', '.join(methods.absent())}", err=True)
    pairs = datasets.DATASETS[name](data)
    if only:
        chosen = only.split(",")
        known = {name for p in pairs for name in (p.first.parent.name, p.group)}
        missing = [name for name in chosen if name not in known]
        if missing:
            raise InputError(f"{data}: no scene {', '.join(missing)} in it")
        pairs = [p for p in pairs if p.first.parent.name in chosen or p.group in chosen]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=len(pairs))
        results = evaluate.evaluate(
            pairs,
            methods.fixed() + methods.pipelines(),
            cache,
            lambda pair: progress.update(task, advance=1, description=pair),
        )
    summary = report.summarise(name, pairs, results)
    if json_path is not None:
        console.write_text(json_path, report.dumps(summary))
    if plot is not None:
        report.plot(summary, plot)
    if json_path == "-":
        return
    for part in report.COLUMNS:
        head, rows = report.table(summary, part)
        table = Table(*head, title=f"{name}: {part}")
        for row in rows:
            table.add_row(*row)
        console.tables().print(table)


def _add_command(name: str, description: str) -> None:
    """Add the command of a data set of image pairs; all have the same options."""

    @app.command(name, help=description)
    def command(
        data: Data,
        json_path: JsonOut = None,
        plot: PlotOut = None,
        cache: CacheIn = None,
        only: Only = "",
    ) -> None:
        _bench(name, data, json_path, plot, cache, only)


_add_command("oxford", "Evaluate descriptors and detectors on Oxford Affine.")
_add_command(
    "fischer", "Evaluate descriptors and detectors on Fischer's synthetic changes of 16 scenes."
)
_add_command("hpatches", "Evaluate descriptors and detectors on the sequences of HPatches.")


@app.command()
def pairs(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="Oxford, HPatches or Fischer; pairs with points.txt; scenes with cameras.json; "
            "or any photographs, which are changed synthetically.",
        ),
    ],
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Features per image.")] = 2048,
    features: Annotated[
        list[Path] | None,
        typer.Option(help="Features of another method, as hloc writes them (.h5); repeatable."),
    ] = None,
    only: Only = "",
) -> None:
    """Compare from two files to their geometry, with OpenCV, COLMAP and features of your own."""
    from rich.progress import Progress
    from rich.table import Table

    from caloric.bench import pairs as benchmark

    console.check_outputs(json_path, None, inputs=(data, *(features or ())))
    chosen = benchmark.read(data)
    if only:
        names = only.split(",")
        chosen = [pair for pair in chosen if pair.scene in names]
        if not chosen:
            raise InputError(f"{data}: no scene {only} in it")
    contenders = benchmark.default_contenders(max_features)
    contenders += [benchmark.from_file(path) for path in features or []]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("pairs", total=len(chosen) * len(contenders))
        results = dict(
            benchmark.run(
                chosen,
                contenders,
                lambda name: progress.update(task, advance=1, description=name),
            )
        )
    report = benchmark.summarise(chosen, results)
    if json_path is not None:
        console.write_report(json_path, report)
    if json_path != "-":
        head, rows = benchmark.table(report)
        table = Table("", *(row[0] for row in rows), title=f"{report['pairs']} pairs")
        for number, name in enumerate(head[1:], 1):
            table.add_row(name, *(row[number] for row in rows))
        console.tables().print(table)


@app.command()
def speed(
    image: Annotated[Path, typer.Argument(help="The image to extract features from.")],
    json_path: JsonOut = None,
    plot: PlotOut = None,
    max_features: Annotated[int, typer.Option(help="Largest number of features.")] = 2000,
    thread_counts: Annotated[
        str, typer.Option("--threads", help="Numbers of threads, separated by commas.")
    ] = "1,2",
    rounds: Annotated[int, typer.Option(help="Timed rounds, after one to warm up.")] = 15,
    large: Annotated[
        str,
        typer.Option(help="Sizes of large images in megapixels, separated by commas; 0 for none."),
    ] = "6.25,25,100",
) -> None:
    """Measure speed relative to OpenCV, COLMAP, kornia and faiss, interleaved in one run."""
    from caloric.bench import speed as benchmark
    from caloric.bench import speed_report

    console.check_outputs(json_path, plot, inputs=(image,))
    numbers = console.numbers(thread_counts, "--threads", int)
    sizes = [size for size in console.numbers(large, "--large", float) if size]
    report = benchmark.run(image, max_features, numbers, rounds, sizes, console.progress_lines())
    if json_path is not None:
        console.write_report(json_path, report)
    if plot is not None:
        speed_report.plot(report, plot)
    if json_path != "-":
        for line in speed_report.table(report):
            typer.echo(line)


@app.command()
def gpu(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    oxford: Annotated[
        Path | None,
        typer.Option(help="The folder of Oxford Affine, to compare the accuracy with the CPU."),
    ] = None,
    json_path: JsonOut = None,
    device: Device = "cuda",
    commit: Annotated[
        str | None, typer.Option(help="The commit that is measured, for the report.")
    ] = None,
) -> None:
    """Measure images, frames and pairs per second on a GPU, and its limits."""
    from caloric.gpu import devices

    console.check_outputs(json_path, None, inputs=(data,))
    devices.resolve(device)
    from caloric.bench import gpu as benchmark

    def keep(report: dict[str, Any]) -> None:
        if console.json_file(json_path) is not None:
            console.write_report(str(json_path), report)

    report = benchmark.run(data, oxford, device, commit, console.progress_lines(), keep)
    if json_path == "-":
        typer.echo(json.dumps(report, indent=1))
    if json_path != "-":
        for line in benchmark.lines(report):
            typer.echo(line)
    failures = benchmark.failures(report)
    if failures:
        typer.echo(f"not reached: {'; '.join(failures)}", err=True)
        raise typer.Exit(1)
