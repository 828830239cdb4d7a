"""``caloric match`` and ``caloric extract``: extract features, and match two images."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from caloric.errors import InputError, unknown
from caloric.features import Failure
from caloric.matching.geometry import Model
from caloric.runtime import threads
from caloric.runtime.files import check_target, replacing

if TYPE_CHECKING:
    from caloric.features import Features
    from caloric.plan import Plan

Image = Annotated[str, typer.Argument(help="An image file.")]
Memory = Annotated[
    int, typer.Option(help="Working memory in megabytes; a larger image is processed in tiles.")
]

_MODELS: dict[Model, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


@threads.single_threaded_blas
def match(
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
    max_features: MaxFeatures = 2000,
    ratio: Annotated[float, typer.Option(help="Threshold of the ratio test; 1 for none.")] = 0.9,
    threshold: Annotated[
        float, typer.Option(help="Largest residual of an inlier, in pixels.")
    ] = 2.0,
    affine: Affine = False,
    upright: Upright = False,
    detector: DetectorName = "dog",
    contrast: Contrast = None,
    seed: Annotated[int, typer.Option(help="Seed of the robust estimation.")] = 0,
    refine: Annotated[
        bool, typer.Option("--refine", help="Refine the matches to sub-pixel accuracy.")
    ] = False,
    device: Device = "cpu",
) -> None:
    """Match two images, and verify the matches by a geometry. Exit code 1: no geometry.

    An essential matrix needs camera intrinsics: use caloric.verify from Python.
    """
    from caloric import pipeline, viz
    from caloric.image import reading, tiles

    if model not in ("homography", "affine", "fundamental"):
        raise unknown("model", model, ("homography", "affine", "fundamental"))
    console.check_outputs(json_path, output, html, inputs=(image_a, image_b))
    plan = _plan(descriptor, max_features, affine, upright, detector, device, contrast)
    pixels = [reading.read_image(path) for path in (image_a, image_b)]

    def extracted(path: str, image: Any) -> "Features":
        ((_, features),) = pipeline.extract_each([(image, None)], plan, device, tiles.MEMORY)
        if isinstance(features, Failure):
            raise InputError(f"{path}: {features.reason}")
        return features

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(extracted, (image_a, image_b), pixels)
    chosen = cast(Model, model)
    images = (pixels[0], pixels[1]) if refine else None
    matches = pipeline.match(
        a, b, ratio=None if ratio == 1 else ratio, refine=refine, images=images, device=device
    )
    geometry = pipeline.verify(a, b, matches, model=chosen, seed=seed, threshold=threshold)
    p, q = a.frames.xy[matches.indices[:, 0]], b.frames.xy[matches.indices[:, 1]]
    if matches.refined is not None:
        q = matches.refined[:, :, 2]
    inliers = int(geometry.inliers.sum())
    summary = f"{len(a)} and {len(b)} features, {len(matches)} matches, {inliers} inliers"
    summary += f" of {_MODELS[chosen]}"
    if json_path is not None:
        columns = zip(
            p.tolist(),
            q.tolist(),
            matches.distances.tolist(),
            geometry.inliers.tolist(),
            strict=True,
        )
        report = {
            "image_a": image_a,
            "image_b": image_b,
            "descriptor": descriptor,
            "features": [len(a), len(b)],
            "matches": [[*pa, *pb, d, i] for pa, pb, d, i in columns],
            "model": model,
            "matrix": None if geometry.matrix is None else geometry.matrix.tolist(),
            "inliers": inliers,
        }
        console.write_text(json_path, json.dumps(report))
    if output is not None:
        good = geometry.inliers
        picture = viz.draw_matches(
            pixels[0], pixels[1], p[good], q[good], geometry.residuals[good], threshold, summary
        )
        viz.write_picture(output, picture)
    if html is not None:
        from caloric.view import still
        from caloric.view.session import Picture as Shown

        names = [Path(path).name for path in (image_a, image_b)]
        pictures = [Shown.of_pixels(name, image) for name, image in zip(names, pixels, strict=True)]
        title = " and ".join(names)
        text = still.page((pictures[0], pictures[1]), (a, b), chosen, ratio, threshold, title)
        with replacing(html) as file:
            file.write(text.encode())
    if json_path != "-":
        typer.echo(summary)
        for written in (output, html, json_path):
            if written is not None:
                typer.echo(f"written: {written}")
    if geometry.matrix is None:
        raise typer.Exit(1)


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
    options = detection.Options(
        max_features, affine, upright, cast(detection.Detector, detector), contrast
    )
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
    max_features: MaxFeatures = 8000,
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
    from caloric.interop import hdf5

    names = [Path(image).name for image in images]
    if len(set(names)) < len(names):
        raise InputError("two of the images have the same name; extract them into two outputs")
    kind = _kind(output)
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
            yield name, result

    results = extracted()
    first = next(results, None)
    if first is None:
        typer.echo(f"none of {len(images)} images could be used; nothing was written", err=True)
        raise typer.Exit(2)
    results = itertools.chain([first], results)
    if kind == "h5":
        hdf5.write(output, results)
    else:
        for name, result in results:
            result.save(output if kind == "npz" else output / f"{name}.npz")
    typer.echo(f"{len(images) - len(skipped)} of {len(images)} images: {output}")
    if skipped:
        raise typer.Exit(1)


def _kind(output: Path) -> Literal["npz", "h5", "folder"]:
    """Return what to write by the suffix of the output; raise an error if it cannot be written."""
    if output.suffix in (".npz", ".h5", ".hdf5"):
        check_target(output)
        return "npz" if output.suffix == ".npz" else "h5"
    if output.suffix and not output.is_dir():
        raise InputError(
            f"{output}: name an .h5, an .npz or a folder (create a folder with a dot first)"
        )
    console.folder(output).mkdir(parents=True, exist_ok=True)
    return "folder"
