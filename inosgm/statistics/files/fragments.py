"""Fragments: consecutive rows of a table that one job reads."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

MEGABYTES = 64
"""Approximate size of a fragment: small enough to be read again, large enough to be worth a job."""


class BadTable(ValueError):
    """An invalid table; the message says where and why, and never shows the content of a record."""


class Unreadable(BadTable):
    """A file that cannot be read here now; another worker, or a retry, may be able to."""


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """Consecutive rows of a table.

    Attributes:
        file: The path or URI of the file that holds them; "" for a table in memory.
        start: Where they begin there: a row group of a Parquet file, a byte of a CSV file, a row in memory.
        stop: Where they end, likewise.
        row: The number of the first one in the file, from 0.
        first_id: Its number in the whole table.
        rows: The number of rows.
        token: The version of the file when the table was made.
        quoted: Whether the file has quotation marks, so that fields may hold line ends.

    >>> fragment = Fragment(file="a.csv", start=5, stop=90, row=0, first_id=7, rows=10, token="90 1")
    >>> Fragment.from_dict(fragment.to_dict()) == fragment
    True
    """

    file: str
    start: int
    stop: int
    row: int
    first_id: int
    rows: int
    token: str
    quoted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the fragment of which `to_dict` returned these values."""
        return cls(**values)

    def at(self, position: int) -> str:
        """Return a description of where one of its rows is; rows of files count from 1, as in files of owners."""
        return f"row {self.row + position + 1} of {self.file}" if self.file else f"position {self.row + position}"

    def after(self, rows: int) -> Callable[[int], str]:
        """Return a function that describes the row at a position after the first `rows` rows."""
        return lambda position: self.at(rows + position)
