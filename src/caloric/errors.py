"""The one error that means: the input was wrong, not the program."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """What a caller passed cannot be used; the message says what is wrong and what to do."""


def unknown(what: str, value: object, known: Iterable[str]) -> InputError:
    """Of a name that is none of those known: which there are, and which may have been meant."""
    names = list(known)
    near = get_close_matches(str(value), names, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ";"
    return InputError(f"unknown {what} {value!r}{meant} known are {', '.join(names)}")
