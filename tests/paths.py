"""Paths of the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
README = ROOT / "README.md"
GOLDEN = ROOT / "tests" / "golden"
