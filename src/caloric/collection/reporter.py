"""Callbacks and durations of steps."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from caloric.collection.steps import Progress, no_progress

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
        Returns a value that is the same before and after a step that changes nothing.
    """

    def __init__(self, earlier: Mapping[str, float], state: Callable[[], object]) -> None:
        """Start without durations."""
        self.seconds: dict[str, float] = {}
        self._earlier, self._state = earlier, state

    def __call__(self, name: str, step: Callable[P, R]) -> Callable[P, R]:
        """Return a function that runs a step and adds its duration."""

        def timed(*arguments: P.args, **options: P.kwargs) -> R:
            start = time.monotonic()
            result = step(*arguments, **options)
            self.seconds[name] = round(time.monotonic() - start, 2)
            return result

        return timed

    def resumed(self, name: str, step: Callable[P, R]) -> Callable[P, R]:
        """Return the same for a step that keeps its earlier duration if it changes nothing."""
        timed = self(name, step)

        def run(*arguments: P.args, **options: P.kwargs) -> R:
            before = self._state()
            result = timed(*arguments, **options)
            if name in self._earlier and self._state() == before:
                self.seconds[name] = self._earlier[name]
            return result

        return run

    def keep(self) -> None:
        """Add the earlier durations of the steps that were not run."""
        self.seconds = {**self._earlier, **self.seconds}
