"""``make release-check``: check the distribution files and what a release must have.

Checks versions, links, the citation, the conda recipe, the workflows, the metadata and the binaries
of the wheels, their size, and the import time in an empty environment. Reports all failures.
"""

import os
import re
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import caloric

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipe" / "recipe.yaml"
MAX_BYTES = 3_000_000
MAX_IMPORT = 0.6  # seconds
# Directories that are written when the documentation is built.
GENERATED = ("gallery/", "_figures/")
# Packages whose name differs on conda-forge.
CONDA = {"opencv-python-headless": "py-opencv"}


def text(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text("utf-8")


def versions() -> Iterator[str]:
    """Yield the files whose version is not ``caloric.__version__``."""
    patterns = {
        "CITATION.cff": r"^version: (.+)$",
        "recipe/recipe.yaml": r'^  version: "(.+)"$',
        "CHANGELOG.md": r"^## (\S+)",
    }
    for name, pattern in patterns.items():
        match = re.search(pattern, text(name), re.M)
        if match is None or match.group(1) != caloric.__version__:
            yield f"{name}: the version is not {caloric.__version__}"


def tag() -> Iterator[str]:
    """Yield what is missing for the release of the tag that a workflow runs for, if it does."""
    if os.environ.get("GITHUB_REF_TYPE") != "tag":
        return
    name = os.environ["GITHUB_REF_NAME"]
    if name != f"v{caloric.__version__}":
        yield f"the tag {name} is not v{caloric.__version__}"
    if "urls" not in tomllib.loads(text("pyproject.toml"))["project"]:
        yield "pyproject.toml: [project.urls] is missing; the package index shows it"
    if re.search(r"\]\((?!https:)", text("README.md")):
        yield "README.md: relative links do not work on the package index"


def headings(document: str) -> set[str]:
    """Return the anchors of the headings of a Markdown document, and its explicit targets."""
    outside = re.sub(r"^```.*?^```", "", document, flags=re.M | re.S)
    lines = re.findall(r"^#+ +(.+?) *$", outside, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
    return anchors | set(re.findall(r"^\(([\w-]+)\)=$", outside, re.M))


def links(root: Path = ROOT) -> Iterator[str]:
    """Yield the relative links of documents to files and headings that do not exist."""
    for path in sorted((*root.glob("*.md"), *root.glob("docs/*.md"))):
        document = path.read_text("utf-8")
        for target, anchor in re.findall(r"\]\(([\w./-]+\.\w+)?(?:#([\w-]+))?\)", document):
            file = path.parent / target if target else path
            if target.startswith(GENERATED) or not (target or anchor):
                continue
            if not file.exists():
                yield f"{path.relative_to(root)}: {target} does not exist"
            elif anchor and anchor not in headings(file.read_text("utf-8")):
                yield f"{path.relative_to(root)}: {target} has no heading #{anchor}"


def recipe() -> Iterator[str]:
    """Yield the differences between the conda recipe and pyproject.toml."""
    from rattler_build import Stage0Recipe, VariantConfig

    project = tomllib.loads(text("pyproject.toml"))
    # conda-forge builds for each of its Python versions, and expects "python" without a bound.
    oldest = project["project"]["requires-python"].removeprefix(">=")
    if f'match(python, "<{oldest}")' not in RECIPE.read_text("utf-8"):
        yield f"{RECIPE.name}: versions of Python before {oldest} are not skipped"
    variants = VariantConfig(
        {"cxx_compiler": ["gxx"], "c_stdlib": ["sysroot"], "python": [f"{oldest}.*"]}
    )
    (rendered,) = Stage0Recipe.from_file(str(RECIPE)).render(variants)
    requirements = rendered.recipe.requirements.to_dict()
    expected = {
        "host": project["build-system"]["requires"],
        "run": project["project"]["dependencies"],
    }
    for section, lines in expected.items():
        for line in lines:
            name, bound = re.split("(?=>=)", line)
            if f"{CONDA.get(name, name)} {bound}" not in requirements[section]:
                yield f"{RECIPE.name}: {line} is missing in the section {section}"


def tools(distribution: Path) -> Iterator[str]:
    """Yield the commands that fail: metadata, binaries, citation and workflows."""
    files = sorted(map(str, (*distribution.glob("*.tar.gz"), *distribution.rglob("*.whl"))))
    workflows = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    schema = ["check_jsonschema", "--builtin-schema"]
    commands = [
        ["twine", "check", "--strict", *files],
        [*schema, "vendor.citation-file-format", str(ROOT / "CITATION.cff")],
        [*schema, "vendor.github-workflows", *workflows],
    ]
    commands += [
        ["cibuildwheel", "--print-build-identifiers", "--platform", platform, "--archs", "all"]
        for platform in ("linux", "macos", "windows")
    ]
    commands += [["abi3audit", "--strict", "--report", file] for file in files if "-abi3-" in file]
    for command in commands:
        if subprocess.run([sys.executable, "-m", *command], check=False).returncode:
            yield " ".join(command)
    for file in files:
        if "-linux_" in file:
            audit = [sys.executable, "-m", "auditwheel", "show", file]
            printed = subprocess.run(audit, capture_output=True, text=True, check=True).stdout
            print(printed)
            if not re.search(r'"manylinux_\d+_\d+_', printed):
                yield f"{file}: auditwheel finds no platform tag"


def install(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel in an empty environment."""
    if wheel.stat().st_size > MAX_BYTES:
        yield f"{wheel.name} has {wheel.stat().st_size:,} bytes"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with TemporaryDirectory() as directory:
        venv.create(directory)
        (python,) = (*Path(directory).glob("bin/python"), *Path(directory).glob("*/python.exe"))
        subprocess.run([*pip, "--python", python, "install", wheel], check=True)

        def seconds(code: str) -> float:
            """Return the shortest time of five runs."""
            times = []
            for _ in range(5):
                start = time.perf_counter()
                subprocess.run([python, "-c", code], check=True, cwd=directory)
                times.append(time.perf_counter() - start)
            return min(times)

        code = "import sys, caloric; assert 'torch' not in sys.modules"
        duration = seconds(code) - seconds("")
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, imported in {duration:.2f} s")
        if duration > MAX_IMPORT:
            yield f"import caloric takes {duration:.2f} s"


def failures(distribution: Path) -> Iterator[str]:
    """Yield all failures for a directory of distribution files."""
    checks: list[tuple[Callable[..., Iterator[str]], list[Any]]] = [
        (versions, []), (tag, []), (links, []), (recipe, []), (tools, [distribution]),
    ]  # fmt: skip
    checks += [(install, [wheel]) for wheel in sorted(distribution.rglob("*.whl"))]
    for check, arguments in checks:
        yield from check(*arguments)


def main() -> None:
    """Print the failures; exit with status 1 if there are any."""
    messages = list(failures(Path(sys.argv[1])))
    print("\n".join(messages) or "all checks passed")
    sys.exit(bool(messages))


if __name__ == "__main__":
    main()
