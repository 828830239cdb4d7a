"""The command line."""

import itertools
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import numpy as np
import typer
from rich.console import Console

from caloric import __version__
from caloric.collection import commands as collection
from caloric.descriptor import recipes
from caloric.errors import InputError, unknown
from caloric.matching.geometry import Model
from caloric.runtime import native, threads
from caloric.runtime.files import check_target, replacing

if TYPE_CHECKING:
    from caloric.alignment.align import Alignment
    from caloric.features import Features, Plan

app = typer.Typer(
    name="caloric",
    help="Match images by heat diffusion: SIFT, DSP-SIFT and what lies beyond, from one theory.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"caloric {__version__}")
        raise typer.Exit


@app.callback()
def _caloric(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


Image = Annotated[str, typer.Argument(help="An image file.")]
DescriptorName = Annotated[str, typer.Option("--descriptor", help="One of `caloric info`'s.")]
Most = Annotated[int, typer.Option("--max-features", help="Features an image, strongest first.")]
Affine = Annotated[bool, typer.Option("--affine", help="Adapt the shape of frames.")]
Upright = Annotated[bool, typer.Option("--upright", help="All frames upright: no orientations.")]
DetectorName = Annotated[str, typer.Option("--detector", help="dog, or OpenCV's: opencv.")]


_CALLED: dict[Model, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …, torch:cpu, auto: a GPU if any.")]
Memory = Annotated[
    int, typer.Option(help="Megabytes to work in: a larger image is taken in tiles.")
]


@app.command()
@threads.ours
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
    max_features: Most = 2000,
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
    from caloric import features, viz
    from caloric.image import reading, tiles

    if model not in ("homography", "affine", "fundamental"):
        raise unknown("model", model, ("homography", "affine", "fundamental"))
    _check_outputs(json_path, output, html)
    plan = _plan(descriptor, max_features, affine, upright, detector, device)
    pixels = [reading.read_image(path) for path in (image_a, image_b)]

    def one(path: str, image: Any) -> "Features":
        ((_, found),) = features.extract_each([(image, None)], plan, device, tiles.MEMORY)
        if isinstance(found, InputError):
            raise InputError(f"{path}: {found}")
        return found

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(one, (image_a, image_b), pixels)
    chosen = cast(Model, model)
    images = (pixels[0], pixels[1]) if refine else None
    found = features.match(
        a, b, ratio=None if ratio == 1 else ratio, refine=refine, images=images, device=device
    )
    geometry = features.verify(a, b, found, model=chosen, seed=seed, threshold=threshold)
    p, q = a.frames.xy[found.indices[:, 0]], b.frames.xy[found.indices[:, 1]]
    if found.refined is not None:
        q = found.refined[:, :, 2]
    inliers = int(geometry.inliers.sum())
    summary = f"{len(a)} and {len(b)} features, {len(found)} matches, {inliers} inliers"
    summary += f" of {_CALLED[chosen]}"
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
        _write_text(json_path, json.dumps(report))
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
    from caloric import features
    from caloric.descriptor import recipes
    from caloric.detector import detection
    from caloric.gpu import devices

    devices.resolve(device)
    options = detection.Options(max_features, affine, upright, cast(detection.Detector, detector))
    return features.Plan.of(descriptor, recipes.descriptor(descriptor), options)


def _json_file(json_path: str | None) -> Path | None:
    """The file that --json names, if it names one."""
    return None if json_path in (None, "-") else Path(str(json_path))


def _check_outputs(json_path: str | None, picture: Path | None, *others: Path | None) -> None:
    """Before the work: that what is asked for can be written, and the picture in its format."""
    from caloric import viz

    for path in (_json_file(json_path), picture, *others):
        check_target(path)
    if picture is not None:
        viz.check_format(picture)


def _write_text(path: str, text: str) -> None:
    if path == "-":
        typer.echo(text)
        return
    with replacing(Path(path)) as file:
        file.write(text.encode())


def _write_report(path: str, report: dict[str, Any]) -> None:
    _write_text(path, json.dumps(report, indent=1) + "\n")


def _teller() -> Callable[[str], None]:
    """Lines on stderr while a benchmark is at work."""
    console = Console(stderr=True)
    return lambda message: console.print(f"  {message}", highlight=False)


@app.command()
def extract(
    images: Annotated[list[str], typer.Argument(help="Image files.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="features.h5, one .npz, or a folder of them.")
    ],
    descriptor: DescriptorName = "caloric",
    max_features: Most = 8000,
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
    from caloric import features
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
        each = features.extract_each(pixels, plan, device, 10**6 * memory)
        for number, (index, result) in enumerate(each, 1):
            if isinstance(result, InputError):
                skipped.append(images[index])
                reason = str(result)
                named = reason if reason.startswith(images[index]) else f"{images[index]}: {reason}"
                typer.echo(f"skipped: {named}", err=True)
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
    _folder(output).mkdir(parents=True, exist_ok=True)
    return "folder"


Picture = Annotated[Path | None, typer.Option("--output", "-o", help="A picture of the result.")]
ModelName = Annotated[str, typer.Option("--model", help="translation, similarity, affine.")]
Inverted = Annotated[bool, typer.Option("--inverted", help="Bright may be dark.")]
FeatureName = Annotated[
    str, typer.Option("--feature", help="orientation, or distribution-field[-heat]: same light.")
]


@app.command()
@threads.ours
def align(
    template: Annotated[str, typer.Argument(help="The image to be found.")],
    image: Annotated[str, typer.Argument(help="The image it is in.")],
    output: Picture = None,
    json_path: Annotated[
        str | None, typer.Option("--json", help="The result as JSON; - for standard output.")
    ] = None,
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

    _check_outputs(json_path, output)
    own, whole = reading.read_image(template), reading.read_image(image)
    start = None
    if initial is not None:
        numbers = _numbers(initial, "--initial", float)
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
        _write_text(json_path, json.dumps(report))
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


@app.command()
@threads.ours
def find(
    image: Annotated[str, typer.Argument(help="The image to look in.")],
    templates: Annotated[list[str], typer.Argument(help="The images to look for.")],
    output: Picture = None,
    json_path: Annotated[
        str | None, typer.Option("--json", help="The result as JSON; - for standard output.")
    ] = None,
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

    _check_outputs(json_path, output)
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


@app.command()
def demo(
    out: Annotated[Path, typer.Argument(help="Folder to write to; made if it is not there.")],
) -> None:
    """Match a photograph with a strongly changed view of it: SIFT beside the default."""
    from caloric.demo import run

    scores, picture = run(_folder(out))
    for s in scores:
        typer.echo(f"{s.descriptor:10} {s.right:5} of {len(s.error):5} matches are right")
    typer.echo(f"the picture: {picture}")


def _folder(out: Path) -> Path:
    if out == Path():
        raise InputError("name a folder to write to")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} exists and is not a folder; name another")
    return out


@app.command()
def paper(
    out: Annotated[Path, typer.Argument(help="Folder to write to; made if it is not there.")],
) -> None:
    """Regenerate every figure and table of the paper, with a report."""
    from caloric.paper.report import write

    console = Console(stderr=True)
    index = write(_folder(out), lambda message: console.print(f"  {message} ...", highlight=False))
    typer.echo(f"the paper, regenerated: {index}")
    typer.echo(f"one picture of it:      {out / 'diffused.png'}")


app.add_typer(collection.app, name="collection")
bench = typer.Typer(help="Benchmarks over local copies of public data.", no_args_is_help=True)
app.add_typer(bench, name="bench")


Data = Annotated[Path, typer.Option("--data", help="The folder of a local copy.")]
JsonOut = Annotated[str | None, typer.Option("--json", help="All figures; - for standard output.")]
PlotOut = Annotated[Path | None, typer.Option("--plot", help="A picture of them.")]
CacheIn = Annotated[
    Path | None, typer.Option("--cache", help="Where predictions are kept; metrics then rerun.")
]
Only = Annotated[str, typer.Option("--only", help="Some scenes, by commas.")]


def _bench(
    name: str, data: Path, json_path: str | None, plot: Path | None, cache: Path | None, only: str
) -> None:
    from rich.progress import Progress
    from rich.table import Table

    from caloric.bench import datasets, evaluate, methods, report

    _check_outputs(json_path, plot)
    if methods.absent():
        typer.echo(f"not installed, left out: {', '.join(methods.absent())}", err=True)
    pairs = datasets.DATASETS[name](data)
    if only:
        chosen = only.split(",")
        known = {name for p in pairs for name in (p.first.parent.name, p.group)}
        missing = [name for name in chosen if name not in known]
        if missing:
            raise InputError(f"{data}: no scene {', '.join(missing)} in it")
        pairs = [p for p in pairs if p.first.parent.name in chosen or p.group in chosen]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=len(pairs))
        results = evaluate.evaluate(
            pairs,
            methods.fixed() + methods.pipelines(),
            cache,
            lambda pair: progress.update(task, advance=1, description=pair),
        )
    summary = report.summarise(name, pairs, results)
    if json_path is not None:
        _write_text(json_path, report.dumps(summary))
    if plot is not None:
        report.plot(summary, plot)
    if json_path == "-":
        return
    for part in report.COLUMNS:
        head, rows = report.table(summary, part)
        table = Table(*head, title=f"{name}: {part}")
        for row in rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 160).print(table)


def _over_pairs(name: str, about: str) -> None:
    """A command for a data set of image pairs: all have the same options."""

    @bench.command(name, help=about)
    def command(
        data: Data,
        json_path: JsonOut = None,
        plot: PlotOut = None,
        cache: CacheIn = None,
        only: Only = "",
    ) -> None:
        _bench(name, data, json_path, plot, cache, only)


_over_pairs("oxford", "Descriptors and detectors on Oxford Affine.")
_over_pairs("fischer", "The same on Fischer's generated changes of 16 scenes.")
_over_pairs("hpatches", "The same on the sequences of HPatches.")


@bench.command()
def patches(
    data: Data,
    json_path: JsonOut = None,
    most: Annotated[int, typer.Option(help="Places a sequence, at most.")] = 300,
) -> None:
    """Verification, matching and retrieval on the patches of HPatches."""
    from rich.table import Table

    from caloric.bench import patches as benchmark
    from caloric.bench import report

    lines = benchmark.run(data, most, _teller())
    if json_path is not None:
        figures = {
            x.method: {
                task: {"figure": vars(x.figures[task]), "default ahead by": vars(x.ahead[task])}
                for task in x.figures
            }
            for x in lines
        }
        about = {"versions": report.versions(), "places a sequence": most}
        _write_text(json_path, json.dumps(about | {"methods": figures}, indent=1))
    if json_path != "-":
        table = Table("task", *(x.method for x in lines), title="mean average precision")
        for task in lines[0].figures:
            table.add_row(task, *(f"{x.figures[task].mean:.3f}" for x in lines))
        Console(width=None if sys.stdout.isatty() else 160).print(table)


@bench.command()
def claims(json_path: JsonOut = None) -> None:
    """What the paper claims of heat and of the closed forms, on pictures of scikit-image."""
    from rich.table import Table

    from caloric.bench import claims as benchmark

    found = benchmark.run(_teller())
    if json_path is not None:
        _write_text(json_path, json.dumps(vars(found), indent=1))
    if json_path != "-":
        strengths = [f"{s:g}" for s in benchmark.STRENGTHS]
        table = Table("mAP at affine strength", *strengths, "cost, of sift's")
        for name, values in found.accuracy.items():
            cost = f"{found.cost[name]['median']:.2f}"
            table.add_row(name, *(f"{v['mAP']:.3f}" for v in values), cost)
        Console(width=None if sys.stdout.isatty() else 120).print(table)


@bench.command()
def speed(
    image: Annotated[Path, typer.Argument(help="The image to extract features of.")],
    json_path: JsonOut = None,
    plot: PlotOut = None,
    page: Annotated[
        Path | None, typer.Option(help="A page of the documentation, speed.png beside it.")
    ] = None,
    max_features: Annotated[int, typer.Option(help="Features of the image.")] = 2000,
    thread_counts: Annotated[
        str, typer.Option("--threads", help="Numbers of threads, by commas.")
    ] = "1,2",
    rounds: Annotated[int, typer.Option(help="Each contender's turns, after one to warm up.")] = 15,
    large: Annotated[
        str, typer.Option(help="Large images too: megapixels, by commas; 0 for none.")
    ] = "6.25,25,100",
) -> None:
    """Speed beside OpenCV, COLMAP, kornia and faiss, interleaved in one run."""
    from caloric.bench import speed as benchmark
    from caloric.bench import speed_page

    _check_outputs(json_path, plot, page)
    numbers = _numbers(thread_counts, "--threads", int)
    sizes = [size for size in _numbers(large, "--large", float) if size]
    report = benchmark.run(image, max_features, numbers, rounds, sizes)
    if json_path is not None:
        _write_report(json_path, report)
    if page is not None:
        with replacing(page) as file:
            file.write(speed_page.page(report).encode())
        plot = plot or page.with_name("speed.png")
    if plot is not None:
        speed_page.plot(report, plot)
    if json_path != "-":
        for line in speed_page.table(report):
            typer.echo(line)


@bench.command()
def gpu(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    oxford: Annotated[
        Path | None, typer.Option(help="Oxford Affine: accuracy beside the CPU's.")
    ] = None,
    json_path: JsonOut = None,
    page: Annotated[Path | None, typer.Option(help="A page of the documentation.")] = None,
    device: Device = "cuda",
    commit: Annotated[str | None, typer.Option(help="What was measured.")] = None,
) -> None:
    """A GPU: images, frames and pairs a second, as shares of what it copies and multiplies."""
    from caloric.bench import gpu_page
    from caloric.gpu import devices

    _check_outputs(json_path, None, page)
    devices.resolve(device)
    from caloric.bench import gpu as benchmark

    def keep(report: dict[str, Any]) -> None:
        if _json_file(json_path) is not None:
            _write_report(str(json_path), report)

    report = benchmark.run(data, oxford, device, commit, _teller(), keep)
    if json_path == "-":
        typer.echo(json.dumps(report, indent=1))
    if page is not None:
        with replacing(page) as file:
            file.write(gpu_page.page(report).encode())
    if json_path != "-":
        typer.echo(gpu_page.page(report))
    short = benchmark.failures(report)
    if short:
        typer.echo(f"falls short: {'; '.join(short)}", err=True)
        raise typer.Exit(1)


@bench.command()
def models(
    scenes: Annotated[list[Path], typer.Argument(help="Folders with images/ and cameras.json.")],
    json_path: JsonOut = None,
    max_features: Annotated[int, typer.Option(help="Asked of COLMAP; it takes more.")] = 4000,
) -> None:
    """COLMAP models from our features and from COLMAP's own, against the cameras."""
    from caloric.bench import models as benchmark

    _check_outputs(json_path, None)
    report = benchmark.run(scenes, max_features, _teller())
    if json_path is not None:
        _write_report(json_path, report)
    if json_path != "-":
        for line in benchmark.lines(report):
            typer.echo(line)


@bench.command()
def scale(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    json_path: JsonOut = None,
    oxford: Annotated[Path | None, typer.Option(help="Oxford Affine, for retrieval.")] = None,
    images: Annotated[int, typer.Option(help="Tiny images that pass through Dask.")] = 50_000,
    page: Annotated[Path | None, typer.Option(help="A page of the documentation.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Some sections; others stay as they are in the JSON.")
    ] = None,
) -> None:
    """Collections: rates, sizes and memory, and what they make of a million images."""
    from caloric.bench import scale as benchmark
    from caloric.bench import scale_page

    _check_outputs(json_path, None, page)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    before = _json_file(json_path)
    report = json.loads(before.read_text()) if only and before and before.exists() else {}
    report |= benchmark.run(
        data, oxford, images, sections,
        _teller(),
    )  # fmt: skip
    if json_path is not None:
        _write_report(json_path, report)
    if page is not None:
        with replacing(page) as file:
            file.write(scale_page.page(report).encode())
    if json_path != "-":
        typer.echo(scale_page.page(report))


@bench.command()
def kills(
    data: Annotated[Path, typer.Option("--data", help="A folder of photographs.")],
    json_path: JsonOut = None,
    count: Annotated[int, typer.Option("--kills", help="How many.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
) -> None:
    """Runs over a collection, killed at random moments and run again: the same store?"""
    from caloric.bench import kills as benchmark

    _check_outputs(json_path, None)
    report = benchmark.run(data, count, 300, seed, _teller())
    if json_path is not None:
        _write_report(json_path, report)
    wrong = [one for one in report["kills"] if not one["the same store"] or one["written again"]]
    every = len(report["kills"])
    typer.echo(f"{every - len(wrong)} of {every} ended as if nothing had been")
    if wrong:
        raise typer.Exit(1)


@bench.command("view")
def bench_view(
    image: Annotated[Path, typer.Argument(help="A picture with 5,000 features.")],
    json_path: JsonOut = None,
) -> None:
    """The page of `caloric view` in a headless Chromium: first paint, frames a second."""
    from caloric.bench import view as benchmark

    _check_outputs(json_path, None)
    report = benchmark.run(image)
    if json_path is not None:
        _write_report(json_path, report)
    if json_path != "-":
        for name, value in report.items():
            if isinstance(value, int | float):
                typer.echo(f"{name}: {value:,.0f}")


@bench.command("align")
def bench_align(
    data: Data,
    strecha: Annotated[
        list[Path] | None, typer.Option(help="Folders with images/ and cameras.json, to refine.")
    ] = None,
    json_path: JsonOut = None,
    page: Annotated[
        Path | None, typer.Option(help="A page of the documentation; needs the section cells.")
    ] = None,
    cases: Annotated[int, typer.Option(help="Cases a cell.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the random transforms.")] = 0,
    only: Annotated[
        str, typer.Option(help="Some sections, by commas; the others stay as in the JSON file.")
    ] = "",
) -> None:
    """Alignment beside ECC, Lucas-Kanade and SIFT with RANSAC, on photographs."""
    from caloric.bench import align as benchmark
    from caloric.bench import align_page

    _check_outputs(json_path, None, page)
    sections = only.split(",") if only else [*benchmark.SECTIONS]
    if cases < 1:
        raise InputError(f"--cases must be a whole number from 1, got {cases}")
    for name in sections:
        if name not in benchmark.SECTIONS:
            raise unknown("section", name, benchmark.SECTIONS)
    if not strecha and "refine" in sections:
        sections.remove("refine")
    report: dict[str, Any] = {}
    kept = _json_file(json_path)
    if only and kept is not None and kept.exists():
        report = json.loads(kept.read_text())
    report |= benchmark.run(
        data, strecha or [], cases, seed, sections,
        _teller(),
    )  # fmt: skip
    if json_path is not None:
        _write_report(json_path, report)
    if page is not None and "cells" not in report:
        typer.echo("no page: the section cells is missing", err=True)
    elif page is not None:
        with replacing(page) as file:
            file.write(align_page.page(report).encode())
    if json_path != "-":
        for line in align_page.tables(report):
            typer.echo(line)


_Number = TypeVar("_Number", int, float)


def _numbers(text: str, option: str, kind: Callable[[str], _Number]) -> list[_Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be numbers, by commas; got {text!r}") from None


@bench.command()
def page(
    results: Annotated[list[Path], typer.Argument(help="JSON of bench oxford, fischer, hpatches.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page, .md.")],
    claims_path: Annotated[
        Path | None, typer.Option("--claims", help="JSON of bench claims.")
    ] = None,
    ablation: Annotated[Path | None, typer.Option(help="JSON of tools/ablation.py.")] = None,
) -> None:
    """The accuracy page of the documentation, from what the benchmarks found."""
    from caloric.bench import page as benchmark

    check_target(output)
    benchmark.write(results, claims_path, ablation, output)
    typer.echo(f"written: {output}")


@bench.command()
def fuzz(
    files: Annotated[int, typer.Option(help="How many broken files to try.")] = 10_000,
    first: Annotated[int, typer.Option(help="Number of the first: files are seeded by it.")] = 0,
) -> None:
    """Broken image files through extract: features, or an error of one line, within limits."""
    from rich.progress import Progress

    from caloric.bench.fuzz import run

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("files", total=files)
        report = run(files, first, lambda done: progress.update(task, completed=done))
    for outcome, count in sorted(report.outcomes.items()):
        typer.echo(f"{outcome:9} {count:7}")
    for seed, text in report.broken:
        typer.echo(f"file {seed}: {text}")
    if report.broken:
        raise typer.Exit(1)


@app.command()
def view(
    image_a: Annotated[Path | None, typer.Argument(help="The first image; or drop it.")] = None,
    image_b: Annotated[Path | None, typer.Argument(help="The second image.")] = None,
    descriptor: DescriptorName = "caloric",
    model: Annotated[str, typer.Option(help="homography, fundamental, affine.")] = "homography",
    max_features: Most = 4000,
    port: Annotated[int, typer.Option(help="Of this machine; 0: any that is free.")] = 8765,
    host: Annotated[str, typer.Option(help="127.0.0.1: this machine alone.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open it.")] = True,
) -> None:
    """A local page to look at the matches of two images. Ctrl-C ends it."""
    import webbrowser

    from caloric.view import server, session

    recipes.descriptor(descriptor)
    showing = session.Session(most=max_features, chosen={"descriptor": descriptor, "model": model})
    if model not in session.MODELS:
        raise unknown("model", model, session.MODELS)
    for side, path in (("a", image_a), ("b", image_b)):
        if path is not None:
            showing.put(side, session.Picture.of(path.name, path.read_bytes()))

    def ready(address: str) -> None:
        typer.echo(f"{address} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)

    server.serve(showing, host, port, ready)


@app.command()
def info() -> None:
    """Versions, devices and descriptors."""
    typer.echo(f"caloric {__version__}, Python {platform.python_version()}, {platform.machine()}")
    import cv2

    from caloric.gpu import devices

    typer.echo(f"opencv {cv2.__version__}")
    for package in ("numpy", "scipy", "pillow", "matplotlib", "h5py"):
        try:
            typer.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{package} not installed")
    typer.echo(f"devices: cpu ({os.cpu_count()} cores, {threads.count()} threads)")
    typer.echo(f"PyTorch: {devices.about()}")
    typer.echo(f"speed: {native.about()}")
    typer.echo(f"descriptors: {', '.join(recipes.descriptors() + recipes.VARIANTS)}")


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    # Taken out here, so that it may stand anywhere on the line.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(arguments)
    except (InputError, OSError, MemoryError, UnicodeEncodeError) as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        text: object = error
        if isinstance(error, MemoryError):
            text = "not enough memory; try a smaller image"
        elif isinstance(error, UnicodeEncodeError):
            text = "a file's name is not UTF-8 and cannot be written there; rename it"
        typer.echo(f"caloric: {text}", err=True)
        raise SystemExit(2) from None
