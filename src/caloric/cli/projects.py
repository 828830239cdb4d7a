"""``caloric refine``: refine the keypoints of an hloc or COLMAP project."""

from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.errors import InputError
from caloric.pipeline import POINT_SIGMA
from caloric.runtime.files import check_input_directory


def refine(
    project: Annotated[Path, typer.Argument(help="COLMAP database, or hloc feature file (.h5).")],
    directory: Annotated[Path, typer.Argument(help="Image directory.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New database or feature file to write.")
    ],
    matches: Annotated[
        Path | None, typer.Option(help="hloc match file (.h5); required for hloc features.")
    ] = None,
    sigma: Annotated[
        float, typer.Option(help="Scale, in pixels, to assume for keypoints that have none.")
    ] = POINT_SIGMA,
) -> None:
    """Refine the keypoints of an hloc or COLMAP project to sub-pixel accuracy.

    Works with any detector and matcher. Matches (verified matches, if available) are linked into
    tracks. In each track, one keypoint serves as the reference, and the others are aligned to it.
    The result is a new file with the same keypoint indices and matches. Exits with status 1 if any
    image could not be read.
    """
    from caloric.collection import projects

    suffixes = (".h5", ".hdf5")
    is_hloc = project.suffix.lower() in suffixes
    if is_hloc and matches is None:
        raise InputError(f"{project}: an hloc feature file needs its matches too: --matches FILE")
    if not is_hloc and matches is not None:
        raise InputError("--matches is for hloc only: a COLMAP database contains its matches")
    if is_hloc != (output.suffix.lower() in suffixes):
        raise InputError(f"{output}: the output must have the file type of {project.name}")
    check_input_directory(directory)
    if not 0 < sigma < float("inf"):
        raise InputError(f"--sigma must be a positive number of pixels, got {sigma}")
    inputs = [str(path) for path in (project, matches) if path is not None]
    console.check_outputs(None, None, output, inputs=inputs)
    with console.working(f"refining {project}"):
        if matches is not None:
            content = projects.read_hloc(project, matches, sigma)
        else:
            content = projects.read_colmap(project, sigma)
        outcome = projects.refine(content, directory, console.Progress())
        write = projects.write_hloc if is_hloc else projects.write_colmap
        write(project, output, outcome.positions)
    for name, why in outcome.skipped.items():
        console.skipped(name, f"{why}; its keypoints were not moved")
    typer.echo(
        f"{outcome.tracks:,} tracks; {outcome.moved:,} of {outcome.keypoints:,} keypoints refined"
    )
    typer.echo(f"written: {output}")
    if outcome.skipped:
        raise typer.Exit(1)
