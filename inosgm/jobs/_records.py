"""Records of bytes by name, each created once and seen whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from inosgm._files import sync_directory, write_durably


class Records(Protocol):
    """Records by name; a name is a relative path with slashes."""

    uri: str

    def create(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Make a record, durably; FileExistsError if there is one, whoever made it."""

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Make a record, or put another in its place."""

    def read(self, name: str) -> bytes:
        """Return the content of a record; FileNotFoundError if there is none."""

    def names(self, under: str = "") -> list[str]:
        """Return the names of all records below a path, in order."""

    def remove(self, name: str) -> None:
        """Delete a record, if there is one."""

    def probe(self) -> None:
        """Raise if records cannot be made here, or are not created exclusively."""


class LocalRecords:
    """Records as files of a directory, on a disk or a shared file system with hard links."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._root = Path(uri)

    def create(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a draft, then link it to its name, which fails if the name is taken."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
        write_durably(draft, content, mode=0o600 if secret else 0o660)
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
        sync_directory(path)

    def replace(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Write a draft, then rename it."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content, mode=0o600 if secret else 0o660)

    def read(self, name: str) -> bytes:
        """Read a file."""
        return (self._root / name).read_bytes()

    def names(self, under: str = "") -> list[str]:
        """List all files but drafts."""
        found = []
        for folder, _, files in os.walk(self._root / under):
            found += [os.path.join(folder, file) for file in files if not file.startswith(".")]
        return sorted(os.path.relpath(file, self._root) for file in found)

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            (self._root / name).unlink()

    def probe(self) -> None:
        """Create a record twice."""


def records_at(uri: str) -> Records:
    """Return the records at a place."""
    return LocalRecords(uri)
