"""``caloric collection``: one command for each step, and one for all of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from caloric.cli import console
from caloric.cli.options import DEFAULTS, DescriptorName, Device, takes_extract_options
from caloric.errors import InputError
from caloric.interop.exporters import FORMATS
from caloric.options import ExtractOptions

if TYPE_CHECKING:
    from caloric.collection import Pairing, Reconstruction, Reporter

app = typer.Typer(help="Turn a directory of images into features, matches and a COLMAP model.",
                  no_args_is_help=True)  # fmt: skip

Folder = Annotated[
    str, typer.Argument(help="The images: a directory, or an address such as s3://…")
]
Out = Annotated[
    Path, typer.Option("--output", "-o", help="The store; created if it does not exist.")
]
Processes = Annotated[
    int,
    typer.Option("--workers", help="Number of processes; 0 for one per core, or one for a GPU."),
]
Scheduler = Annotated[
    str | None,
    typer.Option("--cluster", help="The address of a Dask scheduler, tcp://host:8786, or local."),
]
How = Annotated[str, typer.Option("--pairs", help="exhaustive, sequential or retrieval.")]
AsBefore = Annotated[
    str | None,
    typer.Option(
        "--pairs", help="exhaustive, sequential or retrieval; by default as chosen before."
    ),
]
Store = Annotated[Path, typer.Argument(help="The store.")]
Overlap = Annotated[
    int, typer.Option(help="Sequential pairs: match each image with this many next ones.")
]
Nearest = Annotated[
    int, typer.Option(help="Retrieval: match each image with this many most similar ones.")
]
Ratio = Annotated[float, typer.Option(help="Threshold of the ratio test.")]
Model = Annotated[str, typer.Option(help="fundamental or homography.")]
Threshold = Annotated[float, typer.Option(help="Largest residual of an inlier, in pixels.")]


@app.callback()
def _collection() -> None:
    console.print_warnings()


def _reporter() -> "Reporter":
    """Return a reporter that prints progress, from the start of each step, and its result."""
    from caloric.collection import Reporter

    progress = console.Progress()

    @contextmanager
    def working(what: str) -> Iterator[None]:
        nonlocal progress
        progress = console.Progress()
        with console.working(what):
            yield

    return Reporter(lambda *counts: progress(*counts), working, typer.echo)


def _pairing(how: str, overlap: int, nearest: int) -> "Pairing":
    from caloric.collection import Pairing

    return Pairing(cast(Any, how), overlap, nearest)


def _keeping() -> AbstractContextManager[None]:
    from caloric.collection.workflow import KEPT

    return console.keeping(KEPT)


def _check_model(models: "tuple[Reconstruction, ...]", output: Path) -> None:
    if not models:
        database = output / "colmap" / "database.db"
        raise InputError(f"{database}: COLMAP found no two images to begin with")


def _finish(skipped: dict[str, str]) -> None:
    if skipped:
        raise typer.Exit(1)


@app.command()
@takes_extract_options
def extract(
    folder: Folder,
    output: Out,
    options: ExtractOptions = DEFAULTS,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Extract the features of images that are new or have changed. Exit code 1: some skipped."""
    from caloric import collection

    runners = collection.Workers(workers, cluster, device)
    with _keeping():
        result = collection.extract(folder, output, options, workers=runners, report=_reporter())
    _finish(result.skipped)


@app.command()
def pairs(
    output: Store,
    how: How = "exhaustive",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Choose the pairs of images to match, and write them to the store."""
    from caloric import collection

    options, runners = _pairing(how, overlap, nearest), collection.Workers(workers, cluster)
    with _keeping():
        collection.pair(output, options, workers=runners, report=_reporter())


@app.command()
def match(
    output: Store,
    how: AsBefore = None,
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Match the pairs that are new or have changed."""
    from caloric import collection

    pairing = None if how is None else _pairing(how, overlap, nearest)
    options, runners = collection.Matching(ratio), collection.Workers(workers, cluster, device)
    with _keeping():
        collection.match(output, options, pairing=pairing, workers=runners, report=_reporter())


@app.command()
def verify(
    output: Store,
    model: Model = "fundamental",
    threshold: Threshold = 1.5,
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Estimate a geometry from the matches of each pair."""
    from caloric import collection

    options = collection.Matching(model=cast(Any, model), threshold=threshold)
    runners = collection.Workers(workers, cluster)
    with _keeping():
        collection.verify(output, options, workers=runners, report=_reporter())


@app.command()
def refine(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The store.")],
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Refine the features of verified matches, so that all views of a point agree.

    Exports then have the refined positions. Exit code 1: some images could not be read; their
    features keep their positions.
    """
    from caloric import collection

    runners = collection.Workers(workers, cluster)
    with _keeping():
        result = collection.refine(folder, output, workers=runners, report=_reporter())
    _finish(result.skipped)


@app.command()
def export(
    output: Store,
    images: Annotated[
        Path | None, typer.Option(help="The directory of images, to read cameras from EXIF data.")
    ] = None,
    to: Annotated[str, typer.Option(help=f"Format: {', '.join(FORMATS)}.")] = "colmap",
) -> None:
    """Export features and matches for other tools, below OUT."""
    from caloric import collection

    collection.export(output, to, images=images, report=_reporter())


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(help="The directory of images.")],
    database: Annotated[Path, typer.Option(help="A COLMAP database with their keypoints.")],
    descriptor: DescriptorName = "caloric-unlearned",
) -> None:
    """Replace the descriptors at the keypoints of a COLMAP database; then match again."""
    from caloric.collection import exporting

    with console.working(f"describing the keypoints of {database}"):
        count, skipped = exporting.describe_database(database, folder, descriptor)
    for name, why in skipped.items():
        console.skipped(name, why)
    typer.echo(f"{count} images described again: {database}")
    _finish(skipped)


@app.command()
def reconstruct(
    folder: Annotated[Path, typer.Argument(help="The directory of images.")], output: Out
) -> None:
    """Reconstruct a model by COLMAP from the exported database: OUT/colmap/sparse."""
    from caloric import collection

    with console.keeping("features, matches and database are kept"):
        result = collection.reconstruct(folder, output, report=_reporter())
    _check_model(result.models, output)


@app.command()
@takes_extract_options
def run(
    folder: Folder,
    output: Out,
    options: ExtractOptions = DEFAULTS,
    how: How = "exhaustive",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    threshold: Threshold = 1.5,
    refine: Annotated[bool, typer.Option(help="Refine the positions of verified features.")] = True,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Run all steps: features, pairs, matches, geometries, refined tracks, database and model."""
    from caloric import collection
    from caloric.collection import sources

    with _keeping():
        result = collection.run(
            folder, output, options, pairing=_pairing(how, overlap, nearest),
            matching=collection.Matching(ratio, threshold=threshold), refine=refine,
            workers=collection.Workers(workers, cluster, device), report=_reporter(),
        )  # fmt: skip
    if sources.is_remote(sources.absolute(folder)):
        typer.echo("no model: COLMAP needs the images on a disk; copy them and run `reconstruct`")
    else:
        _check_model(result.models, output)
    _finish(result.skipped)
