"""Detection of records that two collections share, by their origin; no value of a record is read.

Held-out records are public, training records are not. Comparing their values would tell of any held-out record whether
it is among the training records, and would refuse honest held-out sets: 16 % of the test records of Adult and 11 % of
the held-out surnames of `names` equal a training record. Which objects, memory and files a program was given is public.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.exceptions import TooHardError
from numpy.lib.array_utils import byte_bounds

WORK = 10**6
"""Most steps that numpy takes to decide whether two views meet: some milliseconds; usual views take a few steps."""

MAPPINGS = Path("/proc/self/maps")
"""Where Linux lists the files that are mapped into memory."""

SCALARS = (type(None), bool, int, float, complex, str, bytes)
"""Kinds of values that unrelated lists share: small numbers and short texts are one object wherever they occur."""

MEMORY = "memory"
"""The addresses of this process, in contrast to those of another device or of a file."""

ORIGIN = 2**32
"""The address that stands for the first byte of a mapped file; 0 would be no address."""


def share_records(data: Any, other: Any) -> bool:
    """Return whether two collections of records share some: objects, memory, or bytes of a memory-mapped file.

    Disjoint views of one array share none. Records that share nothing of that kind, such as copies, are not noticed.

    **Guarantee.** The answer does not depend on the value of any record.

    Args:
        data: Arrays, tables, lists of records, data sets of torch, or tuples and dicts of such columns.
        other: Likewise.

    >>> x = np.arange(10.0)
    >>> share_records(x[:8], x[8:]), share_records(x[:8], x[7:]), share_records(x, x.copy())
    (False, True, False)
    """
    source = _Source(_mapped_files())
    ours, theirs = (list(source.columns(one, None)) for one in (data, other))
    return _entries_meet(ours, theirs) or _rows_meet(ours, theirs)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of an array.

    Attributes:
        space: What addresses are about: the memory of a device, or a file.
        view: An array at these addresses, of which nothing is ever read.
        chosen: Which rows are records; all if None.
    """

    space: str
    view: np.ndarray
    chosen: np.ndarray | None

    def starts(self) -> np.ndarray:
        """Return the addresses of the records, ascending."""
        chosen = np.arange(len(self.view)) if self.chosen is None else self.chosen
        return np.unique(_address(self.view) + chosen * self.view.strides[0])

    def length(self) -> int:
        """Return how many bytes a record takes; 1 if it is not one stretch of memory."""
        row = self.view[:1]  # never view[0], which would read a number
        return row.nbytes if row.flags.c_contiguous else 1

    def meets(self, other: Self) -> bool:
        """Return whether a record of one shares memory with a record of the other."""
        try:
            if not np.shares_memory(self.view, other.view, max_work=WORK):  # type: ignore[arg-type]
                return False
        except TooHardError:
            pass  # views that are hard to compare count as shared: a refusal does not leak
        if self.chosen is None and other.chosen is None:
            return True
        ours, theirs = self.starts(), other.starts()
        first = np.searchsorted(theirs, ours - other.length(), side="right")
        return bool((np.searchsorted(theirs, ours + self.length(), side="left") > first).any())


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries of something that is known by its identity.

    Attributes:
        space: What has these entries.
        names: What tells them apart.
    """

    space: int | str
    names: np.ndarray


_Columns = list[_Rows | _Entries]


def _entries_meet(ours: _Columns, theirs: _Columns) -> bool:
    pairs = (
        (one.names, other.names)
        for one in ours
        for other in theirs
        if isinstance(one, _Entries) and isinstance(other, _Entries) and one.space == other.space
    )
    return any(np.intersect1d(*names).size for names in pairs)


def _rows_meet(ours: _Columns, theirs: _Columns) -> bool:
    """Compare what lies in the same stretch of memory, and nothing else: tables may have thousands of columns."""
    rows = [one for one in theirs if isinstance(one, _Rows)]
    low, high = np.array([byte_bounds(one.view) for one in rows], dtype=np.uint64).reshape(len(rows), 2).T
    for one in ours:
        if isinstance(one, _Rows):
            first, last = byte_bounds(one.view)
            near = (rows[place] for place in np.flatnonzero((low < last) & (high > first)))
            if any(one.meets(other) for other in near if one.space == other.space):
                return True
    return False


@dataclass(frozen=True, eq=False)
class _Source:
    """Says where records are.

    Attributes:
        files: The files that are mapped into memory.
        open: The data sets whose parts are being listed: one may hold another that holds it.
        kept: Arrays that are made here, such as those of a column of text: another must not get their memory.
    """

    files: "_Files"
    open: list[Any] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)

    def columns(self, data: Any, chosen: np.ndarray | None) -> Iterator[_Rows | _Entries]:
        """List what the chosen records of a collection are made of; all of them if None."""
        torch = sys.modules.get("torch")  # what is not imported has no tensors
        if isinstance(data, dict | tuple):
            for column in data.values() if isinstance(data, dict) else data:
                yield from self.columns(column, chosen)
        elif isinstance(data, np.ndarray):
            yield from self._rows(MEMORY, _address(data), data.shape, data.strides, data.itemsize, chosen)
        elif torch is not None and isinstance(data, torch.Tensor) and data.layout == torch.strided:
            size = data.element_size()
            strides = tuple(step * size for step in data.stride())
            space = MEMORY if data.device.type == "cpu" else str(data.device)
            yield from self._rows(space, data.data_ptr(), tuple(data.shape), strides, size, chosen)
        elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            yield _Entries(id(data), _positions(data, chosen))
            if isinstance(data, list):
                yield _listed(data, chosen)
            elif hasattr(data, "iloc"):  # pandas, which keeps columns apart
                table = hasattr(data, "columns")
                for column in (data.iloc[:, place] for place in range(data.shape[1])) if table else [data]:
                    self.kept.append(column.to_numpy())
                    yield from self.columns(self.kept[-1], chosen)
            elif not any(data is one for one in self.open):
                self.open.append(data)
                yield from self._parts(data, chosen)
                self.open.pop()

    def _rows(
        self,
        space: str,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        size: int,
        chosen: np.ndarray | None,
    ) -> Iterator[_Rows]:
        """Describe rows by where they are; none where all rows are one, such as an expanded constant."""
        if not shape or not all(shape) or (shape[0] > 1 and not strides[0]):
            return
        if space == MEMORY:
            space, address = self.files.place(address)
        yield _Rows(space, np.asarray(_Addresses(address, shape, strides, size)), chosen)

    def _parts(self, data: Any, chosen: np.ndarray | None) -> Iterator[_Rows | _Entries]:
        """List what a data set takes its records from.

        What an unknown one holds counts if it has as many entries as the data set has records: it is a column, or a
        data set whose records are changed on the way.
        """
        sets = sys.modules.get("torch.utils.data")
        if sets is not None and isinstance(data, sets.Subset):
            indices = np.asarray(data.indices, dtype=np.int64) % len(data.dataset)
            yield from self.columns(data.dataset, indices if chosen is None else indices[chosen])
        elif sets is not None and isinstance(data, sets.ConcatDataset):
            ends, positions = np.asarray(data.cumulative_sizes), _positions(data, chosen)
            number = np.searchsorted(ends, positions, side="right")
            for place, part in enumerate(data.datasets):
                yield from self.columns(part, positions[number == place] - (ends[place] - len(part)))
        elif sets is not None and isinstance(data, sets.TensorDataset):
            yield from self.columns(data.tensors, chosen)
        elif sets is not None and isinstance(data, sets.StackDataset):
            yield from self.columns(data.datasets, chosen)
        else:
            for held in list(getattr(data, "__dict__", {}).values()):
                if not isinstance(held, dict | tuple | str | bytes) and _length(held) == len(data):
                    yield from self.columns(held, chosen)


def _positions(data: Any, chosen: np.ndarray | None) -> np.ndarray:
    return np.arange(len(data)) if chosen is None else chosen


def _listed(data: list[Any], chosen: np.ndarray | None) -> _Entries:
    """Return the records of a list, which other lists may hold as well."""
    records = data if chosen is None else [data[place] for place in chosen.tolist()]
    names = [_identity(record) for record in records if not isinstance(record, SCALARS)]
    return _Entries("records of lists", np.array(names, dtype=np.int64))


def _identity(record: Any) -> int:
    """Return the address of a record: that of its numbers where it is an array."""
    if isinstance(record, np.ndarray) and record.size:
        return _address(record)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(record, torch.Tensor) and record.layout == torch.strided and record.numel():
        return int(record.data_ptr())
    return id(record)


def _length(held: Any) -> int:
    """Return the number of entries of an object that has them by position; -1 if it has none."""
    try:
        return len(held) if hasattr(held, "__getitem__") else -1
    except Exception:  # a tensor without axes; whatever objects of users raise
        return -1


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


class _Addresses:
    """Addresses as numpy reads them: it makes an array that lies there, and touches nothing."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{size}",
        }


@dataclass(frozen=True, eq=False)
class _Files:
    """The files that are mapped into memory.

    Attributes:
        starts: Where each mapping begins, ascending.
        ends: Where it ends.
        offsets: Which byte of its file it begins with.
        names: Which file that is.
    """

    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray
    names: list[str]

    def place(self, address: int) -> tuple[str, int]:
        """Return the file that is mapped to an address, and a number for its byte there; or memory and the address."""
        at = int(np.searchsorted(self.starts, address, side="right")) - 1
        if at < 0 or address >= self.ends[at]:
            return MEMORY, address
        return self.names[at], ORIGIN + address - int(self.starts[at]) + int(self.offsets[at])


def _mapped_files() -> _Files:
    """Read which files are mapped; none where the operating system does not say."""
    rows, names = [], []
    for line in MAPPINGS.read_text().splitlines() if MAPPINGS.exists() else []:
        stretch, _, offset, device, inode, *_ = line.split(maxsplit=5)
        start, end = (int(number, 16) for number in stretch.split("-"))
        if inode != "0" and end < 2**63:  # beyond is what the kernel maps for itself
            rows.append((start, end, int(offset, 16)))
            names.append(f"file {device} {inode}")
    starts, ends, offsets = np.array(rows, dtype=np.int64).reshape(len(rows), 3).T
    return _Files(starts, ends, offsets, names)
