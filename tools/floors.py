"""``make test-oldest``: print constraints with the oldest supported version of each dependency.

The versions are the lower bounds in pyproject.toml: ``numpy>=1.26`` becomes ``numpy==1.26.*``.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from caloric.cli.show import EXTRAS

ROOT = Path(__file__).resolve().parents[1]


def floors() -> Iterator[str]:
    """Yield a constraint for each dependency of the library and of its extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    for requirement in map(Requirement, lines):
        if requirement.name != "caloric":
            (bound,) = requirement.specifier
            if bound.operator != ">=":
                raise SystemExit(f"pyproject.toml: {requirement} has no lower bound of the form >=")
            yield f"{requirement.name}=={bound.version}.*"


if __name__ == "__main__":
    print("\n".join(floors()))
