"""``caloric align`` and ``caloric find``: locate templates in an image."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from caloric.cli import console
from caloric.cli.options import Device, Json, Picture
from caloric.errors import InputError
from caloric.runtime import threads

if TYPE_CHECKING:
    from caloric.alignment.align import Alignment

ModelName = Annotated[
    str, typer.Option("--model", help="Transform: translation, similarity or affine.")
]
Inverted = Annotated[
    bool, typer.Option("--inverted", help="Allow inverted contrast: bright may be dark.")
]
FeatureName = Annotated[
    str,
    typer.Option(
        "--feature",
        help="orientation; or, under the same illumination, distribution-field[-heat].",
    ),
]


@threads.single_threaded_blas
def align(
    template: Annotated[str, typer.Argument(help="The template image.")],
    image: Annotated[str, typer.Argument(help="The image to search.")],
    output: Picture = None,
    json_path: Json = None,
    model: ModelName = "affine",
    initial: Annotated[
        str | None,
        typer.Option(help="Start from this transform, without a search: a11,a12,tx,a21,a22,ty."),
    ] = None,
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    method: Annotated[
        str, typer.Option(help="continuation, single or descriptor.")
    ] = "continuation",
    diffusion: Annotated[
        str, typer.Option(help="partial, or all to diffuse positions over rotation and scale too.")
    ] = "partial",
    device: Device = "cpu",
) -> None:
    """Align a template with an image by diffusion and continuation. Exit code 1: not found."""
    from caloric.alignment import align
    from caloric.alignment.registration import Diffusion
    from caloric.alignment.registration import Model as Motion
    from caloric.image import reading

    console.check_outputs(json_path, output, inputs=(template, image))
    template_pixels, image_pixels = reading.read_image(template), reading.read_image(image)
    start = None
    if initial is not None:
        numbers = console.numbers(initial, "--initial", float)
        if len(numbers) != 6:
            raise InputError("--initial needs six numbers: a11,a12,tx,a21,a22,ty")
        start = [numbers[:3], numbers[3:]]
    result = align.align(
        template_pixels, image_pixels,
        model=cast(Motion, model), initial=start, inverted=inverted, feature=feature,
        method=cast(align.Method, method), diffusion=cast(Diffusion, diffusion),
        device=device,
    )  # fmt: skip
    if output is not None:
        title = f"{Path(template).name} in {Path(image).name}: {result.reason}"
        _draw_alignment(output, template_pixels, image_pixels, result, start, title)
    about = {"template": template, "image": image, "model": model}
    _report(result, about, json_path, output)


def _report(
    result: "Alignment", about: dict[str, Any], json_path: str | None, output: Path | None
) -> None:
    """Write an alignment as JSON without infinities, and as text; exit with code 1 if it failed."""
    if json_path is not None:
        finite = bool(np.isfinite(result.covariance).all())
        report = about | {
            "transform": result.transform.tolist(),
            "converged": result.converged,
            "reason": result.reason,
            "confidence": result.confidence,
            "energy": result.energy if np.isfinite(result.energy) else None,
            "inside": result.inside,
            "covariance": result.covariance.tolist() if finite else None,
            "path": [
                {"sigma": s.sigma, "transform": s.point.tolist(), "energy": s.cost}
                for s in result.path
            ],
        }
        console.write_text(json_path, json.dumps(report))
    if json_path != "-":
        for row in result.transform:
            typer.echo("  ".join(f"{v:12.6f}" for v in row))
        typer.echo(f"{result.reason}, confidence {result.confidence:.2f}")
        if output is not None:
            typer.echo(f"written: {output}")
    if not result.converged:
        raise typer.Exit(1)


def _draw_alignment(
    output: Path, template: Any, image: Any, result: "Alignment", start: Any, title: str
) -> None:
    from caloric import viz
    from caloric.alignment import align

    initial = align.centred(np.shape(template), np.shape(image))
    if start is not None:
        initial = np.array(start)
    steps = [(s.sigma, s.point, s.cost) for s in result.path if np.isfinite(s.cost)]
    viz.write_picture(output, viz.draw_alignment(template, image, initial, steps, title))


@threads.single_threaded_blas
def find(
    image: Annotated[str, typer.Argument(help="The image to search.")],
    templates: Annotated[list[str], typer.Argument(help="The template images.")],
    output: Picture = None,
    json_path: Json = None,
    model: ModelName = "affine",
    kernel: Annotated[
        str, typer.Option(help="heat, sift, or another kernel of `caloric info`.")
    ] = "heat",
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    device: Device = "cpu",
) -> None:
    """Find which of several templates is in an image, and where. Exit code 1: none."""
    from caloric.alignment import templates as finding
    from caloric.alignment.registration import Model as Motion
    from caloric.image import reading

    console.check_outputs(json_path, output, inputs=(image, *templates))
    image_pixels = reading.read_image(image)
    template_pixels = [reading.read_image(path) for path in templates]
    result = finding.find_template(
        image_pixels, template_pixels,
        kernel=kernel, model=cast(Motion, model), feature=feature, inverted=inverted,
        names=templates, device=device,
    )  # fmt: skip
    name = templates[result.template]
    if output is not None:
        title = f"{Path(name).name} in {Path(image).name}: {result.alignment.reason}"
        _draw_alignment(
            output, template_pixels[result.template], image_pixels, result.alignment, None, title
        )
    about = {
        "image": image,
        "template": name,
        "index": result.template,
        "found": result.found,
        "scores": [
            {"template": path, "score": score}
            for path, score in zip(templates, result.scores.tolist(), strict=True)
        ],
    }
    if json_path != "-":
        typer.echo(name if result.found else f"no certain match; the nearest is {name}")
    _report(result.alignment, about, json_path, output)
