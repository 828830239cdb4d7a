"""Counts in messages."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 image" or "2,000 matches"."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
