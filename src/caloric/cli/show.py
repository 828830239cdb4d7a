"""``caloric demo``, ``paper``, ``view`` and ``info``."""

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from caloric import __version__
from caloric.cli import console
from caloric.cli.options import DEFAULTS, Model, WhiteLevel, takes_extract_options
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.image_pair import ViewsChoice
from caloric.options import ExtractOptions
from caloric.runtime import native, threads
from caloric.runtime.files import check_directory, check_input_directory

_REQUIRED = ("numpy", "scipy", "pillow")
# The extras of pyproject.toml for users, with the modules that they install.
EXTRAS = {
    "view": ("starlette", "uvicorn"),
    "collection": ("h5py", "pyarrow", "faiss", "distributed", "fsspec"),
    "gpu": ("torch",),
    "viz": ("matplotlib",),
    "tiff": ("tifffile",),
    "heic": ("pillow_heif",),
    "demo": ("skimage",),
}


def demo(
    out: Annotated[
        Path, typer.Argument(help="Directory to write to; created if it does not exist.")
    ],
) -> None:
    """Write a demo page of matching, alignment and descriptors, from sample images (10 to 20 s)."""
    from caloric.demo import run

    with console.working("matching, aligning and drawing"):
        scores, oblique, page = run(check_directory(out))
    for s in scores:
        typer.echo(f"{s.name:10} {s.correct:5} of {len(s.errors):5} matches correct")
    typer.echo(f"oblique view, 78° from the surface normal: {oblique}")
    typer.echo(f"page: {page}")


def paper(
    out: Annotated[
        Path, typer.Argument(help="Directory to write to; created if it does not exist.")
    ],
) -> None:
    """Reproduce the figures and tables of Mobahi and Soatto's paper (about two minutes)."""
    from caloric.paper.report import write

    directory, line = check_directory(out), console.line_printer()
    line("takes about two minutes on two cores")
    index = write(directory, lambda message: line(f"{message} ..."))
    typer.echo(f"report: {index}")


@takes_extract_options
def view(
    image_a: Annotated[
        str | None,
        typer.Argument(
            help="First image, or a directory with a COLMAP model, such as a store of caloric "
            "collection. If omitted, drop images onto the page."
        ),
    ] = None,
    image_b: Annotated[str | None, typer.Argument(help="Second image.")] = None,
    options: ExtractOptions = DEFAULTS,
    model: Model = "auto",
    views: Annotated[
        ViewsChoice, typer.Option(help="Simulated oblique views, as for caloric match.")
    ] = "auto",
    white_level: WhiteLevel = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 selects a free port.")] = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 127.0.0.1 accepts connections from this machine only."
        ),
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    images: Annotated[
        Path | None,
        typer.Option(help="Image directory of a model; default: that of the collection."),
    ] = None,
    number: Annotated[int, typer.Option(help="Which model of a directory, from 0.")] = 0,
    ply: Annotated[
        Path | None,
        typer.Option(help="Write the points of a model to this PLY file instead of showing it."),
    ] = None,
) -> None:
    """Show the matches between two images, or a model, on a local web page.

    Press Ctrl-C to stop.
    """
    import webbrowser

    from caloric.view import server, session

    def ready(address: str) -> None:
        typer.echo(f"{address} (press Ctrl-C to stop)")
        if browser:
            webbrowser.open(address)

    if image_a is not None and image_b is None and Path(image_a).is_dir():
        _view_model(Path(image_a), number, images, ply, host, port, ready)
        return
    if images is not None or ply is not None or number:
        raise InputError("--images, --number and --ply are for a directory with a model")
    settings = {"descriptor": options.name, "model": model, "views": views}
    shown = session.Session(options=options, initial_settings=settings)
    for side, path in (("a", image_a), ("b", image_b)):
        if path is not None:
            shown.set_image(side, session.LoadedImage.read(path, white_level))

    with suppress(console.Interrupted):  # Ctrl-C is the normal way to stop
        server.serve(shown, host, port, ready)


def _view_model(
    directory: Path,
    number: int,
    images: Path | None,
    ply: Path | None,
    host: str,
    port: int,
    ready: Callable[[str], None],
) -> None:
    """Show a model, or write its points to a PLY file."""
    from caloric.collection import viewing
    from caloric.interop import colmap_model
    from caloric.view import model_server, server

    if images is not None:
        check_input_directory(images)
    shown = viewing.load(directory, number, images)
    if ply is not None:
        colmap_model.write_ply(viewing.models(directory)[number], ply)
        typer.echo(f"written: {ply}")
        return
    with suppress(console.Interrupted):
        server.serve_application(
            lambda hosts: model_server.application(shown, hosts), host, port, ready
        )


def info() -> None:
    """Print versions, the compiled core in use, devices, extras and descriptors."""
    typer.echo(f"caloric {__version__}, Python {platform.python_version()}, {platform.machine()}")
    import cv2

    from caloric.gpu import devices
    from caloric.interop import colmap

    versions = [f"{package} {metadata.version(package)}" for package in _REQUIRED]
    typer.echo(", ".join([f"opencv {cv2.__version__}", *versions]))
    typer.echo(f"implementation: {native.about()}")
    typer.echo(f"devices: cpu ({os.cpu_count()} cores, {threads.count()} threads)")
    typer.echo(f"PyTorch: {devices.about()}")
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        state = f"missing {', '.join(missing)}: pip install 'caloric[{extra}]'"
        typer.echo(f"extra {extra}: {state if missing else 'installed'}")
    version = colmap.version().removeprefix("COLMAP ")
    typer.echo(f"COLMAP: {version or 'missing; models need pycolmap or its executable'}")
    typer.echo(f"descriptors: {', '.join(recipes.descriptors() + recipes.VARIANTS)}")
