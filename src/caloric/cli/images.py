"""``caloric match`` and ``caloric extract``: extract features, and match two images."""

import itertools
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from caloric.cli import console
from caloric.cli.options import (
    Affine,
    Contrast,
    DescriptorName,
    DetectorName,
    Device,
    MaxFeatures,
    Upright,
)
from caloric.detector.detection import FEATURES
from caloric.errors import InputError, unknown
from caloric.features import Failure
from caloric.runtime import threads
from caloric.runtime.files import check_target, replacing
from caloric.types import GeometryModel

if TYPE_CHECKING:
    from caloric.image_pair import ImageMatch
    from caloric.plan import Plan
    from caloric.types import Detector

Image = Annotated[str, typer.Argument(help="An image file.")]
Memory = Annotated[
    int, typer.Option(help="Working memory in megabytes; a larger image is processed in tiles.")
]


@threads.single_threaded_blas
def match(
    context: typer.Context,
    image_a: Image,
    image_b: Image,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a picture of the inliers to this file."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive page of the matches to this file.")
    ] = None,
    json_path: Annotated[
        str | None,
        typer.Option(
            "--json", help="Write the matches as JSON to this file; - for standard output."
        ),
    ] = None,
    descriptor: DescriptorName = "caloric",
    model: Annotated[str, typer.Option(help="homography, affine or fundamental.")] = "homography",
    max_features: MaxFeatures = FEATURES,
    ratio: Annotated[float, typer.Option(help="Threshold of the ratio test; 1 for none.")] = 0.9,
    threshold: Annotated[
        float, typer.Option(help="Largest residual of an inlier, in pixels.")
    ] = 2.0,
    affine: Affine = False,
    upright: Upright = False,
    detector: DetectorName = "dog",
    contrast: Contrast = None,
    seed: Annotated[int, typer.Option(help="Seed of the robust estimation.")] = 0,
    views: Annotated[
        str,
        typer.Option(
            help="Simulated views from aside: auto (where there is no geometry without), none, or "
            "the largest tilt, 2, 4 or 8."
        ),
    ] = "auto",
    refine: Annotated[bool, typer.Option(help="Refine the matches to sub-pixel accuracy.")] = True,
    device: Device = "cpu",
) -> None:
    """Match two images, and verify the matches by a geometry. Exit code 1: none is believed.

    An essential matrix needs camera intrinsics: use caloric.verify from Python.
    """
    from caloric.descriptor import recipes
    from caloric.image_pair import match_images

    if model not in ("homography", "affine", "fundamental"):
        raise unknown("model", model, ("homography", "affine", "fundamental"))
    console.check_outputs(json_path, output, html, inputs=(image_a, image_b))
    recipes.descriptor(descriptor)
    with console.working(f"matching {image_a} and {image_b}"):
        pair = match_images(
            image_a, image_b, descriptor, max_features=max_features,
            model=cast(GeometryModel, model), ratio=None if ratio == 1 else ratio,
            threshold=threshold, views=_views(views),
            refine=refine, affine=affine,
            upright=upright, detector=cast("Detector", detector), contrast=contrast, seed=seed,
            device=device,
        )  # fmt: skip
    if json_path is not None:
        console.write_text(json_path, json.dumps(_as_json(pair, image_a, image_b)))
    if output is not None:
        pair.save(output)
    if html is not None:
        from caloric.view import still
        from caloric.view.pictures import Picture as Shown

        names = [Path(path).name for path in (image_a, image_b)]
        pictures = [
            Shown.of_pixels(name, pixels)
            for name, pixels in zip(names, (pair.image_a, pair.image_b), strict=True)
        ]
        text = still.page((pictures[0], pictures[1]), pair, _typed(context), " and ".join(names))
        with replacing(html) as file:
            file.write(text.encode())
    if json_path != "-":
        typer.echo(pair.summary)
        for written in (output, html, json_path):
            if written is not None:
                typer.echo(f"written: {written}")
    if not pair:
        raise typer.Exit(1)


def _typed(context: typer.Context) -> str:
    """Return the command as it was typed: arguments first, then the options that were given."""
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


def _views(text: str) -> 'Literal["auto"] | int | None':
    """Return the value of --views; what is not a number is for match_images to complain of."""
    if text == "none":
        return None
    return int(text) if text.isdecimal() else cast('Literal["auto"]', text)


def _as_json(pair: "ImageMatch", image_a: str, image_b: str) -> dict[str, Any]:
    """Return the fields of ``match --json``, which docs/json.md describes."""
    matrix = pair.geometry.matrix
    columns = zip(
        *(points.tolist() for points in pair.all_points()),
        pair.matches.distances.tolist(),
        pair.geometry.inliers.tolist(),
        strict=True,
    )
    return {
        "image_a": image_a,
        "image_b": image_b,
        "descriptor": pair.features_a.descriptor,
        "features": [len(pair.features_a), len(pair.features_b)],
        "columns": ["x_a", "y_a", "x_b", "y_b", "distance", "inlier"],
        "matches": [[*a, *b, distance, inlier] for a, b, distance, inlier in columns],
        "model": pair.geometry.model,
        "matrix": matrix.tolist() if pair and matrix is not None else None,
        "inliers": len(pair),
        "confidence": pair.geometry.confidence,
        "level": pair.level,
        "refined": pair.matches.refined is not None,
    }


def _plan(
    descriptor: str,
    max_features: int,
    affine: bool,
    upright: bool,
    detector: str,
    device: str,
    contrast: float | None,
) -> "Plan":
    """Return the plan of an extraction; raise errors of options before the work."""
    from caloric.descriptor import recipes
    from caloric.detector import detection
    from caloric.gpu import devices
    from caloric.plan import Plan

    devices.resolve(device)
    options = detection.Options(max_features, affine, upright, cast("Detector", detector), contrast)
    return Plan.of(descriptor, recipes.descriptor(descriptor), options)


def extract(
    images: Annotated[list[str], typer.Argument(help="Image files.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="An .h5 file, an .npz file for one image, or a folder."
        ),
    ],
    descriptor: DescriptorName = "caloric",
    max_features: MaxFeatures = FEATURES,
    affine: Affine = False,
    upright: Upright = False,
    detector: DetectorName = "dog",
    contrast: Contrast = None,
    memory: Memory = 500,
    device: Device = "cpu",
    decode: Annotated[
        str, typer.Option(help="cpu, or gpu to decode JPEGs by nvJPEG; grey levels may differ.")
    ] = "cpu",
) -> None:
    """Extract features of images to a file or a folder. Unusable images are skipped."""
    from caloric import features, pipeline
    from caloric.gpu import stream
    from caloric.image import reading
    from caloric.interop import hdf5
    from caloric.interop.conversion import in_file_axes

    names = [Path(image).name for image in images]
    if len(set(names)) < len(names):
        raise InputError("two of the images have the same name; extract them into two outputs")
    kind = _kind(output)
    written = [output / f"{name}.npz" for name in names] if kind == "folder" else [output]
    console.check_inputs(written, images)
    if memory < 1:
        raise InputError(f"--memory must be a number of megabytes from 1, got {memory}")
    plan = _plan(descriptor, max_features, affine, upright, detector, device, contrast)
    stream.check(decode, device)
    if kind == "npz" and len(images) > 1:
        raise InputError(f"{output}: an .npz holds one image; name a folder or an .h5 for several")
    skipped = []

    def extracted() -> Iterator[tuple[str, features.Features]]:
        pixels = ((image, None) for image in stream.opened(images, device, decode))
        each = pipeline.extract_each(pixels, plan, device, 10**6 * memory)
        for number, (index, result) in enumerate(each, 1):
            if isinstance(result, Failure):
                skipped.append(images[index])
                console.skipped(images[index], result.reason)
                continue
            name = names[index]
            typer.echo(f"[{number}/{len(images)}] {name}: {len(result)} features", err=True)
            if kind == "h5":  # hloc and COLMAP open images as they are stored
                result = in_file_axes(result, reading.orientation(Path(images[index])))
            yield name, result

    results = extracted()
    with console.working(f"extracting features of {images[0]}"):
        first = next(results, None)
    if first is None:
        typer.echo(f"none of {len(images)} images could be used; nothing was written", err=True)
        raise typer.Exit(2)
    results = itertools.chain([first], results)
    if kind == "h5":
        hdf5.write(output, results)
    else:
        with console.keeping(f"files written so far are kept in {output}"):
            for name, result in results:
                result.save(output if kind == "npz" else output / f"{name}.npz")
    typer.echo(f"{len(images) - len(skipped)} of {len(images)} images: {output}")
    if skipped:
        raise typer.Exit(1)


def _kind(output: Path) -> Literal["npz", "h5", "folder"]:
    """Return what to write by the suffix of the output; raise an error if it cannot be written."""
    from caloric.interop import hdf5

    if output.suffix.lower() in (".npz", ".h5", ".hdf5"):
        check_target(output)
        if output.suffix.lower() == ".npz":
            return "npz"
        hdf5.h5py()  # raises an error before the work
        return "h5"
    if output.suffix and not output.is_dir():
        raise InputError(
            f"{output}: name an .h5, an .npz or a folder (create a folder with a dot first)"
        )
    console.folder(output).mkdir(parents=True, exist_ok=True)
    return "folder"
