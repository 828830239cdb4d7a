"""The command line interface; each module has one group of commands."""

import os
import sys
from threading import Timer
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from caloric import __version__
from caloric.cli import (
    alignment,
    bench,
    collection,
    completion,
    console,
    geometry,
    images,
    merging,
    projects,
    show,
)
from caloric.errors import InputError

_INTERRUPTED = 130  # exit status of shells after Ctrl-C
_PATIENCE = 0.5  # seconds


class _Group(TyperGroup):
    """A group of commands whose help shows no value type after flags."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the group."""
        return completion.announce(_without_flag_types(super().get_params(ctx)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of the group, or None."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_flag_types(command.get_params(ctx))
        return command


def _without_flag_types(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    name="caloric",
    cls=_Group,
    help="Extract and match local image features: SIFT, DSP-SIFT and heat-diffusion descriptors.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for command in (
    images.match, geometry.verify, images.extract, projects.refine, merging.merge, alignment.align,
    alignment.find, show.demo, show.paper, show.view, show.info,
):  # fmt: skip
    app.command()(command)
app.add_typer(collection.app, name="collection", cls=_Group)
app.add_typer(bench.app, name="bench", cls=_Group)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"caloric {__version__}")
        raise typer.Exit


@app.callback()
def _caloric(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line.

    Invalid input prints one line to stderr and exits with status 2; Ctrl-C exits with status 130.
    """
    # --debug is accepted at any position.
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    console.raise_on_interrupt()
    console.print_warnings()
    try:
        code = app(arguments, prog_name="caloric", standalone_mode=False)
        raise SystemExit(code if isinstance(code, int) else 0)
    except console.Interrupted as error:
        typer.echo(f"caloric: interrupted{f'; {error}' if str(error) else ''}", err=True)
        # Give running threads a moment to end.
        deadline = Timer(_PATIENCE, os._exit, (_INTERRUPTED,))
        deadline.daemon = True
        deadline.start()
        raise SystemExit(_INTERRUPTED) from None
    except (InputError, OSError, MemoryError, UnicodeEncodeError) as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        text: object = error
        if isinstance(error, MemoryError):
            text = "out of memory; try a smaller image"
        elif isinstance(error, UnicodeEncodeError):
            text = "a file name is not valid UTF-8; rename the file"
        typer.echo(f"caloric: {text}", err=True)
        raise SystemExit(2) from None
    except Exception as error:
        # The classes of usage errors depend on the version of Typer.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message().replace("Value error, ", "")
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        typer.echo(message if is_help else f"caloric: {message}", err=True)
        raise SystemExit(2) from None
