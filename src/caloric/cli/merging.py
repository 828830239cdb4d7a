"""``caloric merge``: merge the features and matches of several matchers."""

from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.pipeline import POINT_SIGMA


def merge(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="COLMAP databases, collections, hloc feature files each followed by its match "
            "file (.h5), or directories with both."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="New COLMAP database; must not exist.")
    ],
    radius: Annotated[
        float,
        typer.Option(help="Merge keypoints of different sources within this distance (pixels)."),
    ] = 1.5,
    refine: Annotated[
        bool, typer.Option("--refine", help="Refine the merged tracks. Needs --images.")
    ] = False,
    images: Annotated[
        Path | None,
        typer.Option(help="Image directory, for --refine and for images without a camera."),
    ] = None,
    sigma: Annotated[
        float, typer.Option(help="Scale, in pixels, to assume for keypoints that have none.")
    ] = POINT_SIGMA,
) -> None:
    """Merge the results of several matchers into a COLMAP database.

    The results are features and matches. Keypoints of different sources that are close to each
    other become one, with the position of the first source, so that tracks of all sources are
    joined. Matches and verified pairs are the union. Pairs that no source has verified are listed
    in a text file. Put the most precise source first, or use --refine. Exits with status 1 if any
    image could not be read for refinement.
    """
    from caloric.collection import merging

    with console.working(f"merging into {output}"):
        result = merging.merge(
            sources, output, radius=radius, refine=refine, images=images, sigma=sigma,
            progress=console.Progress(),
        )  # fmt: skip
    for name, why in result.skipped.items():
        console.skipped(name, f"{why}; its keypoints were not moved")
    typer.echo(str(result))
    if result.skipped:
        raise typer.Exit(1)
