"""Durable, atomic writes: after a crash a file has its old content or its new content, never a part of it."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_durably(path: Path, content: bytes, *, mode: int = 0o660) -> None:
    """Replace a file atomically and durably."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    sync_directory(path)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the name of a new file durable, not only its bytes."""
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
