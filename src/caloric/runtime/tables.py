"""Small HTML tables that show results in notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

SHOWN = 5  # maximum number of rows


def html(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """Return a table of the first of ``count`` rows, with floats rounded to 4 digits."""

    def cells(values: Iterable[object], tag: str) -> str:
        texts = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)
        return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    if count > SHOWN:
        body += f"<tr><td colspan={len(head)}>… and {count - SHOWN} more</td></tr>"
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
    )
