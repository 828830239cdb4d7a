"""``caloric align`` and ``caloric find``: where a template lies in an image."""

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

ModelName = Annotated[str, typer.Option("--model", help="translation, similarity, affine.")]
Inverted = Annotated[bool, typer.Option("--inverted", help="Bright may be dark.")]
FeatureName = Annotated[
    str, typer.Option("--feature", help="orientation, or distribution-field[-heat]: same light.")
]


@threads.single_threaded_blas
def align(
    template: Annotated[str, typer.Argument(help="The image to be found.")],
    image: Annotated[str, typer.Argument(help="The image it is in.")],
    output: Picture = None,
    json_path: Json = None,
    model: ModelName = "affine",
    initial: Annotated[
        str | None,
        typer.Option(help="Begin there, without a search: a11,a12,tx,a21,a22,ty of the 2 x 3 map."),
    ] = None,
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    method: Annotated[str, typer.Option(help="continuation, single, descriptor.")] = "continuation",
    diffusion: Annotated[
        str, typer.Option(help="partial, or all: turns and scales move places too.")
    ] = "partial",
    device: Device = "cpu",
) -> None:
    """Where a template is in an image, by diffusion and continuation. Exit code 1: not found."""
    from caloric.alignment import align
    from caloric.alignment.registration import Diffusion
    from caloric.alignment.registration import Model as Motion
    from caloric.image import reading

    console.check_outputs(json_path, output)
    own, whole = reading.read_image(template), reading.read_image(image)
    start = None
    if initial is not None:
        numbers = console.numbers(initial, "--initial", float)
        if len(numbers) != 6:
            raise InputError("--initial needs six numbers: a11,a12,tx,a21,a22,ty")
        start = [numbers[:3], numbers[3:]]
    found = align.align(
        own, whole,
        model=cast(Motion, model), initial=start, inverted=inverted, feature=feature,
        method=cast(align.Method, method), diffusion=cast(Diffusion, diffusion),
        device=device,
    )  # fmt: skip
    if output is not None:
        title = f"{Path(template).name} in {Path(image).name}: {found.reason}"
        _draw_alignment(output, own, whole, found, start, title)
    about = {"template": template, "image": image, "model": model}
    _tell(found, about, json_path, output)


def _tell(
    found: "Alignment", about: dict[str, Any], json_path: str | None, output: Path | None
) -> None:
    """An alignment as JSON, which has no infinities, and in words; exit code 1 if it failed."""
    if json_path is not None:
        finite = bool(np.isfinite(found.covariance).all())
        report = about | {
            "transform": found.transform.tolist(),
            "converged": found.converged,
            "reason": found.reason,
            "confidence": found.confidence,
            "energy": found.energy if np.isfinite(found.energy) else None,
            "inside": found.inside,
            "covariance": found.covariance.tolist() if finite else None,
            "path": [
                {"sigma": s.sigma, "transform": s.point.tolist(), "energy": s.cost}
                for s in found.path
            ],
        }
        console.write_text(json_path, json.dumps(report))
    if json_path != "-":
        for row in found.transform:
            typer.echo("  ".join(f"{v:12.6f}" for v in row))
        typer.echo(f"{found.reason}, confidence {found.confidence:.2f}")
        if output is not None:
            typer.echo(f"written: {output}")
    if not found.converged:
        raise typer.Exit(1)


def _draw_alignment(
    output: Path, template: Any, image: Any, found: "Alignment", start: Any, title: str
) -> None:
    from caloric import viz
    from caloric.alignment import align

    begin = align.centred(np.shape(template), np.shape(image))
    if start is not None:
        begin = np.array(start)
    steps = [(s.sigma, s.point, s.cost) for s in found.path if np.isfinite(s.cost)]
    viz.write_picture(output, viz.draw_alignment(template, image, begin, steps, title))


@threads.single_threaded_blas
def find(
    image: Annotated[str, typer.Argument(help="The image to look in.")],
    templates: Annotated[list[str], typer.Argument(help="The images to look for.")],
    output: Picture = None,
    json_path: Json = None,
    model: ModelName = "affine",
    kernel: Annotated[str, typer.Option(help="heat, sift, or another of `caloric info`.")] = "heat",
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    device: Device = "cpu",
) -> None:
    """Which of some templates is in an image, and where. Exit code 1: none of them."""
    from caloric.alignment import templates as finding
    from caloric.alignment.registration import Model as Motion
    from caloric.image import reading

    console.check_outputs(json_path, output)
    whole = reading.read_image(image)
    own = [reading.read_image(path) for path in templates]
    found = finding.find_template(
        whole, own,
        kernel=kernel, model=cast(Motion, model), feature=feature, inverted=inverted,
        names=templates, device=device,
    )  # fmt: skip
    name = templates[found.template]
    if output is not None:
        title = f"{Path(name).name} in {Path(image).name}: {found.alignment.reason}"
        _draw_alignment(output, own[found.template], whole, found.alignment, None, title)
    about = {
        "image": image,
        "template": name,
        "index": found.template,
        "found": found.found,
        "scores": [
            {"template": path, "score": score}
            for path, score in zip(templates, found.scores.tolist(), strict=True)
        ],
    }
    if json_path != "-":
        typer.echo(name if found.found else f"none for sure; the nearest is {name}")
    _tell(found.alignment, about, json_path, output)
