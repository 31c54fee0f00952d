"""Tables of text."""

from collections.abc import Sequence

MOST = 40
"""How many owners a table shows."""


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in (header, *rows)
    ]
