"""Tables in Markdown for the pages of the documentation."""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table and an empty line; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [*("| " + " | ".join(line) + " |" for line in escaped), ""]
