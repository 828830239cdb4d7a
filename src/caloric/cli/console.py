"""Output, progress bars and checks of paths, shared by all commands."""

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, TypeVar
from weakref import finalize

import typer
from rich.console import Console

from caloric.errors import InputError
from caloric.runtime.files import check_target, replacing
from caloric.types import Log, Report

if TYPE_CHECKING:
    from rich.progress import TaskID

Number = TypeVar("Number", int, float)
_SECONDS_BETWEEN_LINES = 10
# COLMAP's mapper takes longer for each further image: the time grows with this power of their
# number (between 1.5 and 2 on fountain-P11 and lund).
_UNEVEN, _POWER = "images registered", 1.8
_MIN_UNEVEN = 4  # images before which the remaining time is unknown


def tables() -> Console:
    """Return a console for tables, 160 columns wide unless stdout is a terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def json_file(json_path: str | None) -> Path | None:
    """Return the file of ``--json``; None if it is not given or standard output."""
    return None if json_path in (None, "-") else Path(str(json_path))


def check_outputs(
    json_path: str | None,
    figure: Path | None,
    *others: Path | None,
    inputs: Iterable[str | Path] = (),
) -> None:
    """Raise InputError if an output cannot be written or would overwrite an input."""
    from caloric import viz

    outputs = [path for path in (json_file(json_path), figure, *others) if path is not None]
    for path in outputs:
        check_target(path)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise InputError(f"{outputs[0]}: two outputs have the same path")
    check_inputs(outputs, inputs)
    if figure is not None:
        viz.check_format(figure)


def check_plot(path: Path | None) -> None:
    """Raise InputError if a plot is requested but cannot be drawn."""
    from caloric.viz import plots

    if path is not None:
        plots.new_figure()


def check_inputs(outputs: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Raise InputError if an output would overwrite an input or a file in an input directory.

    A JSON report in the data directory may be overwritten.
    """
    sources = [Path(source) for source in inputs if Path(source).exists()]
    for path in (path for path in outputs if path.exists()):
        for source in sources:
            # samefile also recognizes links, relative paths, and case-insensitive file systems.
            inside = source.is_dir() and path.resolve().is_relative_to(source.resolve())
            is_report = path.suffix == ".json" and path.name != "cameras.json"
            if (inside and not is_report) or path.samefile(source):
                raise InputError(f"{path} is an input and would be overwritten")


def write_text(path: str, text: str) -> None:
    """Write a text to a file atomically, or to stdout if the path is "-"."""
    if path == "-":
        typer.echo(text)
        return
    with replacing(Path(path)) as file:
        file.write(text.encode())


def write_report(path: str, report: Report) -> None:
    """Write the results of a benchmark as indented JSON."""
    write_text(path, json.dumps(report, indent=1) + "\n")


def report_results(json_path: str | None, report: Report, lines: Iterable[str]) -> None:
    """Write the report if ``--json`` is given, and print the lines unless JSON goes to stdout."""
    if json_path is not None:
        write_report(json_path, report)
    if json_path != "-":
        for line in lines:
            typer.echo(line)


def numbers(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    """Parse numbers separated by commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be numbers separated by commas, got {text!r}") from None


def skipped(name: str, reason: str) -> None:
    """Print that an image was skipped, and why."""
    line = reason if reason.startswith(name) else f"{name}: {reason}"
    typer.echo(f"skipped: {line}", err=True)


class _Warnings(logging.Handler):
    """A handler that prints messages to stderr without a prefix."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(record.getMessage(), err=True)


_WARNINGS = _Warnings(logging.WARNING)


def print_warnings() -> None:
    """Print the warnings that the library logs, such as skipped images, to stderr."""
    logging.getLogger("caloric").addHandler(_WARNINGS)


def line_printer() -> Log:
    """Return a function that prints a progress message to stderr."""
    console = Console(stderr=True)
    return lambda message: console.print(f"  {message}", highlight=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Print what is being done to stderr after one second."""
    timer = Timer(1.0, lambda: typer.echo(f"{what} ...", err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Interrupted(BaseException):
    """Raised on Ctrl-C instead of KeyboardInterrupt, which the command parser would catch."""


def raise_on_interrupt() -> None:
    """Make Ctrl-C raise :class:`Interrupted`; a second Ctrl-C kills the process."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise Interrupted

    signal.signal(signal.SIGINT, interrupt)


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """Add to the message of an interruption what is kept."""
    try:
        yield
    except Interrupted as error:
        raise Interrupted(what) from error


class Progress:
    """Progress on stderr: a bar on a terminal, otherwise lines every ten seconds and at the end."""

    def __init__(self) -> None:
        """Start the clock."""
        from rich import progress
        from rich.text import Text

        class Remaining(progress.ProgressColumn):
            def render(self, task: progress.Task) -> Text:
                left = remaining(
                    task.description, task.elapsed or 0.0, int(task.completed), int(task.total or 0)
                )
                return Text("" if left is None else f"{duration(left)} left")

        self._bars = progress.Progress(
            progress.TextColumn("  {task.description}"), progress.BarColumn(),
            progress.MofNCompleteColumn(), Remaining(),
            console=Console(stderr=True),
        )  # fmt: skip
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._created = self._printed = time.monotonic()
        if self._bars.console.is_terminal:
            finalize(self, self._bars.stop)  # restores the cursor after an error

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` items called ``what`` are done."""
        restarted = done < self._done.get(what, 0)  # COLMAP starts another model
        if what not in self._started or restarted:
            # A first report of finished items says that the work began before it.
            began_before = done > 0 and not self._started
            self._started[what] = self._created if began_before else time.monotonic()
        self._done[what] = done
        if not self._bars.console.is_terminal:
            self._print(what, done, total)
            return
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        elif restarted:
            self._bars.reset(self._tasks[what], total=total)
        self._bars.start()
        self._bars.update(self._tasks[what], completed=done, total=total)
        if self._bars.finished:
            self._bars.stop()

    def _print(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._printed < _SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        elapsed = now - self._started[what]
        left = remaining(what, elapsed, done, total)
        end = "" if left is None else f", {duration(left)} left"
        if done and not what.startswith(_UNEVEN):
            rate = done / max(elapsed, 1e-9)
            shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
            end = f", {shown} per second{end if done < total else ', done'}"
        self._bars.console.print(f"  {done:,} of {total:,} {what}{end}", highlight=False)

    def counter(self, what: str, total: int) -> Log:
        """Return a function that reports one more item at each call."""
        done = count(1)
        return lambda _: self(what, next(done), total)


def remaining(what: str, elapsed: float, done: int, total: int) -> float | None:
    """Return the estimated remaining seconds; None if they cannot be estimated yet.

    For images in COLMAP's mapper this is the time until all of them are registered.
    """
    uneven = what.startswith(_UNEVEN)
    if done < (_MIN_UNEVEN if uneven else 1) or done >= total:
        return None if done < total else 0.0
    return float(elapsed * ((total / done) ** (_POWER if uneven else 1.0) - 1))


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
