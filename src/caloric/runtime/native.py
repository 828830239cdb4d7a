"""The optional compiled core: the same formulas and tables, faster.

``CALORIC_NATIVE=0`` turns it off; ``avx512``, ``avx2``, ``neon`` or ``portable`` chooses one of its
builds. NumPy code computes the same without it; docs/platforms.md lists the differences.
"""

import os
from functools import cache
from typing import Any

from caloric.errors import InputError

SETTING = "CALORIC_NATIVE"
VERSION = 8


@cache
def core() -> Any:
    """Return the module ``caloric_native``, or None if it is missing, outdated or turned off."""
    wanted = os.environ.get(SETTING, "")
    if wanted == "0":
        return None
    try:
        import caloric_native
    except ImportError:
        return None
    if caloric_native.VERSION != VERSION:
        return None
    if wanted not in ("", "1"):
        if wanted not in caloric_native.kinds():
            known = ", ".join(("0", *caloric_native.kinds()))
            raise InputError(f"{SETTING} must be one of {known} here, got {wanted!r}")
        caloric_native.use(wanted)
    return caloric_native


def about() -> str:
    """Return a description of the build or path in use."""
    if core() is not None:
        return f"compiled core ({core().kind()})"
    if os.environ.get(SETTING) == "0":
        return f"plain path ({SETTING}=0)"
    return "plain path (no compiled core of this version; from a clone: pip install ./native .)"
