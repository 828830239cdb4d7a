"""``python -m tools.language``: find retired terms and uninformative names in the repository.

``tools/retired_terms.txt`` lists the terms with their replacements. Every tracked text file is
checked: prose, comments, strings and identifiers. Names of variables, parameters and functions in
Python, JavaScript and C++ are checked against ``NAMES`` as well. Arguments select files.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TERMS = Path(__file__).with_name("retired_terms.txt")
# Measured results, versions, legal text, other libraries, and the list itself with its check.
SKIPPED = (
    "docs/results/", "constraints.txt", "LICENSE", "src/caloric/view/static/vendor/",
    "tools/language.py", "tools/retired_terms.txt", "tests/tools/test_language.py",
)  # fmt: skip
# Names that say too little about what they hold.
NAMES = {"found", "own", "there", "away", "seen", "told", "beyond", "light", "most", "several"}
_CONTEXT = 40  # characters on each side in which an exception may appear


@dataclass(frozen=True)
class Term:
    """A retired term: its pattern, what to write instead, and where it is accepted."""

    pattern: re.Pattern[str]
    instead: str
    unless: re.Pattern[str] | None

    def uses(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the occurrences in a text that no exception covers."""
        for match in self.pattern.finditer(text):
            start, end = max(0, match.start() - _CONTEXT), match.end() + _CONTEXT
            if self.unless is None or not self.unless.search(text[start:end]):
                yield match


def read_terms(lines: str) -> list[Term]:
    """Return the terms of a list in the form of ``retired_terms.txt``."""
    terms = []
    for line in lines.splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, _, rest = line.partition(" -> ")
        instead, _, unless = rest.partition(" unless ")
        # A line break with the marker of a comment counts as a space.
        spaced = pattern.replace(" ", r"[\s#/*]+")
        words = re.compile(f"(?<![a-z])(?:{spaced})(?![a-z])", re.IGNORECASE)
        terms.append(Term(words, instead, re.compile(unless) if unless else None))
    return terms


def names(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each name in ``NAMES`` that a source file defines."""
    if suffix == ".py":
        tree = ast.parse(text)
        # Fields and methods are names of an interface, such as TemplateMatch.found.
        classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        members = {id(getattr(m, "target", m)) for node in classes for m in node.body}
        for node in ast.walk(tree):
            if id(node) in members:
                continue
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    pass
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    pass
                case _:
                    continue
            if name in NAMES:
                yield node.lineno, name
    elif suffix in (".js", ".cpp", ".hpp"):
        declared = re.compile(r"(?:const|let|var|auto|int|float|double|bool|size_t)[ &*]+(\w+)\b")
        for number, line in enumerate(text.splitlines(), 1):
            yield from ((number, m[1]) for m in declared.finditer(line) if m[1] in NAMES)


def problems(path: str, text: str, terms: list[Term]) -> Iterator[str]:
    """Yield a line for each retired term and uninformative name of a file."""
    for term in terms:
        for match in term.uses(text):
            number = text.count("\n", 0, match.start()) + 1
            shown = " ".join(match[0].split())
            yield f"{path}:{number}: {shown!r}; write: {term.instead}"
    for number, name in names(text, Path(path).suffix):
        yield f"{path}:{number}: the name {name!r} says too little"


def tracked() -> list[str]:
    """Return the paths of all tracked files, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for path in listed.stdout.split("\0") if path]


def main(paths: list[str]) -> int:
    """Check the given files, or all tracked ones; return 1 if there are problems."""
    terms, count = read_terms(TERMS.read_text(encoding="utf-8")), 0
    for path in paths or tracked():
        if path.startswith(SKIPPED):
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # an image, or deleted and not committed
            continue
        for problem in problems(path, text, terms):
            print(problem)
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
