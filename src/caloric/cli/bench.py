"""``caloric bench``: benchmarks that users run on their own data and machines."""

from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import collection, console
from caloric.cli.collection import How, Nearest, Processes, Scheduler
from caloric.cli.options import Device
from caloric.errors import InputError

app = typer.Typer(
    help="Run benchmarks on local copies of public data sets, or on your own images.",
    no_args_is_help=True,
)


Data = Annotated[Path, typer.Option("--data", help="The directory of the data set.")]
JsonOut = Annotated[
    str | None,
    typer.Option("--json", help="Write all results as JSON to this file; - for standard output."),
]
PlotOut = Annotated[
    Path | None, typer.Option("--plot", help="Write a plot of the results to this file.")
]
CacheIn = Annotated[
    Path | None,
    typer.Option(
        "--cache", help="Directory for cached features and matches; metrics are always recomputed."
    ),
]
Only = Annotated[str, typer.Option("--only", help="Only these scenes, separated by commas.")]


def _bench(
    name: str, data: Path, json_path: str | None, plot: Path | None, cache: Path | None, only: str
) -> None:
    from rich.table import Table

    from caloric.bench import datasets, evaluate, methods, report

    console.check_outputs(json_path, plot, inputs=(data,))
    console.check_plot(plot)
    if methods.not_installed():
        typer.echo(f"not compared (not installed): {', '.join(methods.not_installed())}", err=True)
    pairs = datasets.DATASETS[name](data)
    if only:
        chosen = only.split(",")
        known = {name for p in pairs for name in (p.first.parent.name, p.group)}
        missing = [name for name in chosen if name not in known]
        if missing:
            raise InputError(f"{data}: contains no scene {', '.join(missing)}")
        pairs = [p for p in pairs if p.first.parent.name in chosen or p.group in chosen]
    results = evaluate.evaluate(
        pairs,
        methods.fixed() + methods.pipelines(),
        cache,
        console.Progress().counter("pairs", len(pairs)),
    )
    summary = report.summarize(name, pairs, results)
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
    "fischer", "Evaluate descriptors and detectors on Fischer's data set of synthetic changes."
)
_add_command("hpatches", "Evaluate descriptors and detectors on the HPatches sequences.")


@app.command()
def pairs(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="Data directory: Oxford Affine, HPatches or Fischer; image pairs with "
            "ground-truth points (points.txt); scenes with known cameras (cameras.json); or any "
            "images, which are then transformed synthetically.",
        ),
    ],
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Maximum number of features per image.")] = 2048,
    features: Annotated[
        list[Path] | None,
        typer.Option(
            help="Feature file of another method, in hloc's format (.h5); may be repeated."
        ),
    ] = None,
    parts: Annotated[
        bool,
        typer.Option(
            "--parts",
            help="Compare match_images with agreement and propagation on and off instead.",
        ),
    ] = False,
    only: Only = "",
) -> None:
    """Compare Caloric with OpenCV, COLMAP and other methods on two-view geometry, end to end."""
    from rich.table import Table

    from caloric.bench import contenders, pair_data
    from caloric.bench import pairs as benchmark
    from caloric.bench import parts as switched

    console.check_outputs(json_path, None, inputs=(data, *(features or ())))
    chosen = pair_data.read(data)
    if only:
        names = only.split(",")
        chosen = [pair for pair in chosen if pair.scene in names]
        if not chosen:
            raise InputError(f"{data}: contains no scene {only}")
    count = console.Progress().counter
    if parts:
        progress = count("pairs", len(chosen) * len(switched.contenders(chosen)))
        rows_of = dict(switched.run(chosen, max_features, progress))
        report = switched.summarize(chosen, rows_of)
    else:
        compared = contenders.default_contenders(max_features)
        compared += [contenders.from_file(path) for path in features or []]
        progress = count("pairs", len(chosen) * len(compared))
        report = benchmark.summarize(chosen, dict(benchmark.run(chosen, compared, progress)))
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
    max_features: Annotated[int, typer.Option(help="Maximum number of features.")] = 2000,
    thread_counts: Annotated[
        str, typer.Option("--threads", help="Thread counts, separated by commas.")
    ] = "1,2",
    rounds: Annotated[
        int, typer.Option(help="Number of timed rounds, after one warm-up round.")
    ] = 15,
    large: Annotated[
        str,
        typer.Option(help="Sizes of large images in megapixels, separated by commas; 0 for none."),
    ] = "6.25,25,100",
) -> None:
    """Compare the speed of Caloric, OpenCV, COLMAP, kornia and faiss, in interleaved runs."""
    from caloric.bench import speed as benchmark
    from caloric.bench import speed_report

    console.check_outputs(json_path, plot, inputs=(image,))
    console.check_plot(plot)
    numbers = console.numbers(thread_counts, "--threads", int)
    sizes = [size for size in console.numbers(large, "--large", float) if size]
    settings = benchmark.Settings(image, max_features, numbers, rounds, sizes)
    report = benchmark.run(settings, console.line_printer())
    if plot is not None:
        speed_report.plot(report, plot)
    console.report_results(json_path, report, speed_report.table(report))


@app.command()
def gpu(
    data: Annotated[Path, typer.Option("--data", help="A directory of images.")],
    json_path: JsonOut = None,
    device: Device = "cuda",
) -> None:
    """Compare the throughput of the CPU and a GPU in images and pairs per second."""
    from caloric.gpu import devices

    console.check_outputs(json_path, None, inputs=(data,))
    if devices.resolve(device) is None:
        raise InputError("no GPU found; see `caloric info`, or name one with --device")
    from caloric.bench import gpu as benchmark

    report = benchmark.run(data, device, console.line_printer())
    console.report_results(json_path, report, benchmark.lines(report))


@app.command()
def scale(
    data: Annotated[
        Path, typer.Option("--data", help="Photographs, from which the images are rendered.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Directory for images and store; an interrupted run continues."
        ),
    ],
    images: Annotated[int, typer.Option(help="Number of images.")] = 1000,
    max_features: Annotated[int, typer.Option(help="Maximum number of features per image.")] = 1000,
    how: How = "retrieval",
    nearest: Nearest = 20,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
    json_path: JsonOut = None,
) -> None:
    """Measure a collection of rendered images, from pixels to verified pairs."""
    from typing import cast

    from caloric.bench import scale as benchmark
    from caloric.collection import Workers
    from caloric.collection.pairing import How as Selection

    console.check_outputs(json_path, None, inputs=(data,))
    settings = benchmark.Run(
        data, output, images, max_features, cast(Selection, how), nearest,
        Workers(workers, cluster, device),
    )  # fmt: skip
    report = benchmark.run(settings, collection.reporter())
    console.report_results(json_path, report, benchmark.lines(report))
