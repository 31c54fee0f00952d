"""Fragments: consecutive rows of a table, as much as one worker reads in one go."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

MEGABYTES = 64
"""How much of a file a fragment holds, roughly: little enough to be done again, and enough to be worth a job."""


class BadTable(ValueError):
    """A table that cannot be used as it is; says where and why, and never shows what a record holds."""


class Unreadable(BadTable):
    """A file that cannot be read here, which it may be elsewhere, or later."""


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """Consecutive rows of a table.

    Attributes:
        file: The path or URI of the file that holds them; "" for a table in memory.
        start: Where they begin there: a row group of a Parquet file, a byte of a CSV file, a row in memory.
        stop: Where they end, likewise.
        row: The number of the first one in the file, from 0.
        first_id: Its number in the whole table.
        rows: How many there are.
        token: Changes with the file: what it was when the table was looked at.
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
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read it."""
        return cls(**values)

    def at(self, position: int) -> str:
        """Say where one of its rows is."""
        return f"row {self.row + position} of {self.file}" if self.file else f"position {self.row + position}"

    def after(self, rows: int) -> Callable[[int], str]:
        """Return what says where rows are, by their positions after so many rows of the fragment."""
        return lambda position: self.at(rows + position)
