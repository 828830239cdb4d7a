"""Functions whose keywords are the fields of an options dataclass, documented there."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar

from caloric.errors import check_options

P = ParamSpec("P")
R = TypeVar("R")


def documentation(options: type) -> dict[str, str]:
    """Return the numpydoc entry of each field in the docstrings of a class and its bases."""
    entries: dict[str, str] = {}
    for base in reversed(options.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")
        for entry in re.split(r"\n(?=\S)", section.split("\n\n")[0]):
            name, separator, _ = entry.partition(" : ")
            if separator:
                entries[name] = entry
    return entries


def summary(options: type, name: str) -> str:
    """Return the first sentence of the documentation of a field, without markup."""
    text = " ".join(documentation(options)[name].split("\n")[1:])
    sentence = re.split(r"(?<=\.) (?=[A-Z])", " ".join(text.split()))[0]
    return re.sub(r":\w+:|[`\"]", "", sentence)


def named(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters of a function."""
    listed = inspect.signature(function).parameters.values()
    return [p.name for p in listed if p.kind is not Parameter.VAR_KEYWORD]


def takes(options: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that has ``**options`` so that its help lists the fields of a dataclass.

    The fields that are not parameters of the function replace ``**options`` in the signature and
    in the docstring. Unknown keywords raise InputError, unless the dataclass has a field
    ``parameters``: then the function accepts any keywords and has to check them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        listed = [p for p in signature.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        known = {p.name for p in listed}
        added = [f for f in fields(options) if f.name not in known and f.name != "parameters"]
        open_ended = "parameters" in (f.name for f in fields(options))
        listed += [
            Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in added
        ]
        names = [parameter.name for parameter in listed]
        if open_ended:
            listed.append(Parameter("parameters", Parameter.VAR_KEYWORD, annotation=float))

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not open_ended:
                check_options(kwargs, names)
            return function(*args, **kwargs)

        entries = documentation(options)
        documented = [f.name for f in added] + (["parameters"] if open_ended else [])
        block = "\n".join(entries[name] for name in documented)
        text = inspect.cleandoc(function.__doc__ or "")
        checked.__doc__ = re.sub(
            r"^\*\*options\n(    .*\n)*", lambda _: block + "\n", text, flags=re.M
        )
        checked.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]
        return checked

    return decorate
