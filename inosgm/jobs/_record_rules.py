"""What all records have in common: how they are named, and the proof that they are created exclusively."""

import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

DRAFT, TRIAL = ".draft-", ".trial-"
"""How the names begin of what is not a record yet, and of what `prove_exclusive` creates, which is no draft: nobody may
sweep it meanwhile. Names that begin with a dot are never listed."""

PART = re.compile(r"(\.trial-)?\w[\w.=+-]*", re.ASCII)
ROUNDS, CREATORS = 3, 4


class Creating(Protocol):
    """The part of records that `prove_exclusive` tries."""

    uri: str

    def create(self, name: str, content: bytes) -> None:
        """Make a record."""

    def read(self, name: str) -> bytes:
        """Return the content of a record."""

    def remove(self, name: str) -> None:
        """Delete a record."""


def checked(name: str) -> str:
    """Return the name of a record, if it can be one everywhere and stays inside the store."""
    if not all(PART.fullmatch(part) for part in name.split("/")):
        rule = "a relative path whose parts are letters, digits and _.=+-, and begin with a letter, a digit or _"
        raise ValueError(f"name must be {rule}, got {name!r}")
    return name


def prove_exclusive(records: Creating) -> None:
    """Raise if a record can be created twice, in turn or at once, or be seen in part; leave nothing behind."""
    name = f"{TRIAL}{secrets.token_hex(8)}"
    try:
        records.create(name, b"first")
        with suppress(FileExistsError):
            records.create(name, b"second")
            raise unfit(records.uri, "a second creation of a record went through")
        for number in range(ROUNDS):
            _race(records, f"{name}-{number}")
    finally:
        records.remove(name)


def _race(records: Creating, name: str) -> None:
    """Create a record from several threads at once; whoever is refused must find the whole record of the winner."""
    contents = [bytes([65 + number]) * 4096 for number in range(CREATORS)]
    start = threading.Barrier(CREATORS)

    def create(content: bytes) -> bytes | None:
        start.wait()
        try:
            records.create(name, content)
        except FileExistsError:
            return records.read(name)
        return None

    try:
        with ThreadPoolExecutor(CREATORS) as pool:
            seen = list(pool.map(create, contents))
        kept = records.read(name)
    finally:
        records.remove(name)
    winners = [content for content, found in zip(contents, seen, strict=True) if found is None]
    if winners != [kept]:
        raise unfit(records.uri, f"{len(winners)} of {CREATORS} creators of one record went through at once")
    if any(found not in (None, kept) for found in seen):
        raise unfit(records.uri, "a record was seen before it was whole")


def unfit(uri: str, finding: str) -> ValueError:
    """Return the error for a place that cannot be a store."""
    return ValueError(
        f"store must be a place where records are created exclusively, got {uri!r}: {finding}. "
        "Use a directory on a file system with hard links, or an object store with conditional writes (S3, GCS, Azure)"
    )
