"""``caloric collection``: one command for each step, and ``run`` for all steps."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from caloric.cli import console
from caloric.cli.options import (
    DEFAULTS,
    DescriptorName,
    Device,
    Threshold,
    WhiteLevel,
    takes_extract_options,
)
from caloric.interop.exporters import FORMATS
from caloric.options import ExtractOptions
from caloric.runtime.words import counted

if TYPE_CHECKING:
    from caloric.collection import Pairing, Reporter

app = typer.Typer(help="Turn a directory of images into features, matches and a COLMAP model. "
                  "Results are kept in a directory called the store.",
                  no_args_is_help=True)  # fmt: skip

Folder = Annotated[str, typer.Argument(help="Image directory, or a URL such as s3://…")]
Out = Annotated[
    Path, typer.Option("--output", "-o", help="Store directory; created if it does not exist.")
]
Processes = Annotated[
    int,
    typer.Option(
        "--workers", help="Number of processes; 0 means one per CPU core, or up to 16 on a GPU."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Address of a Dask scheduler, such as tcp://host:8786, or 'local' to start one.",
    ),
]
How = Annotated[
    str,
    typer.Option(
        "--pairs", help="How to select image pairs: auto, exhaustive, sequential or retrieval."
    ),
]
StoredHow = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        help="How to select image pairs: auto, exhaustive, sequential or retrieval; default: the "
        "last choice.",
    ),
]
Store = Annotated[Path, typer.Argument(help="Store directory.")]
Overlap = Annotated[
    int,
    typer.Option(help="With --pairs sequential: match each image with this many following images."),
]
Nearest = Annotated[
    int,
    typer.Option(help="With --pairs retrieval: match each image with this many similar images."),
]
Ratio = Annotated[float, typer.Option(help="Threshold for the ratio test.")]
Agreement = Annotated[bool, typer.Option(help="Also keep matches that agree with their neighbors.")]
Propagate = Annotated[bool, typer.Option(help="Look for each point in all images that show it.")]
Model = Annotated[str, typer.Option(help="Geometric model: fundamental or homography.")]


Sharing = Annotated[
    str,
    typer.Option(
        "--camera",
        help="Which images share a camera: auto (same EXIF data and size), shared (same size), "
        "per-folder or per-image.",
    ),
]
CameraModel = Annotated[
    str, typer.Option(help="COLMAP's camera model, such as SIMPLE_RADIAL or OPENCV.")
]
Focal = Annotated[
    float | None,
    typer.Option(help="Focal length in pixels to start from; default: from EXIF data."),
]


def reporter() -> "Reporter":
    """Return a reporter that prints the progress and the result of each step."""
    from caloric.collection import Reporter

    progress, start = console.Progress(), time.monotonic()

    @contextmanager
    def working(what: str) -> Iterator[None]:
        nonlocal progress, start
        progress, start = console.Progress(), time.monotonic()
        with console.working(what):
            yield

    def finished(result: object) -> None:
        first, *rest = str(result).splitlines()
        first += f" ({console.duration(time.monotonic() - start)})"
        typer.echo("\n".join([first, *rest]))

    return Reporter(lambda *counts: progress(*counts), working, finished)


def _pairing(how: str, overlap: int, nearest: int) -> "Pairing":
    from caloric.collection import Pairing

    return Pairing(cast(Any, how), overlap, nearest)


def _keeping() -> AbstractContextManager[None]:
    from caloric.collection.workflow import KEPT

    return console.keeping(KEPT)


def _finish(skipped: dict[str, str]) -> None:
    if skipped:
        raise typer.Exit(1)


@app.command()
@takes_extract_options
def extract(
    folder: Folder,
    output: Out,
    options: ExtractOptions = DEFAULTS,
    white_level: WhiteLevel = None,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Extract features from new and changed images.

    Exits with status 1 if any image was skipped.
    """
    from caloric import collection

    runners = collection.Workers(workers, cluster, device)
    with _keeping():
        result = collection.extract(
            folder, output, options, white_level=white_level, workers=runners, report=reporter()
        )
    _finish(result.skipped)


@app.command()
def pairs(
    store: Store,
    how: How = "auto",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Select the image pairs to match, and write them to the store."""
    from caloric import collection

    options, runners = _pairing(how, overlap, nearest), collection.Workers(workers, cluster)
    with _keeping():
        collection.pair(store, options, workers=runners, report=reporter())


@app.command()
def match(
    store: Store,
    how: StoredHow = None,
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    agreement: Agreement = False,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Match new and changed image pairs."""
    from caloric import collection

    pairing = None if how is None else _pairing(how, overlap, nearest)
    options = collection.Matching(ratio, agreement=agreement)
    runners = collection.Workers(workers, cluster, device)
    with _keeping():
        collection.match(store, options, pairing=pairing, workers=runners, report=reporter())


@app.command()
def verify(
    store: Store,
    model: Model = "fundamental",
    threshold: Threshold = None,
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Verify the matches of each image pair geometrically."""
    from caloric import collection

    options = collection.Matching(model=cast(Any, model), threshold=threshold)
    runners = collection.Workers(workers, cluster)
    with _keeping():
        collection.verify(store, options, workers=runners, report=reporter())


@app.command()
def refine(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Store directory.")],
    propagate: Propagate = True,
    workers: Processes = 0,
    cluster: Scheduler = None,
) -> None:
    """Propagate tracks, and refine the keypoints of verified matches to sub-pixel accuracy.

    Later exports use the refined positions and the propagated keypoints. Exits with status 1 if
    images could not be read; their features are not moved.
    """
    from caloric import collection

    runners = collection.Workers(workers, cluster)
    with _keeping():
        result = collection.refine(
            folder, output, propagate=propagate, workers=runners, report=reporter()
        )
    _finish(result.skipped)


@app.command()
def export(
    store: Store,
    images: Annotated[
        Path | None,
        typer.Option(help="Image directory; focal lengths are read from the images' EXIF data."),
    ] = None,
    to: Annotated[str, typer.Option(help=f"Format: {', '.join(FORMATS)}.")] = "colmap",
    camera: Sharing = "auto",
    camera_model: CameraModel = "SIMPLE_RADIAL",
    focal: Focal = None,
) -> None:
    """Export features and matches for other tools, to a subdirectory of the store."""
    from caloric import collection

    cameras = collection.Cameras(cast(Any, camera), camera_model, focal)
    collection.export(store, to, images=images, cameras=cameras, report=reporter())


@app.command()
def describe(
    folder: Annotated[Path, typer.Argument(help="Image directory.")],
    database: Annotated[Path, typer.Option(help="COLMAP database with keypoints of the images.")],
    descriptor: DescriptorName = "caloric-unlearned",
    white_level: WhiteLevel = None,
) -> None:
    """Replace the descriptors in a COLMAP database, keeping its keypoints.

    Old matches are deleted: match again afterwards. Exits with status 1 if any image was skipped.
    """
    from caloric.collection import exporting

    with console.working(f"describing the keypoints of {database}"):
        count, skipped = exporting.describe_database(database, folder, descriptor, white_level)
    for name, why in skipped.items():
        console.skipped(name, why)
    typer.echo(f"descriptors of {counted(count, 'image')} replaced: {database}")
    _finish(skipped)


@app.command()
def reconstruct(
    folder: Annotated[Path, typer.Argument(help="Image directory.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Store directory with an exported database.")
    ],
) -> None:
    """Run COLMAP's mapper on the exported database; models are written to OUT/colmap/sparse.

    Exits with status 1 if there is no model with points.
    """
    from caloric import collection

    with console.keeping("features, matches and the database are kept"):
        result = collection.reconstruct(folder, output, report=reporter())
    if not result.models:
        raise typer.Exit(1)


@app.command()
@takes_extract_options
def run(
    folder: Folder,
    output: Out,
    options: ExtractOptions = DEFAULTS,
    white_level: WhiteLevel = None,
    how: How = "auto",
    overlap: Overlap = 10,
    nearest: Nearest = 20,
    ratio: Ratio = 0.85,
    agreement: Agreement = False,
    threshold: Threshold = None,
    camera: Sharing = "auto",
    camera_model: CameraModel = "SIMPLE_RADIAL",
    focal: Focal = None,
    refine: Annotated[
        bool, typer.Option(help="Refine the keypoints of verified matches to sub-pixel accuracy.")
    ] = True,
    propagate: Propagate = True,
    complete: Annotated[
        bool, typer.Option(help="Match images that are missing in the largest model again.")
    ] = True,
    workers: Processes = 0,
    cluster: Scheduler = None,
    device: Device = "auto",
) -> None:
    """Run all steps, from the images to a COLMAP database, models and a report.

    Exits with status 1 if there is no model with points, or if any image was skipped.
    """
    from caloric import collection
    from caloric.collection import sources

    with _keeping():
        result = collection.run(
            folder, output, options, white_level=white_level,
            pairing=_pairing(how, overlap, nearest),
            matching=collection.Matching(ratio, threshold=threshold, agreement=agreement),
            cameras=collection.Cameras(cast(Any, camera), camera_model, focal),
            refine=refine, propagate=propagate, complete=complete,
            workers=collection.Workers(workers, cluster, device), report=reporter(),
        )  # fmt: skip
    typer.echo(result)
    if not result and not sources.is_remote(sources.absolute(folder)):
        raise typer.Exit(1)
    _finish(result.skipped)
