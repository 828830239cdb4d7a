"""Tables of the documentation's pages."""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Its lines, and an empty one; a bar in a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [*("| " + " | ".join(line) + " |" for line in escaped), ""]
