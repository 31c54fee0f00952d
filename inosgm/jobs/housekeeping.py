"""Stores below a directory: which there are, and which are old enough to be deleted."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time

from inosgm.jobs.status import StoreStatus, status
from inosgm.jobs.store import Store

UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
"""Seconds of the units of an age."""


@dataclass(frozen=True, kw_only=True)
class FoundStore:
    """A store in a directory of this machine.

    Attributes:
        path: Where it is.
        status: The states of its jobs.
        age: Seconds since anything in it changed.
        size: Bytes on disk.
    """

    path: Path
    status: StoreStatus
    age: float
    size: int

    @property
    def deletable(self) -> bool:
        """Whether no job of it is running: results may be deleted, and charges stay in their ledger."""
        return not self.status.counts()["running"]


def find_stores(directory: str | os.PathLike[str]) -> Iterator[FoundStore]:
    """Yield the stores of a directory tree, sorted by path; links are not followed, and nothing is written.

    Raises:
        NotADirectoryError: if it is no directory.
    """
    root = Path(directory)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is no directory: name one that holds stores, such as runs")
    for folder, inside, files in os.walk(root):
        inside.sort()
        if "store.json" in files:
            inside.clear()  # a store holds no other
            path = Path(folder)
            facts = [entry.lstat() for entry in path.rglob("*") if not entry.is_dir()]
            yield FoundStore(
                path=path,
                status=status(Store(path)),
                age=time() - max(fact.st_mtime for fact in facts),
                size=sum(fact.st_size for fact in facts),
            )


def seconds_of(age: str) -> float:
    """Return an age such as 12h, 30d or 2w in seconds.

    Raises:
        ValueError: for anything else.

    >>> seconds_of("30d"), seconds_of("12h")
    (2592000.0, 43200.0)
    """
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", age)
    if matched is None:
        raise ValueError(f"an age is a number with h, d or w for hours, days or weeks, such as 30d, got {age!r}")
    return float(matched[1]) * UNITS[matched[2]]


def delete(store: FoundStore) -> None:
    """Delete a store with its results, unless a job of it has begun to run.

    Raises:
        RuntimeError: if a job of it runs by now.
    """
    if status(Store(store.path)).counts()["running"]:
        raise RuntimeError(f"{store.path} has running jobs: stop them first")
    shutil.rmtree(store.path)
