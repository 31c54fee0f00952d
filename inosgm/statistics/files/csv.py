"""CSV files: cut into ranges of bytes at line ends, and read in such ranges."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from inosgm.statistics.files.fragments import BadTable, Fragment
from inosgm.statistics.files.locations import File

HEAD = 1 << 20
"""Number of bytes that are read for the names of the columns and the first row."""

BLOCK = 4 << 20
"""Number of bytes that are parsed at once, if no line is longer."""

LONGEST_LINE = 64 << 20
"""Largest length of a line: a longer one has probably lost a quotation mark."""

BOOLEANS = ("true", "false")


def csv_columns(file: File) -> list[str]:
    """Return the names of the columns."""
    return _head(file)[0]


def csv_fragments(file: File, first_id: int, size: int) -> list[Fragment]:
    """Cut a file into ranges of about `size` bytes; a compressed file is not cut.

    All lines are counted, so that rows have their numbers in the whole file.
    """
    token, ranges, quoted = file.token(), list[tuple[int, int, int]](), False
    start, stop, rows = _end_of_header(file), 0, -1  # the header is not a row
    for stop, lines, marks in _lines(file, min(size, 16 << 20)):
        quoted |= marks
        rows += lines
        if stop - start >= size and not file.packed:
            ranges.append((start, stop, rows))
            start, rows = stop, 0
    if rows > 0:
        ranges.append((start, stop, rows))
    file.require(token)
    fragments, row = [], 0
    for start, stop, rows in ranges:
        about: dict[str, Any] = {"file": file.path, "start": start, "stop": stop, "token": token, "quoted": quoted}
        fragments.append(Fragment(**about, row=row, first_id=first_id + row, rows=rows))
        row += rows
    return fragments


def csv_batches(file: File, fragment: Fragment, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Read columns of a fragment in blocks of whole lines.

    Arrow parses copies in memory of its own, never a Python file or Python bytes. A thread of Arrow that releases a
    Python object waits for the interpreter; if the interpreter is being finalized, it ends that thread inside a C++
    destructor, and the process dies with exit code 134 after it has printed its whole answer.

    Args:
        file: The file.
        fragment: The rows.
        wanted: The columns, and the type of each.
    """
    names, first = _head(file)
    types = {
        name: pa.bool_() if kind == pa.float64() and first[names.index(name)].lower() in BOOLEANS else kind
        for name, kind in wanted.items()
    }
    read = pacsv.ReadOptions(
        column_names=names, block_size=BLOCK + LONGEST_LINE, use_threads=False
    )  # no block is larger
    parse = pacsv.ParseOptions(newlines_in_values=fragment.quoted)
    convert = pacsv.ConvertOptions(
        include_columns=list(types), column_types=types, null_values=[""], strings_can_be_null=True
    )
    try:
        cut = _counted if fragment.quoted else _ended
        for block, _ in _blocks(file, BLOCK, cut, fragment.start, fragment.stop):
            yield from pacsv.read_csv(in_arrow_memory(block), read, parse, convert).to_batches()
    except pa.ArrowInvalid:  # its message shows records
        raise _explained(file, fragment, names, types) from None


def in_arrow_memory(block: bytes) -> pa.Buffer:
    """Return a copy of bytes that belongs to Arrow alone."""
    copy = pa.allocate_buffer(len(block))
    memoryview(copy).cast("B")[:] = block
    return copy


def _lines(file: File, size: int) -> Iterator[tuple[int, int, bool]]:
    """Yield, for each block, the end of its last line, its number of lines that are not empty, and whether it has
    quotation marks; a line end with an odd number of them before it is part of a field.
    """
    position = 0
    for block, lines in _blocks(file, size, _counted):
        position += len(block)
        yield position, lines, b'"' in block


def _blocks(
    file: File, size: int, cut: Callable[[bytes], tuple[int, int]], start: int = 0, stop: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines of a range of bytes, and the number of lines of each.

    Args:
        file: The file.
        size: The number of bytes that are read at a time.
        cut: Returns the number of whole lines of a block, and the end of the last one.
        start: The first byte.
        stop: The byte after the last one; None for all.
    """
    rest, left = b"", sys.maxsize if stop is None else stop - start
    with file.open() as stream:
        stream.seek(start)
        while read := stream.read(min(size, left)):
            left -= len(read)
            block = rest + read
            lines, end = cut(block)
            if end:
                yield block[:end], lines
            rest = block[end:]
            if len(rest) > LONGEST_LINE:
                raise BadTable(
                    f"{file.path} has no line end within {LONGEST_LINE >> 20} MB: is a quotation mark missing?"
                )
    if rest.strip():
        yield rest, 1


def _ended(block: bytes) -> tuple[int, int]:
    """Return the end of the last line of a block without quotation marks; the number of lines is not needed."""
    return 0, block.rfind(b"\n") + 1


def _counted(block: bytes) -> tuple[int, int]:
    """Return the number of whole lines of a block that are not empty, and the end of the last one."""
    odd = any(mark in block for mark in (b'"', b"\n\n", b"\n\r\n")) or block.startswith((b"\n", b"\r\n"))
    if not odd:
        return block.count(b"\n"), block.rfind(b"\n") + 1
    codes = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    ends = ends[np.searchsorted(np.flatnonzero(codes == ord('"')), ends) % 2 == 0]
    if not ends.size:
        return 0, 0
    lengths = np.diff(ends, prepend=-1) - 1
    empty = (lengths == 0) | ((lengths == 1) & (codes[ends - 1] == ord("\r")))
    return int(ends.size - empty.sum()), int(ends[-1]) + 1


def _head(file: File) -> tuple[list[str], list[str]]:
    """Return the names of the columns, and the fields of the first row."""
    with file.open() as stream:
        text = stream.read(HEAD).decode("utf-8-sig", errors="replace")
    rows = (row for row in csv.reader(io.StringIO(text, newline="")) if row)
    names = [name.strip() for name in _next(rows)]
    if not names:
        raise BadTable(f"{file.path} is empty: its first line must name the columns")
    twice = {name for name in names if names.count(name) > 1}
    if twice and any(map(is_number, names)):  # the header may be the first record
        raise BadTable(f"{file.path} must name its columns in its first line, each once, got a number there")
    if twice:
        raise BadTable(f"{file.path} names the column {min(twice)!r} twice")
    first = [*_next(rows), *([""] * len(names))]
    return names, [field.strip() for field in first[: len(names)]]


def _next(rows: Iterator[list[str]]) -> list[str]:
    """Return the next row; empty if there is none, or if one of its fields is too long for Python's reader."""
    try:
        return next(rows, [])
    except csv.Error:
        return []


def _end_of_header(file: File) -> int:
    """Return the end of the line that names the columns."""
    with file.open() as stream:
        while line := stream.readline():
            if line.strip():
                break
        return stream.tell()


def _explained(file: File, fragment: Fragment, names: list[str], types: Mapping[str, pa.DataType]) -> BadTable:
    """Return an error that names the first row of a fragment that cannot be read."""
    with file.open() as stream:
        stream.seek(fragment.start)
        text = stream.read(fragment.stop - fragment.start).decode(errors="replace")
    typed = [(names.index(name), name, kind) for name, kind in types.items() if kind != pa.string()]
    rows = (row for row in csv.reader(io.StringIO(text, newline="")) if row)
    for position, row in enumerate(iter(lambda: _next(rows), [])):
        if len(row) != len(names):
            return BadTable(
                f"{fragment.at(position)} must have as many fields as the first line names columns, {len(names)}, got "
                "another number"
            )
        for column, name, kind in typed:
            if not _readable(row[column], kind):
                what = "numbers" if kind == pa.float64() else "true and false, as its first row does"
                return BadTable(f"column {name!r} must hold {what}, got something else at {fragment.at(position)}")
    return BadTable(f"{file.path} cannot be read as CSV: {fragment.rows} rows from {fragment.at(0)} on")


def _readable(field: str, kind: pa.DataType) -> bool:
    if kind == pa.bool_():
        return field.strip().lower() in (*BOOLEANS, "0", "1", "")
    return not field or is_number(field)


def is_number(field: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field  # Python accepts 1_000, Arrow does not
