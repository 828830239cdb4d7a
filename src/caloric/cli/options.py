"""Options shared by several commands."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from caloric.detector.options import DetectOptions
from caloric.options import ExtractOptions
from caloric.runtime import keywords
from caloric.types import UncalibratedChoice

DEFAULTS = ExtractOptions()
DescriptorName = Annotated[
    str, typer.Option("--descriptor", help=keywords.summary(ExtractOptions, "descriptor"))
]
Device = Annotated[
    str,
    typer.Option(
        help="Device: cpu, cuda, cuda:1, torch:cpu (PyTorch on the CPU), or auto (a GPU if "
        "available)."
    ),
]
Model = Annotated[
    UncalibratedChoice,
    typer.Option(
        help="Geometric model; auto chooses between homography and fundamental from the matches."
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(help="Maximum residual of an inlier, in pixels. Default: from the noise."),
]
WhiteLevel = Annotated[
    float | None,
    typer.Option(
        help="The pixel value of white, such as 4095 for 12-bit data in 16-bit files; by default "
        "the maximum of the file's type."
    ),
]
Figure = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write a figure of the result to this file.")
]
Json = Annotated[
    str | None,
    typer.Option("--json", help="Write the result as JSON to this file (- for standard output)."),
]


def takes_extract_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that has a parameter ``options``, an :class:`ExtractOptions`.

    The command line has ``--descriptor`` and an option for each field of :class:`DetectOptions`
    instead, documented by their docstrings. Invalid values raise InputError before the command
    runs.
    """
    signature = inspect.signature(command)
    exposed = [f for f in fields(ExtractOptions) if f.name == "descriptor"]
    exposed += fields(DetectOptions)

    def option(name: str) -> Any:
        flag = "--" + name.replace("_", "-")
        return typer.Option(flag, help=keywords.summary(ExtractOptions, name))

    types = {field.name: field.type for field in exposed} | {"descriptor": str}
    listed = {
        f.name: Parameter(
            f.name,
            Parameter.KEYWORD_ONLY,
            default=f.default,
            annotation=Annotated[types[f.name], option(f.name)],
        )
        for f in exposed
    }
    parameters = list(signature.parameters.values())
    index = list(signature.parameters).index("options")
    parameters[index : index + 1] = listed.values()
    keyword_only = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]

    def run(**arguments: Any) -> None:
        options = ExtractOptions(**{name: arguments.pop(name) for name in listed})
        command(**arguments, options=options)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in keyword_only}
    return run
