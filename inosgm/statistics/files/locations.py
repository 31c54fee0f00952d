"""Files of tables: on a disk, or wherever fsspec reaches."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from fsspec.core import url_to_fs

from inosgm.statistics.files.fragments import BadTable, Unreadable

SUFFIXES = (".parquet", ".pq", ".csv", ".csv.gz")
VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")
"""What file systems call that which changes with a file."""


@dataclass(frozen=True)
class File:
    """A file of a table.

    Args:
        path: A whole path, or a URI.
    """

    path: str

    @property
    def parquet(self) -> bool:
        """Whether it is a Parquet file, else it holds CSV."""
        return self.path.endswith((".parquet", ".pq"))

    @property
    def packed(self) -> bool:
        """Whether it has to be read from its beginning."""
        return self.path.endswith(".gz")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading, unpacked.

        Raises:
            BadTable: if it cannot be read.
        """
        try:
            files, name = _reached(self.path)
            opened: Any = files.open(name, "rb", compression="gzip" if self.packed else None)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read here: {error.strerror or type(error).__name__}") from None
        try:
            with opened:
                yield opened
        except (EOFError, gzip.BadGzipFile, zlib.error):  # whose words may hold a checksum of records
            raise BadTable(f"{self.path} must be a whole gzip file, and is not: copy it again") from None

    def token(self) -> str:
        """Return what changes with the file: its size, and when it was written or what its store calls this version."""
        try:
            if "://" not in self.path:
                about = os.stat(self.path)
                return f"{about.st_size} {about.st_mtime_ns}"
            files, name = _reached(self.path)
            found = files.info(name)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read here: {error.strerror or type(error).__name__}") from None
        return f"{found['size']} {next((found[key] for key in VERSIONS if found.get(key)), '')}"

    def require(self, token: str) -> None:
        """Raise if it is no longer what it was."""
        if self.token() != token:
            raise BadTable(
                f"{self.path} has changed since the table was looked at: ask again, and leave it alone meanwhile"
            )


def files_at(place: str | os.PathLike[str]) -> list[File]:
    """Return the CSV and Parquet files at a path or URI, in a directory with all below it, or of a pattern; by name.

    Raises:
        BadTable: if there are none.
    """
    text = os.path.expanduser(os.fspath(place))
    files, path = _reached(text)
    names: list[str]
    if files.isfile(path):
        names = [path]
    elif files.isdir(path):
        names = files.find(path)
        hidden = tuple(name for name in names if any(part[:1] in "._" for part in name[len(path) :].split("/") if part))
        names = [name for name in names if name not in hidden and name.endswith(SUFFIXES)]
    else:
        names = [name for name in files.glob(path) if files.isfile(name)] if any(c in path for c in "*?[") else []
    if not names:
        raise BadTable(f"there is no table at {text}: give a CSV or Parquet file, a directory or a pattern of them")
    wrong = [name for name in names if not name.endswith(SUFFIXES)]
    if wrong:
        raise BadTable(f"{wrong[0]} must be named {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, like what it holds")
    local = "://" not in text
    return [File(os.path.abspath(name) if local else files.unstrip_protocol(name)) for name in sorted(names)]


def _reached(path: str) -> tuple[Any, str]:
    """Return a file system, which remembers nothing about files, and the path there."""
    files, name = url_to_fs(path, use_listings_cache=False)
    return files, name
