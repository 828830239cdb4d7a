"""``caloric align`` and ``caloric find``: locate templates in an image."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from caloric.cli import console
from caloric.cli.options import Device, Figure, Json, WhiteLevel
from caloric.errors import InputError
from caloric.runtime import threads

if TYPE_CHECKING:
    from caloric.alignment.align import Alignment

ModelName = Annotated[
    str, typer.Option("--model", help="Transform: translation, similarity or affine.")
]
Inverted = Annotated[
    bool, typer.Option("--inverted", help="Allow inverted contrast, as in negatives.")
]
FeatureName = Annotated[
    str,
    typer.Option(
        "--feature",
        help="What to compare: orientation (of gradients), or, if both images have the same "
        "illumination, distribution-field or distribution-field-heat (intensities).",
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
        typer.Option(help="Start from this transform instead of searching: a11,a12,tx,a21,a22,ty."),
    ] = None,
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    method: Annotated[
        str,
        typer.Option(
            help="continuation (coarse to fine), single (the detected feature with the lowest "
            "energy) or descriptor (the detected feature with the nearest SIFT descriptor)."
        ),
    ] = "continuation",
    diffusion: Annotated[
        str,
        typer.Option(
            help="Smooth the energy over translations (partial), or also over rotations and "
            "scales (all; slower)."
        ),
    ] = "partial",
    white_level: WhiteLevel = None,
    device: Device = "cpu",
) -> None:
    """Locate a template in an image by coarse-to-fine alignment.

    Exits with status 1 if the alignment is not reliable.
    """
    from caloric.alignment import align
    from caloric.image.inputs import read_image
    from caloric.types import TransformModel as Motion

    console.check_outputs(json_path, output, inputs=(template, image))
    template_pixels, image_pixels = (
        read_image(path, white_level=white_level) for path in (template, image)
    )
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
    """Write an alignment as JSON or text; exit with status 1 if it did not converge."""
    if json_path is not None:
        console.write_text(json_path, json.dumps(about | _as_json(result)))
    if json_path != "-":
        for row in result.transform:
            typer.echo("  ".join(f"{v:12.6f}" for v in row))
        mentioned = "confidence" in result.reason
        confidence = "" if mentioned else f", confidence {result.confidence:.2f}"
        typer.echo(f"{result.reason}{confidence}")
        if output is not None:
            typer.echo(f"written: {output}")
    if not result.converged:
        raise typer.Exit(1)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _degrees(transform: Any) -> float:
    """Return the direction of the template's x axis in the image, in degrees."""
    return float(np.degrees(np.arctan2(transform[1, 0], transform[0, 0])))


def _format_degrees(degrees: float) -> str:
    return f"{round(degrees, 1) + 0.0:.1f}°"  # adding 0.0 turns -0.0 into 0.0


def _as_json(result: "Alignment") -> dict[str, Any]:
    """Return the JSON fields of an alignment (docs/json.md); infinite values become None."""
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
    pose = f"scale {scale:.3g}, rotation {_format_degrees(_degrees(result.transform))}"
    if result.converged:
        title = f"{title}, confidence {result.confidence:.2f}"
    viz.draw_alignment(
        template, image, initial, steps, f"{title}, {pose}", reliable=result.converged,
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
        str, typer.Option(help="Kernel: heat, sift, or any other kernel listed by `caloric info`.")
    ] = "heat",
    inverted: Inverted = False,
    feature: FeatureName = "orientation",
    white_level: WhiteLevel = None,
    device: Device = "cpu",
) -> None:
    """Find which of several templates are in an image, and where.

    Prints a table of all templates, best first. Templates that cannot be used are listed with the
    reason.
    Exits with status 1 if none is found.
    """
    from caloric.alignment import templates as template_search
    from caloric.image.inputs import read_image
    from caloric.types import TransformModel as Motion

    console.check_outputs(json_path, output, inputs=(image, *templates))
    image_pixels = read_image(image, white_level=white_level)
    pixels, unusable = _readable(templates, white_level)
    readable = list(pixels)
    with console.working(f"searching {image} for {len(readable)} templates"):
        result = template_search.find_template(
            image_pixels, list(pixels.values()),
            kernel=kernel, model=cast(Motion, model), feature=feature, inverted=inverted,
            names=[templates[i] for i in readable], device=device,
        )  # fmt: skip
    best = readable[result.template]
    if output is not None:
        also_found = {readable[i]: a for i, a in result.others.items() if a.converged}
        names = ", ".join(Path(templates[i]).name for i in also_found)
        title = f"{Path(templates[best]).name}{' (blue: ' + names + ')' if also_found else ''} in "
        title += f"{Path(image).name}: {result.alignment.reason}"
        others = [(np.shape(pixels[i]), a.transform) for i, a in also_found.items()]
        _draw_alignment(output, pixels[best], image_pixels, result.alignment, None, title, others)
    alignments = {readable[i]: a for i, a in result.others.items()} | {best: result.alignment}
    unusable |= {readable[i]: reason for i, reason in result.unusable.items()}
    scores = dict(zip(readable, result.scores.tolist(), strict=True))
    reports = [
        _template_report(
            path, scores.get(i, 0.0), alignments.get(i), unusable.get(i), pixels.get(i)
        )
        for i, path in enumerate(templates)
    ]
    if json_path is not None:
        about = {
            "image": image,
            "model": model,
            "template": templates[best],
            "index": best,
            "found": result.found,
            "scores": [{"template": one["template"], "score": one["score"]} for one in reports],
            "templates": reports,
        }
        console.write_text(json_path, json.dumps(about | _as_json(result.alignment)))
    if json_path != "-":
        _print_table(reports)
        if output is not None:
            typer.echo(f"written: {output}")
    if not result.found:
        raise typer.Exit(1)


def _readable(paths: list[str], white_level: float | None) -> tuple[dict[int, Any], dict[int, str]]:
    """Return the readable templates, and the errors of the others, both by index."""
    from caloric.image.inputs import read_image

    pixels, unusable = {}, {}
    for index, path in enumerate(paths):
        try:
            pixels[index] = read_image(path, white_level=white_level)
        except InputError as error:
            unusable[index] = str(error).removeprefix(f"{path}: ")
    if not pixels:
        raise InputError(f"{paths[0]}: {unusable[0]}")
    return pixels, unusable


def _template_report(
    path: str, score: float, alignment: "Alignment | None", unusable: str | None, pixels: Any
) -> dict[str, Any]:
    """Return the entry of one template in the JSON of ``find``."""
    from caloric.alignment import transforms

    is_found = alignment is not None and alignment.converged
    reason = unusable or (alignment.reason if alignment is not None else "score too low")
    result = {"template": path, "score": score, "found": is_found, "reason": reason}
    if alignment is None or not is_found:
        return result
    transform = alignment.transform
    center = transform[:, :2] @ ((np.array(pixels.shape[1::-1]) - 1) / 2) + transform[:, 2]
    return result | {
        "transform": transform.tolist(),
        "center": center.tolist(),
        "scale": transforms.scale(transform),
        "degrees": _degrees(transform),
        "confidence": alignment.confidence,
    }


def _print_table(reports: list[dict[str, Any]]) -> None:
    """Print all templates: those that were found first, by decreasing score."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("template", "found", "center", "scale", "rotation", "confidence", "score")
    ordered = sorted(reports, key=lambda one: (not one["found"], -one["score"]))
    for one in ordered:
        pose = [""] * 4
        if one["found"]:
            x, y = one["center"]
            pose = [f"{x:.1f}, {y:.1f}", f"{one['scale']:.3f}",
                    _format_degrees(one["degrees"]), f"{one['confidence']:.2f}"]  # fmt: skip
        answer = "yes" if one["found"] else "no"
        table.add_row(escape(one["template"]), answer, *pose, f"{one['score']:.2f}")
    for column in table.columns[1:]:
        column.no_wrap = True
    console.tables().print(table)
    for one in ordered:
        if not one["found"]:
            typer.echo(f"{one['template']}: {one['reason']}")
