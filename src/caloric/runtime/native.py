"""The optional compiled core, which evaluates the same formulas and tables faster.

``CALORIC_NATIVE=0`` disables it; ``avx512``, ``avx2``, ``neon`` or ``portable`` selects one of its
builds. Without it, NumPy is used; docs/platforms.md lists the differences.
"""

import os
from functools import cache
from typing import Any

from caloric.errors import InputError

SETTING = "CALORIC_NATIVE"
VERSION = 8


@cache
def core() -> Any:
    """Return the module ``caloric_native``, or None if it is missing, outdated or disabled."""
    setting = os.environ.get(SETTING, "")
    if setting == "0":
        return None
    try:
        import caloric_native
    except ImportError:
        return None
    if caloric_native.VERSION != VERSION:
        return None
    if setting not in ("", "1"):
        if setting not in caloric_native.kinds():
            known = ", ".join(("0", *caloric_native.kinds()))
            raise InputError(f"{SETTING} must be one of {known} on this machine, got {setting!r}")
        caloric_native.use(setting)
    return caloric_native


def about() -> str:
    """Return a description of the implementation in use."""
    if core() is not None:
        return f"compiled core ({core().kind()})"
    if os.environ.get(SETTING) == "0":
        return f"NumPy ({SETTING}=0)"
    return "NumPy (no compiled core of this version; from a clone: pip install ./native .)"
