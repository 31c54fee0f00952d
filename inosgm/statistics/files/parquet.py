"""Parquet files: cut between row groups, and read in ranges of them."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inosgm.statistics.files.fragments import BadTable, Fragment
from inosgm.statistics.files.locations import File


def parquet_columns(file: File) -> list[str]:
    """Return the names of the columns."""
    with file.open() as stream:
        return list(_opened(file, stream).schema_arrow.names)


def parquet_fragments(file: File, first_id: int, size: int) -> list[Fragment]:
    """Cut a file into ranges of row groups of about `size` bytes, uncompressed."""
    token, fragments = file.token(), list[Fragment]()
    with file.open() as stream:
        metadata = _opened(file, stream).metadata
        start = row = rows = held = 0
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            held += metadata.row_group(group).total_byte_size
            if held >= size or group == metadata.num_row_groups - 1:
                about: dict[str, Any] = {"file": file.path, "start": start, "stop": group + 1, "token": token}
                fragments.append(Fragment(**about, row=row, first_id=first_id + row, rows=rows))
                start, row, rows, held = group + 1, row + rows, 0, 0
    return [fragment for fragment in fragments if fragment.rows]


def parquet_batches(file: File, fragment: Fragment, columns: Iterable[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Read columns of a fragment in batches of at most `rows` rows."""
    groups = list(range(fragment.start, fragment.stop))
    try:
        with file.open() as stream:
            parquet = _opened(file, stream)
            yield from parquet.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=False)
    except (pa.ArrowInvalid, OSError):
        raise BadTable(f"{file.path} is damaged: its row groups {fragment.start} to {fragment.stop - 1}") from None


def _opened(file: File, stream: object) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream, pre_buffer=False)  # otherwise threads of Arrow read it: see `csv_batches`
    except pa.ArrowException as error:
        raise BadTable(f"{file.path} is not a Parquet file that can be read ({type(error).__name__})") from None
