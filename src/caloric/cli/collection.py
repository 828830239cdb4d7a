"""``caloric collection``: one command for each step, and one for all of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from caloric.cli import console
from caloric.cli.options import DEFAULTS, DescriptorName, Device, takes_extract_options
from caloric.errors import InputError, unknown
from caloric.options import ExtractOptions

if TYPE_CHECKING:
    from caloric.collection.engines import Engine
    from caloric.collection.extraction import Settings
    from caloric.collection.matching import Matching
    from caloric.collection.pairing import Pair, Pairing

app = typer.Typer(help="Turn a folder of photographs into features, matches and a COLMAP model.",
                  no_args_is_help=True)  # fmt: skip

Folder = Annotated[str, typer.Argument(help="The images: a folder, or an address such as s3://…")]
Out = Annotated[
    Path, typer.Option("--output", "-o", help="The store; created if it does not exist.")
]
Workers = Annotated[
    int, typer.Option(help="Number of processes; 0 for one per core, or one for a GPU.")
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


def _locked(store: Path) -> AbstractContextManager[None]:
    from caloric.collection.store import locked

    return locked(store, lambda message: typer.echo(message, err=True))


_KEPT = "what is finished is kept: run the same command again to go on"


@contextmanager
def _engine(workers: int, cluster: str | None, store: Path) -> Iterator["Engine"]:
    """Yield the engine, with the store locked."""
    with console.keeping(_KEPT), _locked(store), _workers(workers, cluster) as engine:
        yield engine


@contextmanager
def _workers(workers: int, cluster: str | None) -> Iterator["Engine"]:
    from caloric.collection import engines
    from caloric.runtime import threads

    if cluster is not None:
        engine = engines.Cluster(cluster)
        try:
            yield engine
        finally:
            engine.close()
        return
    if workers < 0:
        raise InputError(f"--workers must be a whole number from 0, got {workers}")
    with engines.Processes(workers or threads.count()) as processes:
        yield processes


def _device_and_workers(device: str, workers: int, cluster: str | None) -> tuple[str, int]:
    """Return the device and the number of processes; cluster workers resolve their own device."""
    from caloric.gpu import devices

    if cluster is not None:
        return device, workers
    target = devices.resolve(device)
    if target is None or target.type == "cpu":
        return ("cpu" if target is None else device), workers
    return str(target), workers or 1


def _settings(options: ExtractOptions) -> "Settings":
    from caloric.collection.extraction import Settings

    return Settings(**options.to_json())


def _pairing(how: str | None, overlap: int, nearest: int) -> "Pairing | None":
    from caloric.collection import pairing

    return None if how is None else pairing.Pairing(cast(pairing.How, how), overlap, nearest)


def _matching(ratio: float, model: str, threshold: float) -> "Matching":
    from caloric.collection.matching import Matching

    if model not in ("fundamental", "homography"):
        raise unknown("model", model, ("fundamental", "homography"))
    if not 0 < ratio <= 1 or not threshold > 0:
        raise InputError("--ratio must be above 0 and at most 1, --threshold above 0")
    return Matching(ratio, cast(Any, model), threshold)


def _extract(
    folder: str, out: Path, settings: "Settings", engine: "Engine", device: str
) -> list[str]:
    from caloric.collection import extraction

    with console.working(f"extracting features of {folder}"):
        summary = extraction.extract(
            folder, out, settings, engine, device=device, progress=console.Progress()
        )
    for name, why in summary.skipped.items():
        console.skipped(name, why)
    features = sum(count for count in summary.found.values() if isinstance(count, int))
    used = len(summary.found) - len(summary.skipped)
    typer.echo(
        f"{used} of {len(summary.found)} images, {features:,} features; {summary.extracted} new, "
        f"{summary.made} of {summary.shards} shards made"
    )
    if not used:
        raise InputError(f"{folder}: none of the images could be used")
    return list(summary.skipped)


def _pairs(out: Path, pairing: "Pairing | None", engine: "Engine") -> list["Pair"]:
    from caloric.collection import pairing as choosing

    with console.working("choosing pairs"):
        return choosing.pairs(out, pairing, engine, console.Progress())


def _match(
    out: Path, pairs: list["Pair"], options: "Matching", engine: "Engine", device: str
) -> None:
    from caloric.collection import matching

    with console.working(f"matching {len(pairs)} pairs"):
        new = matching.match(out, pairs, options, engine, console.Progress(), device)
    typer.echo(f"{len(pairs)} pairs, {new} newly matched")


def _verify(out: Path, options: "Matching", engine: "Engine") -> None:
    from caloric.collection import matching

    with console.working("verifying matches"):
        valid, total = matching.verify(out, options, engine, console.Progress())
    typer.echo(f"{valid} of {total} pairs have a geometry")


def _refine(folder: str, out: Path, engine: "Engine") -> list[str]:
    from caloric.collection import refining

    with console.working("refining tracks"):
        found = refining.refine(folder, out, engine, console.Progress())
    for name, why in found.skipped.items():
        console.skipped(name, f"{why}; its features stay where they were found")
    typer.echo(f"{found.tracks:,} tracks; {found.moved:,} of {found.features:,} features refined")
    return list(found.skipped)


def _finish(skipped: list[str]) -> None:
    if skipped:
        raise typer.Exit(1)


@app.command()
@takes_extract_options
def extract(
    folder: Folder,
    output: Out,
    options: ExtractOptions = DEFAULTS,
    workers: Workers = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Extract the features of images that are new or have changed. Exit code 1: some skipped."""
    settings = _settings(options)
    device, workers = _device_and_workers(device, workers, cluster)
    with _engine(workers, cluster, output) as engine:
        skipped = _extract(folder, output, settings, engine, device)
    _finish(skipped)


@app.command()
def pairs(
    output: Store,
    how: How = "exhaustive",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    workers: Workers = 0,
    cluster: Scheduler = None,
) -> None:
    """Choose the pairs of images to match, and write them to the store."""
    pairing = _pairing(how, overlap, nearest)
    with _engine(workers, cluster, output) as engine:
        typer.echo(f"{len(_pairs(output, pairing, engine))} pairs")


@app.command()
def match(
    output: Store,
    how: AsBefore = None,
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    workers: Workers = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Match the pairs that are new or have changed."""
    pairing, matching = _pairing(how, overlap, nearest), _matching(ratio, "fundamental", 1.5)
    device, workers = _device_and_workers(device, workers, cluster)
    with _engine(workers, cluster, output) as engine:
        _match(output, _pairs(output, pairing, engine), matching, engine, device)


@app.command()
def verify(
    output: Store,
    model: Model = "fundamental",
    threshold: Threshold = 1.5,
    workers: Workers = 0,
    cluster: Scheduler = None,
) -> None:
    """Estimate a geometry from the matches of each pair."""
    matching = _matching(0.85, model, threshold)
    with _engine(workers, cluster, output) as engine:
        _verify(output, matching, engine)


@app.command()
def refine(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The store.")],
    workers: Workers = 0,
    cluster: Scheduler = None,
) -> None:
    """Refine the features of verified matches, so that all views of a point agree.

    Exports then have the refined places. Exit code 1: some images could not be read.
    """
    if not output.is_dir():
        raise InputError(f"{output}: no such store")
    with _engine(workers, cluster, output) as engine:
        skipped = _refine(folder, output, engine)
    _finish(skipped)


@app.command()
def export(
    output: Store,
    images: Annotated[
        Path | None, typer.Option(help="The folder of images, to read cameras from EXIF data.")
    ] = None,
    to: Annotated[str, typer.Option(help="Format: colmap, hloc or text.")] = "colmap",
) -> None:
    """Export to other tools: OUT/colmap/database.db, OUT/hloc/*.h5 or OUT/text/*.txt."""
    from caloric.collection import exporting

    if to not in ("colmap", "hloc", "text"):
        raise unknown("--to", to, ("colmap", "hloc", "text"))
    if not output.is_dir():
        raise InputError(f"{output}: no such store")
    with _locked(output), console.working(f"exporting to {to}"):
        if to == "colmap":
            written = [exporting.export_colmap(output, images)]
        elif to == "hloc":
            written = [*exporting.export_hloc(output)]
        else:
            written = exporting.export_text(output)
    for path in written:
        typer.echo(f"written: {path}")
    if to == "text":
        typer.echo("import them by `colmap feature_importer`, then `colmap matches_importer`")


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(help="The folder of images.")],
    database: Annotated[Path, typer.Option(help="A COLMAP database with their keypoints.")],
    descriptor: DescriptorName = "caloric-unlearned",
) -> None:
    """Replace the descriptors at the keypoints of a COLMAP database; then match again."""
    from caloric.collection import exporting

    with console.working(f"describing the keypoints of {database}"):
        count, skipped = exporting.describe_database(database, folder, descriptor)
    for name, why in skipped.items():
        console.skipped(name, why)
    typer.echo(f"{count} images described anew: {database}")
    _finish(list(skipped))


@app.command()
def reconstruct(
    folder: Annotated[Path, typer.Argument(help="The folder of images.")], output: Out
) -> None:
    """Reconstruct a model by COLMAP from the exported database: OUT/colmap/sparse."""
    _reconstruct(folder, output)


def _reconstruct(folder: Path, output: Path) -> None:
    from caloric.collection import exporting

    if not output.is_dir():
        raise InputError(f"{output}: no such store")
    interrupted = console.keeping("features, matches and database are kept")
    with interrupted, _locked(output), console.working("COLMAP is reconstructing a model"):
        model = exporting.reconstruct(output, folder)
    typer.echo(
        f"{model.images} images placed, {model.points:,} points, mean error {model.error:.2f} px: "
        f"{model.folder}"
    )


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
    refine: Annotated[
        bool, typer.Option(help="Refine the places of verified features to sub-pixel accuracy.")
    ] = True,
    workers: Workers = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Run all steps: features, pairs, matches, geometries, refined tracks, database and model."""
    from caloric.collection import exporting, refining, sources
    from caloric.interop import colmap

    colmap.require()
    settings = _settings(options)
    pairing, matching = _pairing(how, overlap, nearest), _matching(ratio, "fundamental", threshold)
    device, extractors = _device_and_workers(device, workers, cluster)

    def matched(engine: "Engine") -> None:
        _match(output, _pairs(output, pairing, engine), matching, engine, device)

    def with_matches(engine: "Engine") -> list[str]:
        _verify(output, matching, engine)
        if refine:
            return _refine(folder, output, engine)
        refining.forget(output)
        return []

    with _engine(extractors, cluster, output) as engine:
        skipped = _extract(folder, output, settings, engine, device)
        matched(engine)
        if extractors == workers:
            skipped += with_matches(engine)
    if extractors != workers:  # one process served the GPU; verification uses all cores
        with _engine(workers, cluster, output) as engine:
            skipped += with_matches(engine)
    folder = sources.absolute(folder)
    local = None if sources.is_remote(folder) else Path(folder)
    with console.keeping(_KEPT), _locked(output), console.working("writing COLMAP's database"):
        typer.echo(f"written: {exporting.export_colmap(output, local)}")
    if local is None:
        typer.echo("no model: COLMAP needs the images on a disk; copy them and run `reconstruct`")
    else:
        _reconstruct(local, output)
    _finish(skipped)
