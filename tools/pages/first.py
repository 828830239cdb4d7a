"""Draw docs/first.jpg, the picture of the README: ``python -m tools.pages.first``."""

from pathlib import Path

from caloric import demo

DOCS = Path(__file__).parents[2] / "docs"

if __name__ == "__main__":
    scores, picture = demo.compare_oblique(demo.oblique_view())
    picture.save(DOCS / "first.jpg")
    print(scores)
