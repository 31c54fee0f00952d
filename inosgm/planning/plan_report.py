"""The numbers of owners as a table for people."""

from collections.abc import Mapping, Sequence

import numpy as np

from inosgm._internal import text
from inosgm.accounting.unique_rows import unique_rows
from inosgm.owners import Label

MOST_ROWS = 40
"""Largest number of rows of owners: about a page."""


def owner_table(labels: Sequence[Label], sizes: np.ndarray, columns: Mapping[str, np.ndarray], *, of: str) -> list[str]:
    """Return the lines of a table with one row per owner, or, for many owners, one row per kind of owners.

    Args:
        labels: The owners.
        sizes: Their numbers of records or units.
        columns: One number per owner, by the title of the column. Owners are of one kind if all these numbers agree.
        of: What the sizes count, in the singular.
    """
    values = list(columns.values())
    first, kinds = unique_rows(values)
    if sizes.size <= MOST_ROWS:
        first, kinds = np.arange(sizes.size), np.arange(sizes.size)
    else:
        first = first[np.lexsort([values[i][first] for i in (0, 3 if len(values) > 3 else 1)])]
    count = np.bincount(kinds)
    spread = np.linspace(0, first.size - 1, MOST_ROWS).round().astype(np.int64)
    shown = first if first.size <= MOST_ROWS else first[spread]
    rows = []
    for row in shown:
        alike = int(count[kinds[row]])
        who = str(labels[row]) + (f" and {alike - 1} more" if alike > 1 else "")
        size = int(sizes[kinds == kinds[row]].sum()) if alike > 1 else int(sizes[row])
        numbers = (format(column[row], ".3g" if name == "delta" else ".4g") for name, column in columns.items())
        rows.append([who, str(size), *numbers])
    lines = text.columns(["owner", f"{of}s", *columns], rows)
    if first.size > shown.size:
        lines.append(f"({shown.size} of {first.size} kinds of owners are shown)")
    return lines
