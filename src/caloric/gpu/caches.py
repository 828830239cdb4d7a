"""Caches of tables on a device, which are cleared together.

Recorded graphs are cleared as well, because they read the memory of the tables.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MAX_ENTRIES = 1024  # of all caches together
_caches: list[Any] = []


def register(cache: R) -> R:
    """Add a dictionary to the caches that are cleared together, and return it."""
    _caches.append(cache)
    return cache


def clear() -> None:
    """Clear all caches."""
    for cache in _caches:
        cache.clear()


def cached(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its results are cached by its positional arguments."""
    results: dict[Any, R] = register({})

    @wraps(function)
    def wrapper(*key: P.args, **kwargs: P.kwargs) -> R:
        if key not in results:
            if sum(map(len, _caches)) >= _MAX_ENTRIES:
                clear()
            results[key] = function(*key, **kwargs)
        return results[key]

    return wrapper
