"""``make cross``: build the compiled core for the other platform and test it under emulation.

On x86-64 the other platform is aarch64, and vice versa. Debian packages provide the compiler, the
emulator and the other platform's Python, which is unpacked below ``.cross`` with the wheels it
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
WHEELS = (
    "numpy", "scipy", "opencv-python-headless", "pillow", "threadpoolctl", "typer", "rich",
    "pytest", "hypothesis", "scikit-image", "tifffile", "mpmath", "h5py",
)  # fmt: skip
# Tests that depend on the processor, mostly for the fastest build; all tests would take hours.
TESTS = (
    "tests/runtime/test_native.py",
    "tests/test_golden.py",
    "tests/image/test_tiles.py",
    "tests/paper/test_errata.py",
)
SELECTION = (
    "test_errata or (test_tiles and make_no_difference and not affine and not detector)"
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

    @property
    def directory(self) -> Path:
        """The directory for all files of this platform."""
        return ROOT / ".cross" / self.machine


TARGETS = {
    "aarch64": Target("aarch64", "arm64", "aarch64-linux-gnu", ("qemu-aarch64",), "neon"),
    "x86_64": Target("x86_64", "amd64", "x86_64-linux-gnu", ("qemu-x86_64", "-cpu", "max"), "avx2"),
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
    (root / "done").touch()
    return root


def wheels(target: Target) -> Path:
    """Return a directory with the dependencies of caloric and its tests, for the other platform."""
    directory = target.directory / "packages"
    if (directory / "done").exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    tags = ["manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 27, 28, 31, 34))]
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--target", directory, "--only-binary=:all:", "--python-version", "3.11",
        *(word for tag in tags for word in ("--platform", f"{tag}_{target.machine}")),
        "-c", "constraints.txt", *WHEELS,
    )  # fmt: skip
    (directory / "done").touch()
    return directory


def build(target: Target, root: Path) -> Path:
    """Return the build directory of the core for the other platform."""
    directory = target.directory / "native"
    include = root / "usr" / "include"
    headers = f"-isystem {include} -isystem {include / target.triple}"
    run(
        "cmake", "-S", ROOT / "native", "-B", directory, "-Wno-dev",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_SYSTEM_NAME=Linux",
        f"-DCMAKE_SYSTEM_PROCESSOR={target.machine}",
        f"-DCMAKE_CXX_COMPILER={target.triple}-g++", f"-DCMAKE_CXX_FLAGS={headers}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_INCLUDE_DIR={include / 'python3.11'}",
        "-DNB_SUFFIX=.so", "-DNB_SUFFIX_S=.so",
    )  # fmt: skip
    run("cmake", "--build", directory, "--parallel", str(os.cpu_count() or 1))
    return directory


def python(target: Target, root: Path, paths: list[Path]) -> Path:
    """Return a shell script that runs the other platform's Python, for the tests."""
    command = target.directory / "python"
    words = [*target.emulator, "-L", str(root), str(root / "usr" / "bin" / "python3.11")]
    command.write_text(
        "#!/bin/sh\n"
        f'export PYTHONPATH="{os.pathsep.join(map(str, paths))}" PYTHONDONTWRITEBYTECODE=1\n'
        # qemu on Arm does not preserve the memory order of x86: with threads NumPy crashes.
        "export CALORIC_THREADS=1\n"
        f'exec {" ".join(words)} "$@"\n'
    )
    command.chmod(0o755)
    return command


START = """
import sys
sys.executable = sys.argv.pop(1)
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
    root, packages = unpack(target), wheels(target)
    core = build(target, root)
    command = python(target, root, [core, packages, ROOT / "src", ROOT / "tests", ROOT])
    tests = selected or (*TESTS, "-k", SELECTION.format(kind=target.kind))
    run(command, "-c", START, command, target.kind, *tests)


if __name__ == "__main__":
    main()
