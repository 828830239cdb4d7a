"""``caloric refine``: refine a COLMAP model, or the keypoints of an hloc or COLMAP project."""

from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.errors import InputError
from caloric.pipeline import POINT_SIGMA
from caloric.runtime.files import check_input_directory, check_new
from caloric.runtime.words import counted


def refine(
    project: Annotated[
        Path,
        typer.Argument(help="COLMAP model (directory) or database, or hloc feature file (.h5)."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="New model, database or feature file to write."),
    ],
    directory: Annotated[Path | None, typer.Argument(help="Image directory.")] = None,
    images: Annotated[
        Path | None, typer.Option(help="Image directory, instead of the second argument.")
    ] = None,
    matches: Annotated[
        Path | None, typer.Option(help="hloc match file (.h5); required for hloc features.")
    ] = None,
    sigma: Annotated[
        float, typer.Option(help="Scale, in pixels, to assume for keypoints that have none.")
    ] = POINT_SIGMA,
    adjust: Annotated[
        bool,
        typer.Option(help="Models: adjust points, poses and cameras; weighted if possible."),
    ] = True,
    intrinsics: Annotated[
        bool, typer.Option(help="Models: refine focal lengths and distortion.")
    ] = True,
    principal_point: Annotated[bool, typer.Option(help="Models: refine principal points.")] = False,
    extend: Annotated[
        bool, typer.Option(help="Models: add observations in images that see a point.")
    ] = True,
    hdf5: Annotated[bool, typer.Option(help="Models: write covariances.h5 too.")] = False,
) -> None:
    """Refine a COLMAP model, or an hloc or COLMAP project, to sub-pixel accuracy.

    Works with any detector and matcher. In each track, one keypoint serves as the reference, and
    the others are aligned to it. For a database or hloc project, matches (verified matches, if
    available) are linked into tracks, and the result is a new file with the same keypoint indices
    and matches. For a model, points, poses and cameras are adjusted too, and the result is a new
    model. Exits with status 1 if any image could not be read.
    """
    if directory is not None and images is not None:
        raise InputError("specify the image directory once: --images DIR")
    image_path = directory or images
    if image_path is None:
        raise InputError("specify the image directory: --images DIR")
    image_directory = check_input_directory(image_path)
    if not project.exists():
        raise InputError(f"{project}: no such file or directory")
    if project.is_dir():
        if matches is not None or sigma != POINT_SIGMA:
            raise InputError(
                f"--matches and --sigma are for databases and hloc files only; {project} is a model"
            )
        _refine_model(
            project, image_directory, output, adjust=adjust, intrinsics=intrinsics,
            principal_point=principal_point, extend=extend, hdf5=hdf5,
        )  # fmt: skip
    else:
        if not (adjust and intrinsics and extend) or hdf5 or principal_point:
            raise InputError(
                "--no-adjust, --no-intrinsics, --principal-point, --no-extend and --hdf5 are for "
                f"models (directories) only; {project} is a file"
            )
        _refine_project(project, image_directory, output, matches, sigma)


def _refine_model(
    model: Path, directory: Path, output: Path, *, adjust: bool, **options: bool
) -> None:
    from caloric.collection.model_refining import LONG, refine_model

    with console.working(f"refining {model}"):
        result = refine_model(
            model, directory, output, adjust=adjust, progress=console.Progress(), **options
        )  # fmt: skip
    for name, why in result.skipped.items():
        console.skipped(name, f"{why}; its observations were not refined")
    typer.echo(str(result))
    for length, (before, after) in result.by_length.items():
        more = " or more" if length == LONG else ""
        typer.echo(
            f"  {length}{more} observations per point: {before:.3f} px before, {after:.3f} px after"
        )
    if adjust and result.improved:
        weights = "weighted by the covariances"
        if not result.weighted:
            weights = "by COLMAP, without weights (they need pycolmap 4 and pyceres)"
        typer.echo(f"bundle adjustment {weights}")
    typer.echo(f"written: {output}")
    if result.skipped:
        raise typer.Exit(1)


def _refine_project(
    project: Path, directory: Path, output: Path, matches: Path | None, sigma: float
) -> None:
    from caloric.collection import checkpoints, projects

    suffixes = (".h5", ".hdf5")
    is_hloc = project.suffix.lower() in suffixes
    if is_hloc and matches is None:
        raise InputError(f"{project}: an hloc feature file needs its matches too: --matches FILE")
    if not is_hloc and matches is not None:
        raise InputError("--matches is for hloc only: a COLMAP database contains its matches")
    if is_hloc != (output.suffix.lower() in suffixes):
        raise InputError(f"{output}: the output must have the file type of {project.name}")
    if not 0 < sigma < float("inf"):
        raise InputError(f"--sigma must be a positive number of pixels, got {sigma}")
    inputs = [str(path) for path in (project, matches) if path is not None]
    console.check_outputs(None, None, output, inputs=inputs)
    check_new(output)
    with console.working(f"refining {project}"):
        if matches is not None:
            content = projects.read_hloc(project, matches, sigma)
        else:
            content = projects.read_colmap(project, sigma)
        unfinished = checkpoints.beside(output)
        outcome = projects.refine(content, directory, console.Progress(), unfinished)
        write = projects.write_hloc if is_hloc else projects.write_colmap
        write(project, output, outcome.positions)
    for name, why in outcome.skipped.items():
        console.skipped(name, f"{why}; its keypoints were not moved")
    typer.echo(
        f"{outcome.tracks:,} tracks; {outcome.moved:,} of {outcome.keypoints:,} keypoints refined"
    )
    if outcome.rejected:
        typer.echo(
            f"{counted(outcome.rejected, 'keypoint')} not moved: the matches would not agree better"
        )
    typer.echo(f"written: {output}")
    if outcome.skipped:
        raise typer.Exit(1)
