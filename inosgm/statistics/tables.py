"""Tables: the records of a statistic, in memory or in files, read in batches."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from inosgm._internal import validate as _validate
from inosgm.owners import Owners
from inosgm.statistics.bounds import numbers
from inosgm.statistics.files.columns import LABELS, NUMBERS, Form, positions, require_finite
from inosgm.statistics.files.csv import csv_batches, csv_columns, csv_fragments, is_number
from inosgm.statistics.files.fragments import MEGABYTES, BadTable, Fragment, Unreadable
from inosgm.statistics.files.in_memory import column_of
from inosgm.statistics.files.locations import File, files_at
from inosgm.statistics.files.parquet import parquet_batches, parquet_columns, parquet_fragments

__all__ = ["LABELS", "NUMBERS", "BadTable", "Fragment", "Table", "TableBatch", "Unreadable"]

ROWS = 1 << 17
"""Largest number of rows of a batch: a megabyte per column."""


class TableBatch(NamedTuple):
    """Consecutive records of a table.

    Attributes:
        values: One value per record, or one row of several.
        owners: The position of every record's owner in `Owners.labels`.
        first_id: The number of the first record in the table; the others follow.
    """

    values: np.ndarray
    owners: np.ndarray
    first_id: int


class Table:
    """Records in memory, in one file, or in many files that are larger than memory.

    Rows count from 0, through all files in the order of their names, so that a record always has the same number. A
    function of (value, owner, number) therefore has the same result in memory, in chunks and on a cluster.

    Made by `Table.of`. It can be pickled; a worker needs to see the files under the same names.

    Attributes:
        owner: The column that names owners, if there is one.
        rows: The number of records.
        fragments: The records in consecutive pieces.

    >>> table = Table.of({"wage": [1.0, 2.0, 4.0], "clinic": ["a", "b", "a"]}, columns="wage", owner="clinic")
    >>> owners = Owners(of_record=["a", "a", "b"], epsilon=1.0, delta=1e-5)
    >>> [batch] = table.batches(owners)
    >>> batch.values.tolist(), batch.owners.tolist(), batch.first_id
    ([1.0, 2.0, 4.0], [0, 1, 0], 0)
    """

    def __init__(self, source: "Source", fragments: Sequence[Fragment], owner: str | None) -> None:
        self._source, self.owner = source, owner
        self.fragments = tuple(fragments)
        self.rows = sum(fragment.rows for fragment in self.fragments)
        if not self.rows:
            raise BadTable("the table must have at least one row, got none")

    @classmethod
    def of(
        cls,
        data: Any,
        columns: str | Sequence[str] | None = None,
        owner: str | None = None,
        *,
        megabytes: float = MEGABYTES,
    ) -> Self:
        """Return the table of some data after reading its column names and row counts; CSV lines are all counted.

        Args:
            data: An array with a row per record; a pandas or pyarrow table, or a mapping from names to columns; or the
                path or URI of a CSV or Parquet file, of a directory of them, or a pattern such as data/*.parquet.
            columns: The column of the values, or several; None for an array.
            owner: The column that names the owner of each record; None if owners are given record by record.
            megabytes: The size of a fragment of a file; row groups of Parquet and compressed files are never cut.

        Raises:
            BadTable: for a table without such columns, without rows, or that cannot be read.
            TypeError: for something else.
        """
        size = int(_validate.number("megabytes", megabytes, above=0) * (1 << 20)) or 1
        source: Source
        if isinstance(data, str | os.PathLike):
            source = _Files(files_at(data), _names(columns), owner)
        elif _columns_of(data) is None:
            if columns is not None or owner is not None:
                raise TypeError("columns and owner name columns, an array has none: pass a table, or leave them out")
            source = _Arrays(data)
        else:
            source = _Memory(data, _names(columns), owner)
        return cls(source, source.cut(size), owner)

    def check(self, owners: Owners) -> None:
        """Raise if the number of rows is not that of the owners' records, or if the owner of a row is unknown.

        Raises:
            BadTable: for another number of rows.
            ValueError: for a table without a column of owners, and owners who do not state the order of rows.
        """
        if self.owner is None:
            owners.of_range(0, 0)
        if self.rows != owners.n_records:
            raise BadTable(
                f"the table must have a row per record of its owners, got {self.rows} rows for {owners.n_records} "
                "records: is this the table of these owners, and does `owner` (--owner) name the column of labels?"
            )

    def read(self, fragment: Fragment, owners: Owners, form: Form = NUMBERS) -> Iterator[TableBatch]:
        """Read a fragment in batches.

        Args:
            fragment: One of `fragments`.
            owners: The owners of the rows.
            form: The kind of values: NUMBERS or LABELS.

        Raises:
            BadTable: for values that are missing or of another kind, rows without an owner, and files that have
                changed. The message has the position and shows no value.
        """
        first = fragment.first_id
        for values, labels in self._source.read(fragment, form):
            rows = len(values)
            if labels is None:
                holders = owners.of_range(first, first + rows)
            else:
                holders = positions(str(self.owner), labels, owners.places, fragment.after(first - fragment.first_id))
            yield TableBatch(values, holders, first)
            first += rows
        if first != fragment.first_id + fragment.rows:
            raise BadTable(
                f"{fragment.file} must have {fragment.rows} rows from row {fragment.row} on, got "
                f"{first - fragment.first_id}: are its quotation marks in pairs?"
            )

    def batches(self, owners: Owners, form: Form = NUMBERS) -> Iterator[TableBatch]:
        """Read all fragments in turn; see `read`."""
        for fragment in self.fragments:
            yield from self.read(fragment, owners, form)

    def parts(self) -> Iterator[Any]:
        """Yield the bytes that identify the data, for `Store.fingerprint`: versions of files, or all values."""
        return self._source.parts(self.fragments)


class Source(Protocol):
    """The rows of a table, in one kind of place."""

    def cut(self, size: int) -> list[Fragment]:
        """Return fragments of about `size` bytes."""

    def read(self, fragment: Fragment, form: Form) -> Iterator[tuple[np.ndarray, pa.Array | None]]:
        """Yield values, and the labels of their owners if there is a column of them."""

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield the bytes that identify the data."""


class _Arrays:
    """Rows of an array."""

    def __init__(self, data: Any) -> None:
        values = column_of(data)
        if values.ndim not in (1, 2):
            raise TypeError(f"data must be a vector or a matrix with a row per record, got shape {values.shape}")
        self._text = all(isinstance(value, str) for value in values.flat) if values.dtype == object else False
        if values.dtype == object and not self._text:
            _validate.numeric("data", values)
        elif values.dtype.kind not in "biufUTO":
            raise TypeError(f"data must be numbers, or text for labels, got {_validate.kind_of(values.dtype)}")
        self._values, self._text = values, self._text or values.dtype.kind in "UT"

    def cut(self, size: int) -> list[Fragment]:
        """Return ranges of rows."""
        return _ranges(len(self._values), max(1, size // max(1, self._values[:1].nbytes)))

    def read(self, fragment: Fragment, form: Form) -> Iterator[tuple[np.ndarray, pa.Array | None]]:
        """Yield rows."""
        for start in range(fragment.start, fragment.stop, ROWS):
            values = self._values[start : min(start + ROWS, fragment.stop)]
            if form is NUMBERS:
                if self._text:
                    raise BadTable(f"data must be numbers, got text at position {start}")
                values = numbers(values)
                require_finite("data", values, fragment.after(start - fragment.start))
            yield values, None

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield all values."""
        yield repr((self._values.dtype.str, self._values.shape)).encode()
        if self._values.dtype == object:
            yield from (str(value).encode() for value in self._values.flat)
        else:
            yield np.ascontiguousarray(self._values).view(np.uint8)


class _Memory:
    """Rows of a table in memory."""

    def __init__(self, data: Any, columns: Sequence[str], owner: str | None) -> None:
        wanted = [*columns, *([] if owner is None else [owner])]
        _require_columns("the table", _columns_of(data) or [], wanted)
        self._columns, self._owner = columns, owner
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        arrays = {name: _arrow(name, data[name]) for name in wanted}
        lengths = {name: len(column) for name, column in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise BadTable(f"columns must have one entry per record each, got {lengths}")
        self._table = pa.table(arrays)

    def cut(self, size: int) -> list[Fragment]:
        """Return ranges of rows."""
        rows = self._table.num_rows
        return _ranges(rows, max(1, size * rows // max(1, self._table.nbytes)))

    def read(self, fragment: Fragment, form: Form) -> Iterator[tuple[np.ndarray, pa.Array | None]]:
        """Yield rows."""
        batches = self._table.slice(fragment.start, fragment.rows).to_batches(max_chunksize=ROWS)
        return _values(batches, fragment, self._columns, self._owner, form)

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield all columns."""
        for batch in self._table.combine_chunks().to_batches():
            yield batch.serialize()


class _Files:
    """Rows of files."""

    def __init__(self, files: Sequence[File], columns: Sequence[str], owner: str | None) -> None:
        self._files, self._columns, self._owner = files, columns, owner
        self._wanted = [*columns, *([] if owner is None else [owner])]
        for file in files:
            present = parquet_columns(file) if file.parquet else csv_columns(file)
            _require_columns(file.path, present, self._wanted)

    def cut(self, size: int) -> list[Fragment]:
        """Return ranges of row groups, or of bytes."""
        fragments: list[Fragment] = []
        first = 0
        for file in self._files:
            fragments += (parquet_fragments if file.parquet else csv_fragments)(file, first, size)
            first = fragments[-1].first_id + fragments[-1].rows if fragments else 0
        return fragments

    def read(self, fragment: Fragment, form: Form) -> Iterator[tuple[np.ndarray, pa.Array | None]]:
        """Yield rows; raise if the file changes before or while it is read."""
        file = File(fragment.file)
        file.require(fragment.token)
        if file.parquet:
            batches = parquet_batches(file, fragment, self._wanted, ROWS)
        else:
            types = dict.fromkeys(self._wanted, pa.string()) | dict.fromkeys(self._columns, form.arrow)
            batches = csv_batches(file, fragment, types)
        yield from _values(batches, fragment, self._columns, self._owner, form)
        file.require(fragment.token)

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield the versions of the files."""
        yield repr((self._columns, self._owner)).encode()
        for name, token in dict.fromkeys((fragment.file, fragment.token) for fragment in fragments):
            yield f"{name} {token}".encode()


def _values(
    batches: Iterable[pa.RecordBatch], fragment: Fragment, columns: Sequence[str], owner: str | None, form: Form
) -> Iterator[tuple[np.ndarray, pa.Array | None]]:
    """Yield values and labels in batches of at most `ROWS` rows."""
    done = 0
    for whole in batches:
        for start in range(0, whole.num_rows, ROWS):
            batch = whole.slice(start, ROWS)
            read = [form(name, batch.column(name), fragment.after(done)) for name in columns]
            values = read[0] if len(read) == 1 else np.stack(read, axis=1)
            yield values, None if owner is None else batch.column(owner)
            done += batch.num_rows


def _ranges(rows: int, size: int) -> list[Fragment]:
    """Return fragments of `size` rows in memory."""
    starts = range(0, rows, size)
    return [
        Fragment(file="", start=at, stop=min(at + size, rows), row=at, first_id=at, rows=min(size, rows - at), token="")
        for at in starts
    ]


def _columns_of(data: Any) -> list[Any] | None:
    """Return the names of the columns of a table; None for an array."""
    if isinstance(data, Mapping):
        return list(data)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return list(data.schema.names)
    return list(data.columns) if hasattr(data, "columns") and hasattr(data, "iloc") else None


def _names(columns: str | Sequence[str] | None) -> list[str]:
    if columns is None:
        raise TypeError("columns must name the column of the values, or several of them, got None")
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("columns must name at least one column, got none")
    return names


def _require_columns(source: str, present: Sequence[Any], wanted: Sequence[str]) -> None:
    """Raise for the first missing column."""
    for name in wanted:
        if name not in present:
            if any(isinstance(other, str) and is_number(other) for other in present):  # the header may be a record
                raise BadTable(f"{source} has no column {name!r}: does its first line name the columns?")
            shown = _validate.some(list(present)) or "none"
            raise BadTable(f"{source} has no column {name!r}, its columns are {shown}: all files of a table need it")


def _arrow(name: str, values: Any) -> pa.ChunkedArray:
    """Return a column of any library as an Arrow array."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    for kind in (None, pa.uint64()):  # Arrow does not infer uint64 for large whole numbers
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):  # their messages show values
            return pa.array(values, type=kind, from_pandas=True)
    try:
        return pa.array(_validate.numeric(name, values), type=pa.float64())  # whole numbers of any size
    except TypeError:
        raise BadTable(f"column {name!r} must hold values of one kind, got several, or something else") from None
