"""``caloric match`` and ``caloric extract``."""

import itertools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from caloric.cli import console
from caloric.cli.options import (
    DEFAULTS,
    Device,
    Model,
    Threshold,
    WhiteLevel,
    takes_extract_options,
)
from caloric.errors import Failure, InputError
from caloric.image.loading import Decoder
from caloric.image_pair import ViewsChoice
from caloric.interop.exporters import FORMATS, outputs
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.runtime.files import replacing

Image = Annotated[str, typer.Argument(help="Image file.")]
Memory = Annotated[
    int,
    typer.Option(help="Working memory in MB; images that need more are processed in tiles."),
]


@takes_extract_options
@threads.single_threaded_blas
def match(
    context: typer.Context,
    image_a: Image,
    image_b: Image,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a figure of the inliers to this file (.png, .jpg, .pdf, .svg; also .html "
            "and .json).",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive HTML page to this file.")
    ] = None,
    json_path: Annotated[
        str | None,
        typer.Option(
            "--json",
            help="Write matches and geometry as JSON to this file (- for standard output).",
        ),
    ] = None,
    options: ExtractOptions = DEFAULTS,
    model: Model = "auto",
    ratio: Annotated[
        float, typer.Option(help="Threshold for the ratio test; 1 disables it.")
    ] = 0.9,
    agreement: Annotated[
        bool, typer.Option(help="Also keep matches that agree with their neighbors.")
    ] = True,
    threshold: Threshold = None,
    seed: Annotated[int, typer.Option(help="Random seed for the robust estimator.")] = 0,
    views: Annotated[
        ViewsChoice,
        typer.Option(
            help="Simulated oblique views: auto (only if the original images give a confidence of "
            "0.9 or less, or fewer than 40 inliers), none, or the maximum tilt (2: 60°, 4: 76°, "
            "8: 83° from the surface normal)."
        ),
    ] = "auto",
    refine: Annotated[bool, typer.Option(help="Refine matches to sub-pixel accuracy.")] = True,
    propagate: Annotated[
        bool,
        typer.Option(help="Add matches that the inliers around a feature predict; needs --refine."),
    ] = True,
    white_level: WhiteLevel = None,
    device: Device = "cpu",
) -> None:
    """Match two images and verify the matches geometrically.

    Exits with status 1 unless a geometry with a confidence above 0.5 is found.

    An essential matrix requires camera intrinsics; use caloric.match_images in Python.
    """
    from caloric.image_pair import match_images, views_argument
    from caloric.view import files

    console.check_outputs(json_path, None, output, html, inputs=(image_a, image_b))
    if output is not None:
        files.check(output)
    with console.working(f"matching {image_a} and {image_b}"):
        pair = match_images(
            image_a, image_b, model=model, ratio=None if ratio == 1 else ratio,
            agreement=agreement, threshold=threshold, views=views_argument(views), refine=refine,
            propagate=propagate, seed=seed, white_level=white_level, device=device,
            **options.to_json(),
        )  # fmt: skip
    if json_path is not None:
        console.write_text(json_path, json.dumps(files.as_json(pair)))
    if output is not None:
        pair.save(output)
    if html is not None:
        text = files.page(pair, _command_line(context))
        with replacing(html) as file:
            file.write(text.encode())
    if json_path != "-":
        typer.echo(f"{pair.summary}, confidence {pair.geometry.confidence:.2f}")
        if pair.geometry.reason:
            typer.echo(pair.geometry.reason)
        for path in (output, html, json_path):
            if path is not None:
                typer.echo(f"written: {path}")
    if not pair:
        raise typer.Exit(1)


def _command_line(context: typer.Context) -> str:
    """Return the command line of a call: its arguments, then the options that were given."""
    words: list[list[str]] = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        option = max(parameter.opts, key=len)
        if parameter.param_type_name == "argument":
            words.append([str(value)])
        elif isinstance(value, bool):
            words.append([option if value else parameter.secondary_opts[0]])
        else:
            words.append([option, str(value)])
    return shlex.join(["caloric", "match", *itertools.chain(*words)])


@takes_extract_options
def extract(
    images: Annotated[list[str], typer.Argument(help="Image files.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help=f"{outputs().capitalize()}, which gets one file per image (.npz by default).",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            help=f"Format: {', '.join(FORMATS)}. By default inferred from the file extension."
        ),
    ] = None,
    options: ExtractOptions = DEFAULTS,
    memory: Memory = 500,
    white_level: WhiteLevel = None,
    device: Device = "cpu",
    decode: Annotated[
        Decoder,
        typer.Option(help="JPEG decoder; gpu uses nvJPEG, whose output can differ slightly."),
    ] = "cpu",
) -> None:
    """Extract features from images and write them to a file or a directory.

    Images that cannot be read are skipped. Exits with status 1 if some images were skipped, and
    with status 2 if all were.
    """
    from caloric import features
    from caloric.extraction import dispatch
    from caloric.gpu import devices
    from caloric.image import inputs, loading, reading
    from caloric.interop import exporters
    from caloric.interop.conversion import in_file_axes

    names = [Path(image).name for image in images]
    if len(set(names)) < len(names):
        raise InputError("two images have the same file name; extract them to separate outputs")
    kind = exporters.exporter_for(output) if to is None else exporters.exporter(to)
    parents = {Path(image).parent for image in images}
    directory = parents.pop() if len(parents) == 1 else None
    request = exporters.Request(output, tuple(names), directory)
    exporter = kind(request)  # raises errors before the extraction starts
    console.check_inputs(exporter.files(), images)
    if memory < 1:
        raise InputError(f"--memory must be at least 1 MB, got {memory}")
    target = devices.resolve(device)
    dispatch.check_device(target, options, on_device=False)
    loading.check_decoder(decode, target)
    inputs.check_white_level(white_level)
    skipped = []

    def extracted() -> Iterator[tuple[str, features.Features]]:
        opened = loading.open_images(images, target, decode, white_level)
        pixels = ((image, None) for image in opened)
        each = dispatch.extract_each(pixels, options, device, 10**6 * memory, names=images)
        for number, (index, result) in enumerate(each, 1):
            if isinstance(result, Failure):
                skipped.append(images[index])
                console.skipped(images[index], str(inputs.named(result.reason, images[index])))
                continue
            name = names[index]
            views = f" with views up to tilt {result.views}" if result.views > 1 else ""
            typer.echo(f"[{number}/{len(images)}] {name}: {len(result)} features{views}", err=True)
            if kind.file_axes:
                result = in_file_axes(result, reading.orientation(Path(images[index])))
            yield name, result

    results = extracted()
    with console.working(f"extracting features from {images[0]}"):
        first = next(results, None)
    if first is None:
        typer.echo(f"none of {len(images)} images is usable; nothing written", err=True)
        raise typer.Exit(2)
    results = itertools.chain([first], results)
    kept = f"the files written so far are in {output}" if output.is_dir() else ""
    with console.keeping(kept):
        exporters.write(exporter, results)
    typer.echo(f"{len(images) - len(skipped)} of {len(images)} images: {output}")
    if skipped:
        raise typer.Exit(1)
