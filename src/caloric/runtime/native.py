"""The optional compiled core, which evaluates the same formulas and tables faster.

``CALORIC_NATIVE=0`` disables it; ``amx``, ``avx512-vnni``, ``avx512``, ``avx-vnni``, ``avx2``,
``neon-dotprod``, ``neon`` or ``portable`` selects one of its builds, if the processor can run it.
Without it, NumPy is used; docs/platforms.md lists the differences.
"""

import logging
import multiprocessing
import os
import threading
from functools import cache
from typing import Any

from caloric.errors import InputError

SETTING = "CALORIC_NATIVE"
VERSION = 18
INSTALL = "pip install --force-reinstall --no-deps ."
_COMPILER = "Clang for Visual Studio" if os.name == "nt" else "a C++ compiler"
_log = logging.getLogger(__name__)
_warning = threading.Lock()  # threads that extract may load the core at the same time


@cache
def core() -> Any:
    """Return the module ``caloric_native``, or None if it is missing, outdated or disabled.

    A core that is missing or outdated is logged as a warning, once per program.
    """
    module, problem = _load()
    if problem and multiprocessing.parent_process() is None:
        with _warning:
            _warn(problem)
    return module


def about() -> str:
    """Return a description of the implementation in use."""
    module, problem = _load()
    if module is not None:
        return f"compiled core ({module.kind()})"
    return f"NumPy (no compiled core: {problem})" if problem else f"NumPy ({SETTING}=0)"


def _load() -> tuple[Any, str]:
    """Return the module, or None, and why a core that is not disabled cannot be used."""
    setting = os.environ.get(SETTING, "")
    if setting == "0":
        return None, ""
    try:
        import caloric_native
    except ModuleNotFoundError:
        return None, "it was not compiled when Caloric was installed"
    except ImportError as error:
        return None, str(error)
    if caloric_native.VERSION != VERSION:
        return None, f"it has interface {caloric_native.VERSION} instead of {VERSION}"
    if setting not in ("", "1"):
        if setting not in caloric_native.kinds():
            known = ", ".join(("0", *caloric_native.kinds()))
            raise InputError(f"{SETTING} must be one of {known} on this machine, got {setting!r}")
        caloric_native.use(setting)
    return caloric_native, ""


@cache
def _warn(problem: str) -> None:
    _log.warning(
        "Caloric runs without its compiled core, which makes it two to three times slower: %s. "
        "Install %s, then run %s in a clone of Caloric. %s=0 hides this message.",
        problem, _COMPILER, INSTALL, SETTING,
    )  # fmt: skip
