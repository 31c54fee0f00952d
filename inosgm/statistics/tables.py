"""Tables: the records of a statistic, in memory or in files, read in batches."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from inosgm._internal import validate as _validate
from inosgm.owners import Label, Owners
from inosgm.statistics.bounds import numbers
from inosgm.statistics.conditions import Condition
from inosgm.statistics.files.columns import LABELS, NUMBERS, Form, positions, require_finite
from inosgm.statistics.files.csv import csv_batches, csv_columns, csv_fragments, is_number
from inosgm.statistics.files.fragments import MEGABYTES, BadTable, Fragment, Unreadable
from inosgm.statistics.files.in_memory import column_of
from inosgm.statistics.files.locations import File, files_at
from inosgm.statistics.files.parquet import parquet_batches, parquet_columns, parquet_fragments
from inosgm.statistics.selection import EVERYBODY, Column, Missing, Selected, Selection, renumbered, types_of

__all__ = [
    "LABELS",
    "NUMBERS",
    "BadTable",
    "Fragment",
    "Missing",
    "Selection",
    "Table",
    "TableBatch",
    "Unreadable",
]

ROWS = 1 << 17
"""Largest number of rows of a batch: a megabyte per column."""


class TableBatch(NamedTuple):
    """Consecutive records of a table.

    Attributes:
        values: One value per record that takes part, or one row of several.
        owners: The position of every record's owner in `Owners.labels`, also of those that take no part.
        first_id: The number of the first record in the table; the others follow.
        kept: The positions of the records that take part; None for all.
        missing: Whether each record satisfies the condition and lacks a value; None if such records are refused.
        groups: The label of the group of each record that takes part; None without a column of groups.
    """

    values: np.ndarray
    owners: np.ndarray
    first_id: int
    kept: np.ndarray | None = None
    missing: np.ndarray | None = None
    groups: np.ndarray | None = None


class Table:
    """Records in memory, in one file, or in many files that are larger than memory.

    Rows count from 0, through all files in the order of their names, so that a record always has the same number. A
    function of (value, owner, number) therefore has the same result in memory, in chunks and on a cluster.

    Made by `Table.of`. It can be pickled; a worker needs to see the files under the same names.

    Attributes:
        owner: The column that names owners, if there is one.
        rows: The number of records, also of those that take no part.
        fragments: The records in consecutive pieces.
        selection: Which records take part, and which group each is in.

    >>> table = Table.of({"wage": [1.0, 2.0, 4.0], "clinic": ["a", "b", "a"]}, columns="wage", owner="clinic")
    >>> owners = Owners(of_record=["a", "a", "b"], epsilon=1.0, delta=1e-5)
    >>> [batch] = table.batches(owners)
    >>> batch.values.tolist(), batch.owners.tolist(), batch.first_id
    ([1.0, 2.0, 4.0], [0, 1, 0], 0)
    """

    def __init__(
        self, source: "Source", fragments: Sequence[Fragment], owner: str | None, selection: Selection = EVERYBODY
    ) -> None:
        self._source, self.owner, self.selection = source, owner, selection
        self.fragments = tuple(fragments)
        self.rows = sum(fragment.rows for fragment in self.fragments)
        if not self.rows:
            raise BadTable("the table must have at least one row, got none")

    @classmethod
    def of(
        cls,
        data: Any,
        columns: Column | Sequence[Column] | None = None,
        owner: str | None = None,
        *,
        where: str | Condition | None = None,
        missing: str = Missing.refuse,
        by: str | None = None,
        keys: Sequence[Label] | None = None,
        megabytes: float = MEGABYTES,
    ) -> Self:
        """Return the table of some data after reading its column names and row counts; CSV lines are all counted.

        Args:
            data: An array with a row per record; a table in memory (pandas, pyarrow, Polars, DuckDB, or any other with
                Arrow's `__arrow_c_stream__`), or a mapping from names to columns; or the path or URI of a CSV or
                Parquet file, of a directory of them, or a pattern such as data/*.parquet.
            columns: The column of the values, or several; None for an array. A `Condition` is a column of zeros and
                ones.
            owner: The column that names the owner of each record; None if owners are given record by record.
            where: The condition that a record must satisfy to take part, such as "sex == 'F'"; see `Condition`.
            missing: "refuse" the table if a record lacks a value, or "drop" such records; "count" drops them, and lets
                a question release how many they are.
            by: The column that names the group of each record.
            keys: The names of the groups, if these are public.
            megabytes: The size of a fragment of a file; row groups of Parquet and compressed files are never cut.

        Raises:
            BadTable: for a table without such columns, without rows, or that cannot be read.
            TypeError: for something else.
        """
        size = int(_validate.number("megabytes", megabytes, above=0) * (1 << 20)) or 1
        selection = Selection.of(where, missing, by, keys)
        source: Source
        if isinstance(data, str | os.PathLike):
            source = _Files(files_at(data), _names(columns), owner, selection)
        elif not is_table(data):
            if columns is not None or owner is not None or selection.types:
                raise TypeError(
                    "columns, owner, where and by name columns, an array has none: pass a table, or leave them out"
                )
            source = _Arrays(data, selection.missing)
        else:
            source = _Memory(data, _names(columns), owner, selection)
        return cls(source, source.cut(size), owner, selection)

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
                "records: is this their table, and does `owner` (--owner-column) name the column of labels?"
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
        for rows, selected, labels in self._source.read(fragment, form):
            if labels is None:
                holders = owners.of_range(first, first + rows)
            else:
                holders = positions(str(self.owner), labels, owners.places, fragment.after(first - fragment.first_id))
            yield TableBatch(selected.values, holders, first, *selected[1:])
            first += rows
        if first != fragment.first_id + fragment.rows:
            raise BadTable(
                f"{fragment.file} must have {fragment.rows} rows from row {fragment.row + 1} on, got "
                f"{first - fragment.first_id}: are its quotation marks in pairs?"
            )

    def batches(self, owners: Owners, form: Form = NUMBERS) -> Iterator[TableBatch]:
        """Read all fragments in turn; see `read`."""
        for fragment in self.fragments:
            yield from self.read(fragment, owners, form)

    def parts(self) -> Iterator[Any]:
        """Yield the bytes that identify the data, for `Store.fingerprint`: versions of files, or all values."""
        yield from self._source.parts(self.fragments)
        if self.selection != EVERYBODY:
            where = None if self.selection.where is None else self.selection.where.text
            yield repr((where, str(self.selection.missing), self.selection.by, self.selection.keys)).encode()


Read = tuple[int, Selected, pa.Array | None]
"""The number of rows of a batch, the values of those that take part, and the labels of the owners of all rows."""


class Source(Protocol):
    """The rows of a table, in one kind of place."""

    def cut(self, size: int) -> list[Fragment]:
        """Return fragments of about `size` bytes."""

    def read(self, fragment: Fragment, form: Form) -> Iterator[Read]:
        """Yield batches."""

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield the bytes that identify the data."""


class _Arrays:
    """Rows of an array."""

    def __init__(self, data: Any, missing: Missing) -> None:
        values, self._missing = column_of(data), missing
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

    def read(self, fragment: Fragment, form: Form) -> Iterator[Read]:
        """Yield rows."""
        for start in range(fragment.start, fragment.stop, ROWS):
            values = self._values[start : min(start + ROWS, fragment.stop)]
            rows, kept, missing = len(values), None, None
            where = fragment.after(start - fragment.start)
            if form is NUMBERS:
                if self._text:
                    raise BadTable(f"data must be numbers, got text at position {start}")
                values = numbers(values)
                if self._missing is not Missing.refuse:
                    missing = np.isnan(values) if values.ndim == 1 else np.isnan(values).any(axis=1)
                    kept = np.flatnonzero(~missing)
                    values, where = values[kept], renumbered(where, kept)
                require_finite("data", values, where)
            yield rows, Selected(values, kept, missing), None

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield all values."""
        yield repr((self._values.dtype.str, self._values.shape)).encode()
        if self._values.dtype == object:
            yield from (str(value).encode() for value in self._values.flat)
        else:
            yield np.ascontiguousarray(self._values).view(np.uint8)


class _Memory:
    """Rows of a table in memory."""

    def __init__(self, data: Any, columns: Sequence[Column], owner: str | None, selection: Selection) -> None:
        wanted = _wanted(columns, owner, selection)
        data = _as_columns(data)
        _require_columns("the table", _columns_of(data), wanted)
        self._columns, self._owner, self._selection = columns, owner, selection
        arrays = {name: _arrow(name, data[name]) for name in wanted}
        lengths = {name: len(column) for name, column in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise BadTable(f"columns must have one entry per record each, got {lengths}")
        self._table = pa.table(arrays)

    def cut(self, size: int) -> list[Fragment]:
        """Return ranges of rows."""
        rows = self._table.num_rows
        return _ranges(rows, max(1, size * rows // max(1, self._table.nbytes)))

    def read(self, fragment: Fragment, form: Form) -> Iterator[Read]:
        """Yield rows."""
        batches = self._table.slice(fragment.start, fragment.rows).to_batches(max_chunksize=ROWS)
        return _values(batches, fragment, self._columns, self._owner, self._selection, form)

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield all columns."""
        for batch in self._table.combine_chunks().to_batches():
            yield batch.serialize()


class _Files:
    """Rows of files."""

    def __init__(
        self, files: Sequence[File], columns: Sequence[Column], owner: str | None, selection: Selection
    ) -> None:
        self._files, self._columns, self._owner, self._selection = files, columns, owner, selection
        self._wanted = _wanted(columns, owner, selection)
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

    def read(self, fragment: Fragment, form: Form) -> Iterator[Read]:
        """Yield rows; raise if the file changes before or while it is read."""
        file = File(fragment.file)
        file.require(fragment.token)
        if file.parquet:
            batches = parquet_batches(file, fragment, self._wanted, ROWS)
        else:
            types = dict.fromkeys(self._wanted, pa.string()) | self._selection.types
            batches = csv_batches(file, fragment, types | types_of(self._columns, form))
        yield from _values(batches, fragment, self._columns, self._owner, self._selection, form)
        file.require(fragment.token)

    def parts(self, fragments: Iterable[Fragment]) -> Iterator[Any]:
        """Yield the versions of the files."""
        yield repr((self._columns, self._owner)).encode()
        for name, token in dict.fromkeys((fragment.file, fragment.token) for fragment in fragments):
            yield f"{name} {token}".encode()


def _values(
    batches: Iterable[pa.RecordBatch],
    fragment: Fragment,
    columns: Sequence[Column],
    owner: str | None,
    selection: Selection,
    form: Form,
) -> Iterator[Read]:
    """Yield values and labels in batches of at most `ROWS` rows."""
    done = 0
    for whole in batches:
        for start in range(0, whole.num_rows, ROWS):
            batch = whole.slice(start, ROWS)
            selected = selection.read(batch, columns, form, fragment.after(done))
            yield batch.num_rows, selected, None if owner is None else batch.column(owner)
            done += batch.num_rows


def _wanted(columns: Sequence[Column], owner: str | None, selection: Selection) -> list[str]:
    """Return all columns of a table that are read, each once."""
    owned = [] if owner is None else [owner]
    return list(dict.fromkeys([*types_of(columns, NUMBERS), *owned, *selection.types]))


def _ranges(rows: int, size: int) -> list[Fragment]:
    """Return fragments of `size` rows in memory."""
    starts = range(0, rows, size)
    return [
        Fragment(file="", start=at, stop=min(at + size, rows), row=at, first_id=at, rows=min(size, rows - at), token="")
        for at in starts
    ]


def is_table(data: Any) -> bool:
    """Return whether data have named columns in memory; an array has none."""
    if isinstance(data, Mapping | pa.Table | pa.RecordBatch):
        return True
    return hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "__arrow_c_stream__"))


def _as_columns(data: Any) -> Any:
    """Return a table from which columns can be taken by name.

    A pandas table keeps its own form, whose columns may hold objects that Arrow refuses; all others that have Arrow's
    stream (Polars, DuckDB) are taken through it, without a copy where their library makes none.
    """
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping | pa.Table) or hasattr(data, "iloc"):
        return data
    return pa.table(data)


def _columns_of(data: Any) -> list[Any]:
    """Return the names of the columns of a table."""
    if isinstance(data, Mapping):
        return list(data)
    return list(data.schema.names if isinstance(data, pa.Table) else data.columns)


def _names(columns: Column | Sequence[Column] | None) -> list[Column]:
    if columns is None:
        raise TypeError("columns must name the column of the values, or several of them, got None")
    names: list[Column] = [columns] if isinstance(columns, Column) else list(columns)
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
            close = get_close_matches(name, [other for other in present if isinstance(other, str)], n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "all files of a table need it"
            raise BadTable(f"{source} has no column {name!r}, its columns are {shown}: {remedy}")


def _arrow(name: str, values: Any) -> pa.ChunkedArray:
    """Return a column of any library as an Arrow array."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return _without_views(values)
    for kind in (None, pa.uint64()):  # Arrow does not infer uint64 for large whole numbers
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):  # their messages show values
            return pa.array(values, type=kind, from_pandas=True)
    try:
        return pa.array(_validate.numeric(name, values), type=pa.float64())  # whole numbers of any size
    except TypeError:
        raise BadTable(f"column {name!r} must hold values of one kind, got several, or something else") from None


def _without_views(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column with the text of Polars, which are views, in a form that Arrow can filter and compare."""
    kind = values.type
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if not pa.types.is_dictionary(kind) or not pa.types.is_string_view(kind.value_type):
        return values
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    plain = pa.dictionary(kind.index_type, pa.large_string())
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string())) for chunk in chunks],
        type=plain,
    )
