"""Printing, progress and the checks of output files that all commands share."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

import typer
from rich.console import Console

from caloric.errors import InputError
from caloric.runtime.files import check_target, replacing

Number = TypeVar("Number", int, float)


def tables() -> Console:
    """Return a console for tables, which are not broken to 80 columns where output is a file."""
    return Console(width=None if sys.stdout.isatty() else 160)


def json_file(json_path: str | None) -> Path | None:
    """Return the file that --json names, or None if it names none or standard output."""
    return None if json_path in (None, "-") else Path(str(json_path))


def check_outputs(
    json_path: str | None,
    picture: Path | None,
    *others: Path | None,
    inputs: Iterable[str | Path] = (),
) -> None:
    """Raise an error, before the work, if an output cannot be written or would replace an input."""
    from caloric import viz

    outputs = [path for path in (json_file(json_path), picture, *others) if path is not None]
    for path in outputs:
        check_target(path)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise InputError(f"{outputs[0]}: two results would be written to one file")
    check_inputs(outputs, inputs)
    if picture is not None:
        viz.check_format(picture)


def check_inputs(outputs: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Raise an error if an output is an input, or a file of a data set that is one.

    A report of an earlier run may lie beside the data.
    """
    sources = [Path(source) for source in inputs if Path(source).exists()]
    for path in (path for path in outputs if path.exists()):
        for source in sources:
            # Also by another name: a link, a relative path, other letters where case is ignored.
            inside = source.is_dir() and path.resolve().is_relative_to(source.resolve())
            ours = path.suffix == ".json" and path.name != "cameras.json"
            if (inside and not ours) or path.samefile(source):
                raise InputError(f"{path}: that is an input, and would be overwritten")


def folder(path: Path) -> Path:
    """Return a folder to write to; raise an error if it is a file or has no name."""
    if path == Path():
        raise InputError("name a folder to write to")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} exists and is not a folder; name another")
    return path


def write_text(path: str, text: str) -> None:
    """Write a text to a file as a whole, or print it if the path is "-"."""
    if path == "-":
        typer.echo(text)
        return
    with replacing(Path(path)) as file:
        file.write(text.encode())


def write_report(path: str, report: dict[str, Any]) -> None:
    """Write the figures of a benchmark as indented JSON."""
    write_text(path, json.dumps(report, indent=1) + "\n")


def numbers(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    """Parse numbers separated by commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be numbers separated by commas, got {text!r}") from None


def skipped(name: str, reason: str) -> None:
    """Report an image that could not be used, with its name once."""
    line = reason if reason.startswith(name) else f"{name}: {reason}"
    typer.echo(f"skipped: {line}", err=True)


def progress_lines() -> Callable[[str], None]:
    """Return a function that prints a line to stderr while a benchmark is running."""
    console = Console(stderr=True)
    return lambda message: console.print(f"  {message}", highlight=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Print what is being done to stderr if it takes longer than a second."""
    timer = Timer(1.0, lambda: typer.echo(f"{what} ...", err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Interrupted(BaseException):
    """Ctrl-C was pressed. Unlike KeyboardInterrupt it passes through the command parser."""


def raise_on_interrupt() -> None:
    """Make Ctrl-C raise :class:`Interrupted`; a second one ends the process at once."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise Interrupted

    signal.signal(signal.SIGINT, interrupt)


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """Say what is kept if the work is interrupted."""
    try:
        yield
    except Interrupted as error:
        raise Interrupted(what) from error


class Progress:
    """Print how many items are done, the rate and the time left.

    On a terminal that is one line that is rewritten, elsewhere a line every ten seconds.
    """

    def __init__(self) -> None:
        """Start the clock."""
        self.console = Console(stderr=True)
        self.started = self.printed = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` items called ``what`` are done."""
        now = time.monotonic()
        if not self.console.is_terminal and done < total and now - self.printed < 10:
            return
        self.printed = now
        rate = done / max(now - self.started, 1e-9)
        left = duration((total - done) / rate) + " left" if done < total else ""
        line = f"  {done:,} of {total:,} {what}, {rate:.3g} a second  {left or 'done'}"
        ends = "\n" if not self.console.is_terminal or done >= total else "\r"
        self.console.print(f"{line:<70}", highlight=False, end=ends)


def duration(seconds: float) -> str:
    """Format a duration in the unit that fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
