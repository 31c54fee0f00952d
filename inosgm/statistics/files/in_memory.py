"""Columns in memory as arrays with the exact values; the size of an array does not depend on a single record."""

from typing import Any

import numpy as np


def column_of(values: Any) -> np.ndarray:
    """Return a column of any library as an array; text, and whole numbers that int64 cannot hold, as objects.

    numpy makes all entries of an array of text as wide as the longest, and turns a list with one large whole number
    into float64, where others become equal.
    """
    if hasattr(values, "detach"):  # torch
        return np.asarray(values.detach().cpu())
    if isinstance(values, list | tuple) and _as_objects(values):
        return np.fromiter(values, dtype=object, count=len(values))
    return np.asarray(values)


def _as_objects(values: list[Any] | tuple[Any, ...]) -> bool:
    kinds = set(map(type, values))
    if any(issubclass(kind, str) for kind in kinds):
        return True
    if bool in kinds and len(kinds) > 1:  # numpy takes true for 1
        return True
    whole = bool(kinds) and all(is_whole(kind) for kind in kinds)
    return whole and not (-(1 << 63) <= int(min(values)) <= int(max(values)) < 1 << 63)


def is_whole(kind: type) -> bool:
    """Return whether values of a type are whole numbers; a bool is not."""
    return issubclass(kind, int | np.integer) and not issubclass(kind, bool)
