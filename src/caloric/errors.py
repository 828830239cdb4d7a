"""InputError, the error for wrong input, and Failure, its form in a run over many images."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class InputError(ValueError):
    """What a caller passed cannot be used; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Failure:
    """The reason why one image among many gave no result."""

    reason: str


def unknown(what: str, value: object, known: Iterable[str]) -> InputError:
    """Return an error about an unknown name: which names there are, and which may be meant."""
    names = list(known)
    near = get_close_matches(str(value), names, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ";"
    return InputError(f"unknown {what} {value!r}{meant} known are {', '.join(names)}")


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError for the first option that is not known; it suggests the nearest name."""
    names = list(known)
    for name in given:
        if name not in names:
            raise unknown("option", name, names)


def known_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that a mistyped option is an error that names the right one."""
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check_options(kwargs, names)
        return function(*args, **kwargs)

    return checked
