"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DescriptorName = Annotated[
    str, typer.Option("--descriptor", help="Name of a descriptor; `caloric info` lists them.")
]
MaxFeatures = Annotated[
    int,
    typer.Option(
        "--max-features", help="Largest number of features per image; the strongest are kept."
    ),
]
Affine = Annotated[bool, typer.Option("--affine", help="Estimate affine shapes of frames.")]
Upright = Annotated[bool, typer.Option("--upright", help="Do not estimate orientations.")]
DetectorName = Annotated[
    str, typer.Option("--detector", help="Detector: dog, or opencv for OpenCV's SIFT detector.")
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, torch:cpu, or auto for a GPU if there is one.")
]
Picture = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write a picture of the result to this file.")
]
Json = Annotated[
    str | None,
    typer.Option("--json", help="Write the result as JSON to this file; - for standard output."),
]
Contrast = Annotated[
    float | None,
    typer.Option(
        "--contrast",
        help="Smallest contrast of a feature. By default 0.04, or down to 0.005 until there are "
        "as many features as asked for.",
    ),
]
