"""The kinds of columns: numbers and labels."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inosgm.statistics.files.fragments import BadTable

Where = Callable[[int], str]
"""Returns a description of the row at a position."""


LEAVE_OUT = ": missing='drop' (--missing drop) leaves such records out"
"""What to do about missing values; the owner of a record cannot be missing."""


class Form(Protocol):
    """A kind of column."""

    arrow: pa.DataType
    """The type that is parsed from text."""

    def __call__(self, name: str, column: pa.Array, where: Where) -> np.ndarray:
        """Return a column as numpy.

        Raises:
            BadTable: for anything in it that is missing or of another kind.
        """


class Numbers:
    """Finite numbers in float64; true is 1 and false is 0."""

    arrow = pa.float64()

    def __call__(self, name: str, column: pa.Array, where: Where) -> np.ndarray:
        """Return a column as numbers."""
        column = decoded(column)
        require_complete(name, column, where, LEAVE_OUT)
        kind, is_a = column.type, pa.types
        if not any(
            check(kind) for check in (is_a.is_floating, is_a.is_integer, is_a.is_boolean, is_a.is_decimal, is_a.is_null)
        ):
            raise BadTable(f"column {name!r} must hold numbers, got {kind} at {where(0)}")
        values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        require_finite(f"column {name!r}", values, where, LEAVE_OUT)
        return values


class Labels:
    """Whole numbers of their exact type; text as objects, in memory once for each distinct label."""

    arrow = pa.string()

    def __call__(self, name: str, column: pa.Array, where: Where) -> np.ndarray:
        """Return a column as labels."""
        require_complete(name, column, where, LEAVE_OUT)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        kind, is_a = encoded.type.value_type, pa.types
        if is_a.is_integer(kind):
            whole: np.ndarray = decoded(column).to_numpy(zero_copy_only=False)
            return whole
        if not any(check(kind) for check in (is_a.is_string, is_a.is_large_string, is_a.is_string_view)):
            raise BadTable(f"column {name!r} must hold labels, text or whole numbers, got {column.type} at {where(0)}")
        distinct = encoded.dictionary.to_pylist()
        dictionary = np.fromiter(distinct, dtype=object, count=len(distinct))
        labels: np.ndarray = dictionary[encoded.indices.to_numpy(zero_copy_only=False)]
        if not all(distinct):
            missing = np.fromiter((not label for label in labels), dtype=bool, count=labels.size)
            raise BadTable(f"column {name!r} has a missing value at {where(_first(missing))}{LEAVE_OUT}")
        return labels


NUMBERS, LABELS = Numbers(), Labels()


def require_finite(name: str, values: np.ndarray, where: Where, remedy: str = "") -> None:
    """Raise for the first row that is missing or infinite, with a remedy for missing ones if there is one."""
    finite = np.isfinite(values)
    if not finite.all():
        bad = _first(~finite if values.ndim == 1 else ~finite.all(axis=1))
        if np.isnan(values[bad]).any():
            raise BadTable(f"{name} has a missing value at {where(bad)}{remedy}")
        raise BadTable(f"{name} has an infinite value at {where(bad)}")


def require_complete(name: str, column: pa.Array, where: Where, remedy: str = "") -> None:
    """Raise for the first row that has no value, with a remedy if there is one."""
    if column.null_count:
        missing = _first(column.is_null().to_numpy(zero_copy_only=False))
        raise BadTable(f"column {name!r} has a missing value at {where(missing)}{remedy}")


def positions(name: str, column: pa.Array, places: Mapping[str, int], where: Where) -> np.ndarray:
    """Return the position of every row's owner, from the label in a column.

    Args:
        name: The name of the column.
        column: The labels.
        places: The position of every label; whole numbers as text.
        where: Returns a description of a row.

    Raises:
        BadTable: for a row without an owner, or of an unknown one.
    """
    require_complete(name, column, where)
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = [str(label) for label in encoded.dictionary.to_pylist()]
    known = [places.get(text, places.get(text.strip(), -1)) for text in texts]
    indices: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
    owners = np.array(known, dtype=np.int64)[indices] if known else np.empty(0, dtype=np.int64)
    if owners.size and owners.min() < 0:
        unknown = _first(owners < 0)
        label = texts[indices[unknown]]
        what = "names an owner that `owners` do not have" if label.strip() else "names no owner"
        raise BadTable(f"column {name!r} {what} at {where(unknown)}{_meant(label, places)}")
    return owners


def _meant(label: str, known: Mapping[str, int]) -> str:
    """Return the known owner that an unknown label resembles, or nothing.

    The label is shown only if it resembles one: otherwise the column may be another one, whose values are private.
    """
    if not any(character.isalpha() for character in label):
        return ""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(label.strip().casefold(), folded, n=1, cutoff=0.8)
    return f": it says {label!r}, did you mean {folded[close[0]]!r}?" if close else ""


def missing_in(column: pa.Array) -> np.ndarray:
    """Return which entries of a column are missing: null, NaN, or text without a character."""
    values = decoded(column)
    missing: np.ndarray = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        missing = missing | pc.fill_null(pc.equal(values, ""), False).to_numpy(zero_copy_only=False)
    return missing


def decoded(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _first(bad: Any) -> int:
    return int(np.argmax(bad))
