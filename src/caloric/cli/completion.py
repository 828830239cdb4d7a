"""``--install-completion``, which reports the files that it changes before it changes them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

# What Typer writes for each shell.
_CHANGES = {
    "bash": "writes ~/.bash_completions/caloric.sh and adds a line to ~/.bashrc that loads it",
    "zsh": "writes ~/.zfunc/_caloric and adds lines to ~/.zshrc that load it",
    "fish": "writes ~/.config/fish/completions/caloric.fish",
    "powershell": "adds lines to your PowerShell profile and allows scripts for your account",
}
_CHANGES["pwsh"] = _CHANGES["powershell"]


@dataclass(frozen=True)
class _Announced:
    """A callback of ``--install-completion`` that first reports what will be changed."""

    install: Callable[[Any, Any, Any], Any]

    def __call__(self, context: Any, parameter: Any, value: Any) -> Any:
        """Report the changes, ask on a terminal, and install."""
        shell = (
            str(getattr(value, "value", value)) if value not in (None, True, False) else _shell()
        )
        if value and not context.resilient_parsing and shell in _CHANGES:
            typer.echo(f"Completion for {shell} {_CHANGES[shell]}.")
            if sys.stdin.isatty() and not typer.confirm("Continue?", default=True):
                raise typer.Exit(1)
        return self.install(context, parameter, value)


def _shell() -> str:
    """Return the name of the current shell; "" if it is unknown."""
    from shellingham import ShellDetectionFailure, detect_shell

    try:
        return str(detect_shell()[0])
    except (ShellDetectionFailure, NotImplementedError):
        return ""


def announce(parameters: Any) -> Any:
    """Return the parameters of the command, with a callback that reports changed files."""
    for parameter in parameters:
        if parameter.name == "install_completion" and not isinstance(
            parameter.callback, _Announced
        ):
            parameter.callback = _Announced(parameter.callback)
    return parameters
