"""Callbacks and durations of steps."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from caloric.collection.steps import Progress, no_progress
from caloric.errors import InputError
from caloric.runtime.files import replacing

_log = logging.getLogger(__name__)
R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True)
class Reporter:
    """Callbacks of a step.

    Parameters
    ----------
    progress : callable
        Called with the name of what is counted, the number done, and the total.
    working : callable
        Called with a description of the work; returns a context manager in which it runs.
    finished : callable
        Called with the result of each step.
    """

    progress: Progress = no_progress
    working: Callable[[str], AbstractContextManager[Any]] = nullcontext
    finished: Callable[[Any], None] = lambda result: None

    def step(self, what: str, function: Callable[[], R]) -> R:
        """Run a step, log its skipped images, and return its result."""
        with self.working(what):
            result = function()
        for name, why in getattr(result, "skipped", {}).items():
            _log.warning("skipped: %s", why if why.startswith(name) else f"{name}: {why}")
        self.finished(result)
        return result


class Times:
    """Measures the durations of steps.

    Parameters
    ----------
    earlier : mapping
        The durations of an earlier run, by step.
    state : callable
        Returns the names of all results; a step that changes nothing does not change them.
    unfinished : Path
        The file in which durations are kept until :meth:`finish`. Those of runs that were
        interrupted are added to those of this run.
    """

    def __init__(
        self, earlier: Mapping[str, float], state: Callable[[], Sequence[str]], unfinished: Path
    ) -> None:
        """Start with the durations of runs that were interrupted."""
        self.seconds: dict[str, float] = {}
        self._earlier, self._state, self._unfinished = earlier, state, unfinished
        self._before = _durations(unfinished)

    def __call__(self, name: str, step: Callable[P, R]) -> Callable[P, R]:
        """Return a function that runs a step and adds its duration."""

        def timed(*arguments: P.args, **options: P.kwargs) -> R:
            start = time.monotonic()
            try:
                return step(*arguments, **options)
            finally:
                spent = self._before.get(name, 0.0) + time.monotonic() - start
                self.seconds[name] = round(spent, 2)
                self._write()

        return timed

    def _write(self) -> None:
        if not self._state():  # nothing is kept
            return
        # If the disk is full, the error of the step says so.
        with suppress(OSError, InputError), replacing(self._unfinished) as file:
            file.write(json.dumps(self._before | self.seconds).encode())

    def resumed(self, name: str, step: Callable[P, R]) -> Callable[P, R]:
        """Return the same for a step that keeps its earlier duration if it changes nothing."""
        timed = self(name, step)

        def run(*arguments: P.args, **options: P.kwargs) -> R:
            before = self._state()
            result = timed(*arguments, **options)
            is_kept = name in self._earlier and name not in self._before
            if is_kept and self._state() == before:
                self.seconds[name] = self._earlier[name]
            return result

        return run

    def keep(self) -> None:
        """Add the earlier durations of the steps that were not run."""
        self.seconds = {**self._earlier, **self.seconds}

    def finish(self) -> None:
        """Remove the file, after the durations were written to the report."""
        self._unfinished.unlink(missing_ok=True)


def _durations(path: Path) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
