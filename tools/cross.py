"""``make cross``: build a wheel for the other platform, install it and test it under emulation.

On x86-64 the other platform is aarch64, and vice versa. Debian packages provide the compiler, the
emulator and the other platform's Python, which is unpacked below ``.cross`` with the packages it
needs; it is not installed. Requires Debian 12, or another release with Python 3.11.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("python3.11", "libpython3.11-dev", "libstdc++6")
QUIET = ("--quiet", "--disable-pip-version-check")
EXTRAS = "[view,collection,demo,tiff,test]"
# The code of the README, and tests that depend on the processor, mostly for the fastest build; all
# tests would take hours.
TESTS = (
    "tests/test_snippets.py",
    "tests/runtime/test_native.py",
    "tests/test_golden.py",
    "tests/image/test_tiles.py",
    "tests/image/test_views.py",
    "tests/matching/test_agreement.py",
    "tests/matching/test_estimation.py",
    "tests/matching/test_points.py",
    "tests/matching/test_propagation.py",
    "tests/runtime/test_indexing.py",
    "tests/paper/test_errata.py",
)
# Without collections: qemu 7.2 aborts processes that were forked from one with threads when they
# start a thread.
SELECTION = (
    "(of_the_readme and not OUT) or test_errata or test_views or test_agreement"
    " or test_estimation or test_points or test_propagation or test_indexing"
    " or (test_tiles and make_no_difference and not affine and not detector)"
    " or (test_native and (blur or enlarging or extrema or processor or matching or rejected))"
    " or ({kind} and ((golden and not test_kernels) or whole_pipeline"
    " or (test_descriptors and caloric and not 32)))"
)


@dataclass(frozen=True)
class Target:
    """A platform: its names for wheels, Debian and compilers, and the build that the core uses."""

    machine: str
    debian: str
    triple: str
    emulator: tuple[str, ...]
    kind: str
    environment: str = ""  # lines of a shell script

    @property
    def directory(self) -> Path:
        """The directory for all files of this platform."""
        return ROOT / ".cross" / self.machine


TARGETS = {
    "aarch64": Target("aarch64", "arm64", "aarch64-linux-gnu", ("qemu-aarch64",), "neon"),
    "x86_64": Target(
        "x86_64",
        "amd64",
        "x86_64-linux-gnu",
        ("qemu-x86_64", "-cpu", "max"),
        "avx2",
        # qemu 7.2 executes the AVX2 code of NumPy's argsort incorrectly.
        "export NPY_DISABLE_CPU_FEATURES=X86_V3\n",
    ),
}


def run(*command: str | Path, **environment: str) -> None:
    """Run a command; exit with its exit code if it fails."""
    result = subprocess.run(
        [str(part) for part in command], env={**os.environ, **environment}, check=False, cwd=ROOT
    )
    if result.returncode:
        sys.exit(result.returncode)


def other() -> Target:
    """Return the other platform."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    if sys.platform != "linux" or machine not in TARGETS:
        sys.exit(
            f"make cross needs Linux on x86-64 or aarch64; this is {sys.platform} on {machine}"
        )
    return TARGETS["aarch64" if machine == "x86_64" else "x86_64"]


def check(target: Target) -> None:
    """Exit with a message if the compiler, the emulator or apt is missing."""
    needed = {
        f"{target.triple}-g++": f"g++-{target.triple.replace('_', '-')}",
        target.emulator[0]: "qemu-user",
        "apt-get": "apt",
        "dpkg-deb": "dpkg",
    }
    missing = [package for command, package in needed.items() if shutil.which(command) is None]
    if missing:
        sys.exit(f"make cross needs Debian packages: apt-get install {' '.join(missing)}")


def unpack(target: Target) -> Path:
    """Return a root directory with the other platform's Python and its libraries."""
    root = target.directory / "root"
    if (root / "done").exists():
        return root
    apt = target.directory / "apt"
    for directory in ("state/lists/partial", "cache/archives/partial"):
        (apt / directory).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    options = [
        f"APT::Architecture={target.debian}", f"APT::Architectures::={target.debian}",
        f"Dir::State={apt / 'state'}", f"Dir::State::status={apt / 'status'}",
        f"Dir::Cache={apt / 'cache'}", "Debug::NoLocking=1",
    ]  # fmt: skip
    words = [word for option in options for word in ("-o", option)]
    run("apt-get", "-q", *words, "update")
    run(
        "apt-get", "-q", *words, "install", "--yes", "--no-install-recommends", "--download-only",
        *PACKAGES,
    )  # fmt: skip
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "--extract", package, root)
    # The emulator would resolve absolute links, such as that of the amd64 loader, outside the root.
    for link in (path for path in root.rglob("*") if path.is_symlink()):
        target_path = os.readlink(link)
        if target_path.startswith("/"):
            link.unlink()
            link.symlink_to(os.path.relpath(root / target_path[1:], link.parent))
    # Compiling modules under emulation would take longer than most tests.
    run(sys.executable, "-m", "compileall", "-qq", root / "usr" / "lib" / "python3.11")
    (root / "done").touch()
    return root


def build(target: Target, root: Path) -> Path:
    """Return a wheel for the other platform."""
    directory = target.directory / "wheel"
    shutil.rmtree(directory, ignore_errors=True)
    include = root / "usr" / "include"
    settings = {
        "build-dir": target.directory / "native",
        "cmake.define.CMAKE_SYSTEM_NAME": "Linux",
        "cmake.define.CMAKE_SYSTEM_PROCESSOR": target.machine,
        "cmake.define.CMAKE_CXX_COMPILER": f"{target.triple}-g++",
        "cmake.define.CMAKE_CXX_FLAGS": f"-isystem {include} -isystem {include / target.triple}",
        "cmake.define.Python_INCLUDE_DIR": include / "python3.11",
        "cmake.define.NB_SUFFIX": ".so",
    }
    run(
        sys.executable, "-m", "pip", "wheel", *QUIET, "--no-deps", "-w", directory,
        *(f"--config-settings={name}={value}" for name, value in settings.items()), ROOT,
        CALORIC_NATIVE="1", _PYTHON_HOST_PLATFORM=f"linux-{target.machine}",
    )  # fmt: skip
    (wheel,) = directory.glob("*.whl")
    return wheel


def python(target: Target, root: Path) -> Path:
    """Return a shell script that runs the other platform's Python; ``caloric`` is next to it."""
    programs = target.directory / "bin"
    programs.mkdir(exist_ok=True)
    packages = target.directory / "packages"
    # Python starts worker processes with the same command, because its name is that of the script.
    words = [*target.emulator, "-0", programs / "python", "-L", root]
    words.append(root / "usr" / "bin" / "python3.11")
    scripts = {
        "python": f'export PYTHONPATH="{packages}" PYTHONDONTWRITEBYTECODE=1\n'
        f'export PYTHONHOME="{root / "usr"}"\n'
        # qemu on Arm does not preserve the memory order of x86: with threads NumPy crashes.
        "export CALORIC_THREADS=1\n"
        f'{target.environment}exec {" ".join(map(str, words))} "$@"\n',
        "caloric": f'exec {programs / "python"} {packages / "bin" / "caloric"} "$@"\n',
    }
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    return programs / "python"


# Options of pip select wheels of another platform, but markers are evaluated for this one.
PIP = """
import platform, runpy, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
runpy.run_module("pip", run_name="__main__")
"""


def install(target: Target, wheel: Path) -> None:
    """Install the wheel with its dependencies; those that are installed are kept."""
    packages = target.directory / "packages"
    tags = ["linux", "manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 27, 28, 31, 34))]
    pip: list[str | Path] = [
        sys.executable, "-c", PIP, target.machine, "install", *QUIET, "--target", packages,
        "--only-binary=:all:", "--python-version", "3.11",
        *(word for tag in tags for word in ("--platform", f"{tag}_{target.machine}")),
    ]  # fmt: skip
    if not packages.exists():
        run(*pip, "-c", ROOT / "constraints.txt", f"{wheel}{EXTRAS}")
    run(*pip, "--no-deps", "--upgrade", wheel)


START = """
import sys
import caloric_native, platform, pytest
kinds = caloric_native.kinds()
print(platform.machine(), "under emulation; builds of the core:", *kinds, flush=True)
assert sys.argv.pop(1) in kinds
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def main() -> None:
    """Install what is missing, build the core, and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tests", nargs="*", help="pytest arguments that replace the default selection"
    )
    arguments, options = parser.parse_known_args()
    selected = [*arguments.tests, *options]
    if sysconfig.get_python_version() != "3.11":
        sys.exit("make cross needs Python 3.11, the version of the other platform's Python")
    target = other()
    check(target)
    root = unpack(target)
    command = python(target, root)
    install(target, build(target, root))
    tests = selected or (*TESTS, "-k", SELECTION.format(kind=target.kind))
    run(command, "-c", START, target.kind, *tests)


if __name__ == "__main__":
    main()
