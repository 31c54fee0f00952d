"""Distinct rows of several columns, so that equal cases are computed once."""

from collections.abc import Sequence

import numpy as np


def unique_rows(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the first row of each kind, and the kind of every row; rows of a kind are equal.

    Kinds are sorted by the last column first.
    """
    size = columns[0].size
    # Constant columns are dropped: a million rows that differ in the budget alone then cost one sort of one column.
    varying = [column for column in columns if size and (column != column[0]).any()]
    if not varying:
        return np.zeros(min(size, 1), dtype=np.int64), np.zeros(size, dtype=np.int64)
    order = np.lexsort(varying)
    new = np.zeros(size, dtype=bool)
    new[0] = True
    for column in varying:
        new[1:] |= np.diff(column[order]) != 0
    kinds = np.empty(size, dtype=np.int64)
    kinds[order] = np.cumsum(new) - 1
    return order[new], kinds
