"""Tables on a device, made once; all are forgotten together.

With them go the recordings that were made with them, which read a table where it was.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 1024  # of all kinds together
_kept: list[Any] = []


def kept(table: R) -> R:
    """A dictionary that is emptied with all others."""
    _kept.append(table)
    return table


def forget() -> None:
    """All of them."""
    for table in _kept:
        table.clear()


def once(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which is asked once for each of its arguments, given by position."""
    made: dict[Any, R] = kept({})

    @wraps(function)
    def asked(*key: P.args, **none: P.kwargs) -> R:
        if key not in made:
            if sum(map(len, _kept)) >= _MOST:
                forget()
            made[key] = function(*key, **none)
        return made[key]

    return asked
