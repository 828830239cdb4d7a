"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DescriptorName = Annotated[str, typer.Option("--descriptor", help="See `caloric info`.")]
MaxFeatures = Annotated[
    int, typer.Option("--max-features", help="Features per image, strongest first.")
]
Affine = Annotated[bool, typer.Option("--affine", help="Adapt the shape of frames.")]
Upright = Annotated[bool, typer.Option("--upright", help="Do not estimate orientations.")]
DetectorName = Annotated[str, typer.Option("--detector", help="dog, or OpenCV's: opencv.")]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, torch:cpu, or auto: a GPU if there is one.")
]
Picture = Annotated[Path | None, typer.Option("--output", "-o", help="A picture of the result.")]
Json = Annotated[
    str | None, typer.Option("--json", help="The result as JSON; - for standard output.")
]
