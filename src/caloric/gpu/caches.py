"""Caches of tables on a device, which are cleared together.

Recorded graphs are cleared with them, because they refer to the memory of the tables.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 1024  # entries of all caches together
_kept: list[Any] = []


def kept(table: R) -> R:
    """Register a dictionary that is cleared with all others, and return it."""
    _kept.append(table)
    return table


def forget() -> None:
    """Clear all caches."""
    for table in _kept:
        table.clear()


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its results are cached by its positional arguments."""
    results: dict[Any, R] = kept({})

    @wraps(function)
    def cached(*key: P.args, **kwargs: P.kwargs) -> R:
        if key not in results:
            if sum(map(len, _kept)) >= _MOST:
                forget()
            results[key] = function(*key, **kwargs)
        return results[key]

    return cached
