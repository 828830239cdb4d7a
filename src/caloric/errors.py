"""InputError, the error for invalid input, and Failure, its counterpart for one of many images."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


class InputError(ValueError):
    """Invalid input; the message says what is invalid and how to fix it."""


@dataclass(frozen=True)
class Failure:
    """The reason why one of many images has no result."""

    reason: str


def unknown(what: str, value: object, known: Iterable[str]) -> InputError:
    """Return an error about an unknown name that lists the known ones and suggests the nearest."""
    names = list(known)
    similar = get_close_matches(str(value), names, 1)
    suggestion = f"; did you mean {similar[0]!r}?" if similar else ";"
    return InputError(f"unknown {what} {value!r}{suggestion} choose from {', '.join(names)}")


def check_bool(name: str, value: object) -> None:
    """Raise InputError unless an option is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {value!r}")


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError for the first unknown option, with the nearest known one."""
    names = list(known)
    for name in given:
        if name not in names:
            raise unknown("option", name, names)


def known_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that a mistyped keyword raises InputError with a suggestion."""
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check_options(kwargs, names)
        return function(*args, **kwargs)

    return checked
