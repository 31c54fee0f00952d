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

RESULTS = "results.parquet"
"""The file that `Store.compact` writes."""


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
        """Whether it has jobs, and none of them is running."""
        return (self.path / "jobs").exists() and not self.status.counts()["running"]


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
    """Delete the jobs of a store with their results, unless one of them has begun to run.

    **Guarantee.** Charges stay: the rows of the store's own ledger may be the only ones there are, and its names of
    noise keep noise from being used twice. A store without charges is deleted whole. Files that no store writes, such
    as a `Ledger` that somebody has put there, are left alone.

    Raises:
        RuntimeError: if a job of it runs by now.
    """
    if status(Store(store.path)).counts()["running"]:
        raise RuntimeError(f"{store.path} has running jobs: stop them first")
    shutil.rmtree(store.path / "jobs")
    (store.path / RESULTS).unlink(missing_ok=True)
    left = {entry.name for entry in store.path.iterdir()}
    if left <= {"store.json", "salt"}:
        shutil.rmtree(store.path)
