"""The command line: one file for each group of commands."""

import os
import sys
from threading import Timer
from typing import Annotated

import typer

from caloric import __version__
from caloric.cli import alignment, bench, collection, console, images, projects, show
from caloric.errors import InputError

_INTERRUPTED = 130  # the exit code by which shells report Ctrl-C
_PATIENCE = 0.5  # seconds

app = typer.Typer(
    name="caloric",
    help="Match images by heat diffusion: SIFT, DSP-SIFT and newer descriptors from one theory.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for command in (
    images.match, images.extract, projects.refine, alignment.align, alignment.find,
    show.demo, show.paper, show.view, show.info,
):  # fmt: skip
    app.command()(command)
app.add_typer(collection.app, name="collection")
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
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


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2, Ctrl-C 130."""
    # Removed here, so that --debug is accepted at any position.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    console.raise_on_interrupt()
    try:
        code = app(arguments, standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else 0)
    except console.Interrupted as error:
        typer.echo(f"caloric: interrupted{f'; {error}' if str(error) else ''}", err=True)
        # Threads that still compute are given a moment to end.
        deadline = Timer(_PATIENCE, os._exit, (_INTERRUPTED,))
        deadline.daemon = True
        deadline.start()
        raise SystemExit(_INTERRUPTED) from None
    except (InputError, OSError, MemoryError, UnicodeEncodeError) as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        text: object = error
        if isinstance(error, MemoryError):
            text = "not enough memory; try a smaller image"
        elif isinstance(error, UnicodeEncodeError):
            text = "a file name is not UTF-8 and cannot be written; rename the file"
        typer.echo(f"caloric: {text}", err=True)
        raise SystemExit(2) from None
    except Exception as error:
        # Usage errors are of classes that depend on the version of Typer.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message().replace("Value error, ", "")
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        typer.echo(message if is_help else f"caloric: {message}", err=True)
        raise SystemExit(2) from None
