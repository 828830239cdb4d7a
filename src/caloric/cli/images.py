"""``caloric match`` and ``caloric extract``: features of images, and matches of two of them."""

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from caloric.cli import console
from caloric.cli.options import Affine, DescriptorName, DetectorName, Device, MaxFeatures, Upright
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
    int, typer.Option(help="Megabytes to work in; a larger image is processed in tiles.")
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
        Path | None, typer.Option("--output", "-o", help="Picture of the inliers.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="A page to look at them, in one file.")] = None,
    json_path: Annotated[
        str | None, typer.Option("--json", help="Matches as JSON; - for standard output.")
    ] = None,
    descriptor: DescriptorName = "caloric",
    model: Annotated[str, typer.Option(help="homography, affine, fundamental.")] = "homography",
    max_features: MaxFeatures = 2000,
    ratio: Annotated[float, typer.Option(help="Ratio test; 1 for none.")] = 0.9,
    threshold: Annotated[float, typer.Option(help="Largest residual of an inlier, pixels.")] = 2.0,
    affine: Affine = False,
    upright: Upright = False,
    detector: DetectorName = "dog",
    seed: Annotated[int, typer.Option(help="Of the robust estimation.")] = 0,
    refine: Annotated[
        bool, typer.Option("--refine", help="Matches to sub-pixel agreement.")
    ] = False,
    device: Device = "cpu",
) -> None:
    """Match two images, and verify the matches by one geometry.

    An essential matrix needs intrinsics: use caloric.verify from Python for it.
    """
    from caloric import pipeline, viz
    from caloric.image import reading, tiles

    if model not in ("homography", "affine", "fundamental"):
        raise unknown("model", model, ("homography", "affine", "fundamental"))
    console.check_outputs(json_path, output, html)
    plan = _plan(descriptor, max_features, affine, upright, detector, device)
    pixels = [reading.read_image(path) for path in (image_a, image_b)]

    def one(path: str, image: Any) -> "Features":
        ((_, found),) = pipeline.extract_each([(image, None)], plan, device, tiles.MEMORY)
        if isinstance(found, Failure):
            raise InputError(f"{path}: {found.reason}")
        return found

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(one, (image_a, image_b), pixels)
    chosen = cast(Model, model)
    images = (pixels[0], pixels[1]) if refine else None
    found = pipeline.match(
        a, b, ratio=None if ratio == 1 else ratio, refine=refine, images=images, device=device
    )
    geometry = pipeline.verify(a, b, found, model=chosen, seed=seed, threshold=threshold)
    p, q = a.frames.xy[found.indices[:, 0]], b.frames.xy[found.indices[:, 1]]
    if found.refined is not None:
        q = found.refined[:, :, 2]
    inliers = int(geometry.inliers.sum())
    summary = f"{len(a)} and {len(b)} features, {len(found)} matches, {inliers} inliers"
    summary += f" of {_MODELS[chosen]}"
    if json_path is not None:
        columns = zip(
            p.tolist(), q.tolist(), found.distances.tolist(), geometry.inliers.tolist(), strict=True
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
        shown = [Shown.of_pixels(*one) for one in zip(names, pixels, strict=True)]
        title = " and ".join(names)
        text = still.page((shown[0], shown[1]), (a, b), chosen, ratio, threshold, title)
        with replacing(html) as file:
            file.write(text.encode())
    if json_path != "-":
        typer.echo(summary)
        for written in (output, html, json_path):
            if written is not None:
                typer.echo(f"written: {written}")


def _plan(
    descriptor: str, max_features: int, affine: bool, upright: bool, detector: str, device: str
) -> "Plan":
    """What is to be extracted: errors of options come here, before the work."""
    from caloric.descriptor import recipes
    from caloric.detector import detection
    from caloric.gpu import devices
    from caloric.plan import Plan

    devices.resolve(device)
    options = detection.Options(max_features, affine, upright, cast(detection.Detector, detector))
    return Plan.of(descriptor, recipes.descriptor(descriptor), options)


def extract(
    images: Annotated[list[str], typer.Argument(help="Image files.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="features.h5, one .npz, or a folder of them.")
    ],
    descriptor: DescriptorName = "caloric",
    max_features: MaxFeatures = 8000,
    affine: Affine = False,
    upright: Upright = False,
    detector: DetectorName = "dog",
    memory: Memory = 500,
    device: Device = "cpu",
    decode: Annotated[
        str, typer.Option(help="gpu: JPEGs by nvJPEG, if torchvision has it; levels may differ.")
    ] = "cpu",
) -> None:
    """Features of images into a file or a folder. One bad image is reported and skipped."""
    from caloric import features, pipeline
    from caloric.gpu import stream
    from caloric.interop import hdf5

    names = [Path(image).name for image in images]
    if len(set(names)) < len(names):
        raise InputError("two of the images have the same name; extract them into two outputs")
    kind = _kind(output)
    if memory < 1:
        raise InputError(f"--memory must be a number of megabytes from 1, got {memory}")
    plan = _plan(descriptor, max_features, affine, upright, detector, device)
    stream.check(decode, device)
    if kind == "npz" and len(images) > 1:
        raise InputError(f"{output}: an .npz holds one image; name a folder or an .h5 for several")
    skipped = []

    def found() -> Iterator[tuple[str, features.Features]]:
        pixels = ((one, None) for one in stream.opened(images, device, decode))
        each = pipeline.extract_each(pixels, plan, device, 10**6 * memory)
        for number, (index, result) in enumerate(each, 1):
            if isinstance(result, Failure):
                skipped.append(images[index])
                console.skipped(images[index], result.reason)
                continue
            name = names[index]
            typer.echo(f"[{number}/{len(images)}] {name}: {len(result)} features", err=True)
            yield name, result

    results = found()
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
    """What to write, by the name's ending: made sure of before the work."""
    if output.suffix in (".npz", ".h5", ".hdf5"):
        check_target(output)
        return "npz" if output.suffix == ".npz" else "h5"
    if output.suffix and not output.is_dir():
        raise InputError(
            f"{output}: name an .h5, an .npz or a folder (one with a dot: make it first)"
        )
    console.folder(output).mkdir(parents=True, exist_ok=True)
    return "folder"
