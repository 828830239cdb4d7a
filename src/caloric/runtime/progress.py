"""Progress of long computations, for a caller that displays it or cancels them.

A long function calls :func:`report` when a step starts, and :func:`check` between smaller steps.
Both do nothing unless the caller is inside :func:`observed`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Observer = Callable[[str], None]
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


class CancellationError(Exception):
    """Raised by an observer to stop a computation."""


@contextmanager
def observed(observer: Observer | None) -> Iterator[None]:
    """Call ``observer`` with the name of each step, and with "" at each check.

    It is called on any thread, and may raise :class:`CancellationError`.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def report(step: str) -> None:
    """Pass the name of the step that starts now to the observer."""
    observer = _observer.get()
    if observer is not None:
        observer(step)


def check() -> None:
    """Let the observer cancel the computation."""
    report("")


def inherited(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that keeps the caller's observer on other threads."""
    observer = _observer.get()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with observed(observer):
            return function(*args, **kwargs)

    return function if observer is None else run
