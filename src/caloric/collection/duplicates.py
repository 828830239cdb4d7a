"""Warnings about copies of the same file."""

from pathlib import Path

from caloric.collection import extraction

_LISTED = 3  # copies that a warning names


def warnings(store: Path) -> tuple[str, ...]:
    """Return a sentence if images of a store are copies of other ones."""
    first: dict[str, str] = {}
    copies: list[str] = []
    for name, image in sorted(extraction.stored_images(store).items()):
        original = first.setdefault(image.content, name)
        if original != name:
            copies.append(f"{name} of {original}")
    if not copies:
        return ()
    named = ", ".join(copies[:_LISTED]) + (", ..." if len(copies) > _LISTED else "")
    if len(copies) == 1:
        return (f"1 file is a copy of another ({named}), which adds no information: remove it",)
    return (
        f"{len(copies):,} files are copies of others ({named}), which add no information: remove "
        "them",
    )
