"""Files of tables, local or at any URI that fsspec knows."""

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
"""The fields by which file systems report the version of a file."""


@dataclass(frozen=True)
class File:
    """A file of a table.

    Args:
        path: A whole path, or a URI.
    """

    path: str

    @property
    def parquet(self) -> bool:
        """True for a Parquet file, false for CSV."""
        return self.path.endswith((".parquet", ".pq"))

    @property
    def packed(self) -> bool:
        """True for a compressed file, which must be read from its beginning."""
        return self.path.endswith(".gz")

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open it for reading, decompressed.

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
        except (EOFError, gzip.BadGzipFile, zlib.error):  # their messages may hold a checksum of records
            raise BadTable(f"{self.path} must be a whole gzip file, and is not: copy it again") from None

    def token(self) -> str:
        """Return the version of the file: its size, and its time or the version that its store reports."""
        try:
            if "://" not in self.path:
                about = os.stat(self.path)
                return f"{about.st_size} {about.st_mtime_ns}"
            files, name = _reached(self.path)
            info = files.info(name)
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be read here: {error.strerror or type(error).__name__}") from None
        return f"{info['size']} {next((info[key] for key in VERSIONS if info.get(key)), '')}"

    def require(self, token: str) -> None:
        """Raise if the file has changed."""
        if self.token() != token:
            raise BadTable(
                f"{self.path} has changed since the table was looked at: ask again, and leave it alone meanwhile"
            )


def files_at(location: str | os.PathLike[str]) -> list[File]:
    """Return the CSV and Parquet files at a path or URI, in a directory tree, or of a pattern, sorted by name.

    Raises:
        BadTable: if there are none.
    """
    text = os.path.expanduser(os.fspath(location))
    files, path = _reached(text)
    names: list[str]
    if files.isfile(path):
        names = [path]
    elif files.isdir(path):
        names = files.find(path)
        hidden = tuple(
            name for name in names if any(folder[:1] in "._" for folder in name[len(path) :].split("/") if folder)
        )
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
    """Return a file system without a cache of listings, and the path there."""
    files, name = url_to_fs(path, use_listings_cache=False)
    return files, name
