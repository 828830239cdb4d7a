"""``caloric align`` and ``caloric find``: locate templates in an image."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from caloric.cli import console
from caloric.cli.options import Device, Figure, Json
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
    output: Figure = None,
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
    from caloric.image import reading
    from caloric.types import TransformModel as Motion

    console.check_outputs(json_path, output, inputs=(template, image))
    template_pixels, image_pixels = reading.read_image(template), reading.read_image(image)
    start = None
    if initial is not None:
        numbers = console.numbers(initial, "--initial", float)
        if len(numbers) != 6:
            raise InputError("--initial needs six numbers: a11,a12,tx,a21,a22,ty")
        start = [numbers[:3], numbers[3:]]
    with console.working(f"aligning {template} with {image}"):
        result = align.align(
            template_pixels, image_pixels,
            model=cast(Motion, model), initial=start, inverted=inverted, feature=feature,
            method=cast(align.Method, method), diffusion=cast(align.Diffusion, diffusion),
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
    """Write an alignment as JSON and as text; exit with code 1 if it failed."""
    if json_path is not None:
        console.write_text(json_path, json.dumps(about | _as_json(result)))
    if json_path != "-":
        for row in result.transform:
            typer.echo("  ".join(f"{v:12.6f}" for v in row))
        typer.echo(f"{result.reason}, confidence {result.confidence:.2f}")
        if output is not None:
            typer.echo(f"written: {output}")
    if not result.converged:
        raise typer.Exit(1)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _degrees(transform: Any) -> float:
    """Return the direction of the template's x axis in the image."""
    return float(np.degrees(np.arctan2(transform[1, 0], transform[0, 0])))


def _turned(degrees: float) -> str:
    return f"{round(degrees, 1) + 0.0:.1f}°"  # no -0.0


def _as_json(result: "Alignment") -> dict[str, Any]:
    """Return an alignment without infinities; docs/json.md describes the fields."""
    finite = bool(np.isfinite(result.covariance).all())
    return {
        "transform": result.transform.tolist(),
        "converged": result.converged,
        "reason": result.reason,
        "confidence": result.confidence,
        "energy": _finite(result.energy),
        "inside": result.inside,
        "covariance": result.covariance.tolist() if finite else None,
        "path": [
            {"sigma": s.sigma, "transform": s.point.tolist(), "energy": _finite(s.cost)}
            for s in result.path
        ],
    }


def _draw_alignment(
    output: Path,
    template: Any,
    image: Any,
    result: "Alignment",
    start: Any,
    title: str,
    others: Sequence[tuple[tuple[int, ...], Any]] = (),
) -> None:
    from caloric import viz
    from caloric.alignment import transforms

    initial = transforms.centered(np.shape(template), np.shape(image))
    if start is not None:
        initial = np.array(start)
    steps = [(s.sigma, s.point, s.cost) for s in result.path]
    scale = transforms.scale(result.transform)
    found = f"scale {scale:.3g}, turned {_turned(_degrees(result.transform))}"
    if result.converged:
        title = f"{title}, confidence {result.confidence:.2f}"
    viz.draw_alignment(
        template, image, initial, steps, f"{title}, {found}", reliable=result.converged,
        others=others,
    ).save(output)  # fmt: skip


@threads.single_threaded_blas
def find(
    image: Annotated[str, typer.Argument(help="The image to search.")],
    templates: Annotated[list[str], typer.Argument(help="The template images.")],
    output: Figure = None,
    json_path: Json = None,
    model: ModelName = "affine",
    kernel: Annotated[
        str, typer.Option(help="heat, sift, or another kernel of `caloric info`.")
    ] = "heat",
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    device: Device = "cpu",
) -> None:
    """Find which of several templates are in an image, and where. Exit code 1: none.

    Prints a table of all templates, best first. A template that cannot be used is reported in it.
    """
    from caloric.alignment import templates as finding
    from caloric.image import reading
    from caloric.types import TransformModel as Motion

    console.check_outputs(json_path, output, inputs=(image, *templates))
    image_pixels = reading.read_image(image)
    pixels, unusable = _readable(templates)
    readable = list(pixels)
    with console.working(f"searching {image} for {len(readable)} templates"):
        result = finding.find_template(
            image_pixels, list(pixels.values()),
            kernel=kernel, model=cast(Motion, model), feature=feature, inverted=inverted,
            names=[templates[i] for i in readable], device=device,
        )  # fmt: skip
    best = readable[result.template]
    if output is not None:
        more = {readable[i]: a for i, a in result.others.items() if a.converged}
        names = ", ".join(Path(templates[i]).name for i in more)
        title = f"{Path(templates[best]).name}{' (blue: ' + names + ')' if more else ''} in "
        title += f"{Path(image).name}: {result.alignment.reason}"
        others = [(np.shape(pixels[i]), a.transform) for i, a in more.items()]
        _draw_alignment(output, pixels[best], image_pixels, result.alignment, None, title, others)
    alignments = {readable[i]: a for i, a in result.others.items()} | {best: result.alignment}
    unusable |= {readable[i]: reason for i, reason in result.unusable.items()}
    scores = dict(zip(readable, result.scores.tolist(), strict=True))
    each = [
        _found(path, scores.get(i, 0.0), alignments.get(i), unusable.get(i), pixels.get(i))
        for i, path in enumerate(templates)
    ]
    if json_path is not None:
        about = {
            "image": image,
            "model": model,
            "template": templates[best],
            "index": best,
            "found": result.found,
            "scores": [{"template": one["template"], "score": one["score"]} for one in each],
            "templates": each,
        }
        console.write_text(json_path, json.dumps(about | _as_json(result.alignment)))
    if json_path != "-":
        _print_table(each)
        if output is not None:
            typer.echo(f"written: {output}")
    if not result.found:
        raise typer.Exit(1)


def _readable(paths: list[str]) -> tuple[dict[int, Any], dict[int, str]]:
    """Return the templates that can be read by their index, and why the others cannot."""
    from caloric.image import reading

    pixels, unusable = {}, {}
    for index, path in enumerate(paths):
        try:
            pixels[index] = reading.read_image(path)
        except InputError as error:
            unusable[index] = str(error).removeprefix(f"{path}: ")
    if not pixels:
        raise InputError(f"{paths[0]}: {unusable[0]}")
    return pixels, unusable


def _found(
    path: str, score: float, alignment: "Alignment | None", unusable: str | None, pixels: Any
) -> dict[str, Any]:
    """Return what was found of one template, as ``find --json`` has it."""
    from caloric.alignment import transforms

    found = alignment is not None and alignment.converged
    reason = unusable or (alignment.reason if alignment is not None else "scored too low")
    result = {"template": path, "score": score, "found": found, "reason": reason}
    if alignment is None or not found:
        return result
    transform = alignment.transform
    middle = transform[:, :2] @ ((np.array(pixels.shape[1::-1]) - 1) / 2) + transform[:, 2]
    return result | {
        "transform": transform.tolist(),
        "center": middle.tolist(),
        "scale": transforms.scale(transform),
        "degrees": _degrees(transform),
        "confidence": alignment.confidence,
    }


def _print_table(each: list[dict[str, Any]]) -> None:
    """Print all templates, those that were found first and the best of them at the top."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("template", "found", "center", "scale", "turned", "confidence", "score")
    ordered = sorted(each, key=lambda one: (not one["found"], -one["score"]))
    for one in ordered:
        place = [""] * 4
        if one["found"]:
            x, y = one["center"]
            place = [f"{x:.1f}, {y:.1f}", f"{one['scale']:.3f}", _turned(one["degrees"]),
                     f"{one['confidence']:.2f}"]  # fmt: skip
        found = "yes" if one["found"] else "no"
        table.add_row(escape(one["template"]), found, *place, f"{one['score']:.2f}")
    for column in table.columns[1:]:
        column.no_wrap = True
    console.tables().print(table)
    for one in ordered:
        if not one["found"]:
            typer.echo(f"{one['template']}: {one['reason']}")
