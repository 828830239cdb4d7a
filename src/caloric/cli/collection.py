"""``caloric collection``: the steps as commands, and all of them as one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from caloric.cli import console
from caloric.cli.options import Affine, DescriptorName, Device, MaxFeatures, Upright
from caloric.errors import InputError, unknown

if TYPE_CHECKING:
    from caloric.collection.engines import Engine
    from caloric.collection.extraction import Settings
    from caloric.collection.matching import Matching
    from caloric.collection.pairing import Pair, Pairing

app = typer.Typer(help="A folder of photographs to features, matches and a COLMAP model.",
                  no_args_is_help=True)  # fmt: skip

Folder = Annotated[str, typer.Argument(help="The images: a folder, or an address (s3://…).")]
Out = Annotated[Path, typer.Option("--output", "-o", help="The store; made if it is not there.")]
Workers = Annotated[
    int, typer.Option(help="Processes; 0: as many as there are cores, one for a GPU.")
]
Scheduler = Annotated[
    str | None, typer.Option("--cluster", help="A Dask scheduler: tcp://host:8786; or local.")
]
How = Annotated[str, typer.Option("--pairs", help="exhaustive, sequential, retrieval.")]
AsBefore = Annotated[
    str | None,
    typer.Option("--pairs", help="exhaustive, sequential, retrieval; without: as `pairs` chose."),
]
Store = Annotated[Path, typer.Argument(help="The store.")]
Overlap = Annotated[int, typer.Option(help="Of sequential pairs: so many of the next images.")]
Nearest = Annotated[int, typer.Option(help="Of retrieval: so many of the most alike.")]
Ratio = Annotated[float, typer.Option(help="Ratio test.")]
Model = Annotated[str, typer.Option(help="fundamental, homography.")]
Threshold = Annotated[float, typer.Option(help="Largest residual of an inlier, pixels.")]


def _alone(store: Path) -> AbstractContextManager[None]:
    from caloric.collection.store import held

    return held(store, lambda message: typer.echo(message, err=True))


@contextmanager
def _engine(workers: int, cluster: str | None, store: Path) -> Iterator["Engine"]:
    """Who does the work, with the store to itself."""
    with _alone(store), _workers(workers, cluster) as engine:
        yield engine


@contextmanager
def _workers(workers: int, cluster: str | None) -> Iterator["Engine"]:
    from caloric.collection import engines
    from caloric.runtime import threads

    if cluster is not None:
        found = engines.Cluster(cluster)
        try:
            yield found
        finally:
            found.close()
        return
    if workers < 0:
        raise InputError(f"--workers must be a whole number from 0, got {workers}")
    yield engines.Processes(workers or threads.count())


def _placed(device: str, workers: int, cluster: str | None) -> tuple[str, int]:
    """On which device, and by how many processes; those of a cluster find out themselves."""
    from caloric.gpu import devices

    if cluster is not None:
        return device, workers
    target = devices.resolve(device)
    if target is None or target.type == "cpu":
        return ("cpu" if target is None else device), workers
    return str(target), workers or 1


def _settings(descriptor: str, max_features: int, affine: bool, upright: bool) -> "Settings":
    from caloric.collection.extraction import Settings

    settings = Settings(descriptor, max_features, affine, upright)
    settings.plan()  # says what is wrong, before the work
    return settings


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

    summary = extraction.extract(
        folder, out, settings, engine, device=device, told=console.Progress()
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

    return choosing.pairs(out, pairing, engine, console.Progress())


def _match(out: Path, pairs: list["Pair"], how: "Matching", engine: "Engine") -> None:
    from caloric.collection import matching

    new = matching.match(out, pairs, how, engine, console.Progress())
    typer.echo(f"{len(pairs)} pairs, {new} newly matched")


def _verify(out: Path, how: "Matching", engine: "Engine") -> None:
    from caloric.collection import matching

    good, every = matching.verify(out, how, engine, console.Progress())
    typer.echo(f"{good} of {every} pairs have a geometry")


def _finish(skipped: list[str]) -> None:
    if skipped:
        raise typer.Exit(1)


@app.command()
def extract(
    folder: Folder,
    output: Out,
    descriptor: DescriptorName = "caloric",
    max_features: MaxFeatures = 8000,
    affine: Affine = False,
    upright: Upright = False,
    workers: Workers = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Features of all images: of those that are new or have changed. Exit code 1: some skipped."""
    settings = _settings(descriptor, max_features, affine, upright)
    device, workers = _placed(device, workers, cluster)
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
    """Which images to match with which; written to the store."""
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
) -> None:
    """Match the pairs that are new or have changed."""
    pairing, matching = _pairing(how, overlap, nearest), _matching(ratio, "fundamental", 1.5)
    with _engine(workers, cluster, output) as engine:
        _match(output, _pairs(output, pairing, engine), matching, engine)


@app.command()
def verify(
    output: Store,
    model: Model = "fundamental",
    threshold: Threshold = 1.5,
    workers: Workers = 0,
    cluster: Scheduler = None,
) -> None:
    """The geometry that the matches of each pair agree on."""
    matching = _matching(0.85, model, threshold)
    with _engine(workers, cluster, output) as engine:
        _verify(output, matching, engine)


@app.command()
def export(
    output: Store,
    images: Annotated[
        Path | None, typer.Option(help="The folder of images, for cameras from EXIF data.")
    ] = None,
    to: Annotated[str, typer.Option(help="colmap, hloc, text.")] = "colmap",
) -> None:
    """For other tools: OUT/colmap/database.db, OUT/hloc/*.h5 or OUT/text/*.txt."""
    from caloric.collection import exporting

    if to not in ("colmap", "hloc", "text"):
        raise unknown("--to", to, ("colmap", "hloc", "text"))
    if not output.is_dir():
        raise InputError(f"{output}: no such store")
    with _alone(output):
        if to == "colmap":
            written = [exporting.export_colmap(output, images)]
        elif to == "hloc":
            written = [*exporting.export_hloc(output)]
        else:
            written = exporting.export_text(output)
    for path in written:
        typer.echo(f"written: {path}")
    if to == "text":
        typer.echo("read them by `colmap feature_importer`, then `colmap matches_importer`")


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(help="The folder of images.")],
    database: Annotated[Path, typer.Option(help="A COLMAP database with their keypoints.")],
    descriptor: DescriptorName = "caloric-unlearned",
) -> None:
    """Describe a COLMAP database's own keypoints anew; match them then as before."""
    from caloric.collection import exporting

    count, skipped = exporting.describe_database(database, folder, descriptor)
    for name, why in skipped.items():
        console.skipped(name, why)
    typer.echo(f"{count} images described anew: {database}")
    _finish(list(skipped))


@app.command()
def reconstruct(
    folder: Annotated[Path, typer.Argument(help="The folder of images.")], output: Out
) -> None:
    """COLMAP's model of the database: OUT/colmap/sparse."""
    _reconstruct(folder, output)


def _reconstruct(folder: Path, output: Path) -> None:
    from caloric.collection import exporting

    if not output.is_dir():
        raise InputError(f"{output}: no such store")
    with _alone(output):
        model = exporting.reconstruct(output, folder)
    typer.echo(
        f"{model.images} images placed, {model.points:,} points, mean error {model.error:.2f} px: "
        f"{model.folder}"
    )


@app.command()
def run(
    folder: Folder,
    output: Out,
    descriptor: DescriptorName = "caloric",
    max_features: MaxFeatures = 8000,
    affine: Affine = False,
    upright: Upright = False,
    how: How = "exhaustive",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    threshold: Threshold = 1.5,
    workers: Workers = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """All of it: features, pairs, matches, geometries, database, model."""
    from caloric.collection import exporting, sources
    from caloric.interop import colmap, text

    colmap.require()
    if not colmap.available():
        for name in sources.names(sources.absolute(folder)):
            text.check_name(name)
    settings = _settings(descriptor, max_features, affine, upright)
    pairing, matching = _pairing(how, overlap, nearest), _matching(ratio, "fundamental", threshold)
    device, extractors = _placed(device, workers, cluster)
    with _engine(extractors, cluster, output) as engine:
        skipped = _extract(folder, output, settings, engine, device)
    with _engine(workers, cluster, output) as engine:
        chosen = _pairs(output, pairing, engine)
        _match(output, chosen, matching, engine)
        _verify(output, matching, engine)
    folder = sources.absolute(folder)
    local = None if sources.is_remote(folder) else Path(folder)
    with _alone(output):
        typer.echo(f"written: {exporting.export_colmap(output, local)}")
    if local is None:
        typer.echo("no model: COLMAP needs the images on a disk; copy them, and `reconstruct`")
    else:
        _reconstruct(local, output)
    _finish(skipped)
