"""The command line: ``caloric paper``, ``caloric info``."""

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from caloric import __version__
from caloric.errors import InputError
from caloric.recipes import descriptors

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


@app.command()
def paper(
    out: Annotated[Path, typer.Argument(help="Folder to write to; made if it is not there.")],
) -> None:
    """Regenerate every figure and table of the paper, with a report."""
    from caloric.paper.report import write

    if out == Path():
        raise InputError("name a folder to write to")
    console = Console(stderr=True)
    index = write(out, lambda message: console.print(f"  {message} ...", highlight=False))
    typer.echo(f"the paper, regenerated: {index}")
    typer.echo(f"one picture of it:      {out / 'diffused.png'}")


@app.command()
def info() -> None:
    """Versions and descriptors."""
    typer.echo(f"caloric {__version__}, Python {platform.python_version()}, {platform.machine()}")
    for package in ("numpy", "scipy", "matplotlib"):
        try:
            typer.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{package} not installed")
    typer.echo(f"descriptors: {', '.join(descriptors())}")


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    # Taken out here, so that it may stand anywhere on the line.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(arguments)
    except (InputError, OSError) as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        typer.echo(f"caloric: {error}", err=True)
        raise SystemExit(2) from None
