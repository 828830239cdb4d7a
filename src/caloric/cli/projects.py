"""``caloric refine``: the keypoints of another tool's project, more precisely."""

from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.errors import InputError
from caloric.pipeline import POINT_SIGMA


def refine(
    project: Annotated[
        Path, typer.Argument(help="A COLMAP database, or a file of features of hloc (.h5).")
    ],
    directory: Annotated[Path, typer.Argument(help="The directory of the images.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The new database or file of features.")
    ],
    matches: Annotated[Path | None, typer.Option(help="hloc: the file of matches (.h5).")] = None,
    sigma: Annotated[
        float, typer.Option(help="Scale of keypoints that have none, in pixels.")
    ] = POINT_SIGMA,
) -> None:
    """Refine the keypoints of an hloc or COLMAP project, so that all views of a point agree.

    Any detector and matcher will do: matches, verified ones where there are, are joined into
    tracks, and the keypoints of a track are moved to agree with one of its views. Keypoints and
    matches keep their numbers. The project itself is not changed. Exit code 1: some images could
    not be read.
    """
    from caloric.collection import projects

    endings = (".h5", ".hdf5")
    of_hloc = project.suffix.lower() in endings
    if of_hloc and matches is None:
        raise InputError("features of hloc need their matches too: --matches FILE")
    if not of_hloc and matches is not None:
        raise InputError("--matches is for hloc; a COLMAP database has its matches in it")
    if of_hloc != (output.suffix.lower() in endings):
        raise InputError(f"{output}: the ending must be as that of {project.name}")
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory")
    if not 0 < sigma < float("inf"):
        raise InputError(f"--sigma must be a positive number of pixels, got {sigma}")
    inputs = [str(path) for path in (project, matches) if path is not None]
    console.check_outputs(None, None, output, inputs=inputs)
    with console.working(f"refining {project}"):
        if matches is not None:
            found = projects.read_hloc(project, matches, sigma)
        else:
            found = projects.read_colmap(project, sigma)
        outcome = projects.refine(found, directory, console.Progress())
        write = projects.write_hloc if of_hloc else projects.write_colmap
        write(project, output, outcome.places)
    for name, why in outcome.skipped.items():
        console.skipped(name, f"{why}; its keypoints stay where they were")
    typer.echo(
        f"{outcome.tracks:,} tracks; {outcome.moved:,} of {outcome.keypoints:,} keypoints refined"
    )
    typer.echo(f"written: {output}")
    if outcome.skipped:
        raise typer.Exit(1)
