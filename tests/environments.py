"""Virtual environments with the packages of an install line of the documents, and no others."""

import shlex
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from paths import ROOT

PROGRAMS = Path(sys.executable).parent.name
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def wheel(directory):
    """Build a wheel of the source tree in a directory, and return its path."""
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", directory, ROOT], check=True)
    (path,) = directory.glob("caloric-*.whl")
    return path


def empty(directory, line, wheel):
    """Run an install line in an empty environment, and return the directory of its programs."""
    venv.create(directory)
    return _install(directory, line, wheel)


def subset(directory, line, wheel):
    """Do the same as ``empty`` in seconds, with links to the packages of this environment.

    pip then installs only the wheel, and fails if a requirement is not satisfied.
    """
    venv.create(directory)
    target = _site(directory)
    requirements = [Requirement(_named(word)) for word in shlex.split(line)[2:]]
    for name in _closure(requirements, wheel):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (target / top).exists():
                (target / top).symlink_to(distribution.locate_file(top))
    return _install(directory, line, wheel, "--no-index")


def _named(word):
    return word.replace(".", "caloric", 1) if word.startswith(".") else word


def _closure(requirements, wheel):
    """Return the installed packages that requirements need, other than caloric, the wheel."""
    (caloric,) = metadata.distributions(name="caloric", path=[str(wheel)])
    names, extras = set(), set()
    while requirements:
        requirement = requirements.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in extras:
                continue
            extras.add((requirement.name, extra))
            name = requirement.name
            distribution = caloric if name == "caloric" else metadata.distribution(name)
            needed = map(Requirement, distribution.requires or ())
            environment = {"extra": extra}
            requirements += [n for n in needed if not n.marker or n.marker.evaluate(environment)]
        names.add(requirement.name)
    return names - {"caloric"}


def _site(directory):
    (site,) = (directory / "lib").glob("python*/site-packages")
    return site


def _install(directory, line, wheel, *options):
    programs = directory / PROGRAMS
    words = [_named(word).replace("caloric", str(wheel), 1) for word in shlex.split(line)[2:]]
    command = [*PIP, "--python", programs / "python", "install", "-c", ROOT / "constraints.txt"]
    subprocess.run([*command, *options, *words], check=True)
    return programs
