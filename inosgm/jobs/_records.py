"""Records of bytes by name, each created once and seen whole or not at all."""

import os
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote

from inosgm.jobs._local_records import LocalRecords


class Records(Protocol):
    """Records by name; a name is a relative path with slashes, and no name is a folder of another."""

    uri: str
    """Where they are, the same from every working directory."""

    def create(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Make a record, durably; FileExistsError if there is one, whoever made it."""

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Make a record, or put another in its place."""

    def read(self, name: str) -> bytes:
        """Return the content of a record; FileNotFoundError if there is none."""

    def names(self, under: str = "") -> list[str]:
        """Return the names of all records below a path, in order."""

    def remove(self, name: str) -> None:
        """Delete a record, durably, if there is one."""

    def clear(self, under: str) -> None:
        """Delete what writers that were killed have left below a path, and no record; one that lives writes again."""

    def sweep(self, over: Callable[[str], bool]) -> None:
        """Delete what writers that were killed have left anywhere, and nothing that a living one needs.

        Args:
            over: Says of a name whether nobody writes there any more, such as in the folder of a job that is done.
        """

    def probe(self) -> None:
        """Raise if records cannot be made here, or are not created exclusively."""


def records_at(uri: str | os.PathLike[str]) -> Records:
    """Return the records at a place, of which nothing is touched yet.

    Args:
        uri: A path, `file:///path`, or the URI of an object store, such as `s3://bucket/path`.

    Raises:
        ValueError: for a place that cannot be a store.
        ImportError: if the library that reaches it is not installed.

    >>> records = records_at("memory://doctest")
    >>> records.create("jobs/1", b"done")
    >>> records.create("jobs/1", b"done again")
    Traceback (most recent call last):
    FileExistsError: [Errno 17] there is a record already: 'memory://doctest/jobs/1'
    >>> records.names()
    ['jobs/1']
    """
    uri = os.fspath(uri)
    scheme, mark, rest = uri.partition("://")
    if mark and scheme not in ("file", "local"):
        from inosgm.jobs._object_records import ObjectRecords  # fsspec takes its time

        return ObjectRecords(uri)
    path = unquote(rest.removeprefix("localhost")) if mark else uri
    if not path or (mark and not path.startswith("/")):
        raise ValueError(f"store must be a path, file:///path, or a URI such as s3://bucket/path, got {uri!r}")
    return LocalRecords(path)
