"""Only the thread that asks for records reads their files.

A thread of Arrow that releases a Python file, or Python bytes, waits for the interpreter. If the interpreter is being
finalized, it ends that thread inside a C++ destructor, and the process dies with exit code 134 after it has printed its
whole answer: `terminate called without an active exception`.
"""

import gzip
import sys
import threading
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inosgm import Owners
from inosgm.statistics.files import locations as _files
from inosgm.statistics.files.csv import in_arrow_memory
from inosgm.statistics.tables import BadTable, Table

ROWS = 3000
LINES = ["wage,ok,clinic", *(f"{row}.5,{row % 2},{'ab'[row % 2]}" for row in range(ROWS))]
OWNERS = Owners(of_record=["a", "b"], epsilon=1.0, delta=1e-5)


class Stream:
    """A file that writes down which threads read it and close it."""

    def __init__(self, file, threads):
        self._file, self._threads = file, threads

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read(self, *size):
        self._threads.add(threading.get_ident())
        return self._file.read(*size)

    def close(self):
        self._threads.add(threading.get_ident())
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def threads(monkeypatch):
    """The threads that have read any file of a table so far."""
    found, reached = set(), _files._reached

    class Files:
        def __init__(self, files):
            self._files = files

        def __getattr__(self, name):
            return getattr(self._files, name)

        def open(self, *what, **how):
            return Stream(self._files.open(*what, **how), found)

    def watched(path):
        files, name = reached(path)
        return Files(files), name

    monkeypatch.setattr(_files, "_reached", watched)
    return found


def written(folder, kind, lines=LINES):
    """Write a table."""
    text, path = "\n".join(lines) + "\n", folder / f"t.{kind}"
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif kind == "csv":
        path.write_text(text)
    else:
        pq.write_table(pa.table({"wage": [row + 0.5 for row in range(ROWS)], "clinic": ["a", "b"] * (ROWS // 2)}), path)
    return path


@pytest.mark.parametrize("kind", ["csv.gz", "csv", "parquet"])
def test_no_other_thread_reads_or_closes_a_file(tmp_path, threads, kind):
    """Fails on 76c85f1 for csv.gz and Parquet."""
    table = Table.of(written(tmp_path, kind), "wage", "clinic")
    assert sum(len(batch.values) for batch in table.batches(OWNERS)) == ROWS
    first = next(table.batches(OWNERS))  # a reader that is left half-way
    assert len(first.values)
    assert threads == {threading.get_ident()}


def test_nor_after_a_bad_record(tmp_path, threads):
    table = Table.of(written(tmp_path, "csv.gz", [*LINES, "many,0,a"]), "wage", "clinic")
    with suppress(BadTable):
        list(table.batches(OWNERS))
    assert threads == {threading.get_ident()}


def test_what_arrow_parses_is_a_copy_of_its_own():
    block = b"1,2\n" * 1000
    before = sys.getrefcount(block)
    copy = in_arrow_memory(block)
    assert sys.getrefcount(block) == before
    assert copy.to_pybytes() == block
