"""Tables of text, in which names of owners do no harm."""

import re
from collections.abc import Sequence

MAX_ROWS = 40
"""How many owners a table shows: about a screen."""

HIDDEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
"""Characters that steer a terminal, turn the direction of text, or break XML: somebody may call an owner so."""


def visible(text: str) -> str:
    """Return a text in which such characters are replaced by a sign.

    >>> visible("clinic \\x1b[2J\\u202e7")
    'clinic \ufffd[2J\ufffd7'
    """
    return HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out rows: the first column to the left, the others to the right; each on one line."""
    header, *rows = [[" ".join(visible(cell).splitlines()) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in (header, *rows)
    ]
